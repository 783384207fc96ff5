"""What the other modules of this package are built from: JSON aliases, the sentinel for null, params and results.

The classes are supersets: a field that some revision of the protocol lacks is optional, and `None` means that it is
absent on the wire. Which fields a revision allows is decided by its era, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
from attrs import Attribute

if TYPE_CHECKING:
    from attrs import frozen as frozen
else:
    # Comparing and printing are in `Record`, once: generating them for every class would double the time to import.
    frozen = partial(attrs.frozen, eq=False, repr=False)

JsonObject: TypeAlias = Mapping[str, Any]
Role: TypeAlias = Literal["user", "assistant"]
RequestId: TypeAlias = int | str
ProgressToken: TypeAlias = int | str
CacheScope: TypeAlias = Literal["public", "private"]

# Metadata of a field in which null on the wire is a value of its own: it is read as `NULL`, not as absent.
NULL_MATTERS: Final[Mapping[str, bool]] = {"null_matters": True}


class Record:
    """The base of every class here: equal when class and fields are equal, printed without what is absent."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _names(self))

    def __hash__(self) -> int:
        return hash((self.__class__, *[getattr(self, name) for name in _names(self)]))

    def __repr__(self) -> str:
        shown = [(f.name, getattr(self, f.name)) for f in _fields(self) if f.repr]
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown if value is not None)})"


def _fields(record: Any) -> Iterable[Attribute[Any]]:
    fields: Iterable[Attribute[Any]] = attrs.fields(type(record))
    return fields


def _names(record: Record) -> list[str]:
    return [f.name for f in _fields(record)]


class Null:
    """The type of `NULL`, which stands for a null on the wire where `None` would mean absent."""

    __slots__ = ()
    _instance: Null | None = None

    def __new__(cls) -> Null:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "NULL"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> tuple[type[Null], tuple[()]]:
        return Null, ()


NULL: Final = Null()


def as_tuple(values: Iterable[Any]) -> tuple[Any, ...]:
    """Let callers pass a list or any other iterable for a tuple; a lone string is almost always a mistake."""
    if type(values) is tuple:
        return values
    if isinstance(values, str | bytes):
        raise TypeError(f"expected several values, got the single string {values!r}; put it in a list")
    return tuple(values)


def as_optional_tuple(values: Iterable[Any] | None) -> tuple[Any, ...] | None:
    """Like `as_tuple`, for a field that may be absent."""
    return None if values is None else as_tuple(values)


def role_check(instead_of_system: str) -> Callable[[object, Attribute[Any], object], None]:
    """A validator of roles; `instead_of_system` is the way out for the role that is wanted most and does not exist."""

    def check(_instance: object, _attribute: Attribute[Any], role: object) -> None:
        if role == "system":
            raise ValueError(f'MCP has no "system" role: {instead_of_system}')
        if role not in ("user", "assistant"):
            raise ValueError(f'a role is "user" or "assistant", not {role!r}')

    return check


@frozen(kw_only=True)
class Params(Record):
    """The parameters of a request or notification that has none of its own."""

    meta: JsonObject | None = None


@frozen(kw_only=True)
class InputResponseParams(Params):
    """The parameters of a request that the server may answer with questions first (multi round-trip requests).

    A response carries no tag of its own, so the answers stay plain JSON until they meet the questions they belong to.
    """

    input_responses: Mapping[str, JsonObject] | None = None
    request_state: str | None = None


PingParams = Params
