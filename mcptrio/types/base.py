"""The base of all classes here: JSON aliases, the sentinel for null, icons, and the common params.

The classes are supersets of all protocol revisions: a field that some revision lacks is optional, and `None` means that
it is absent on the wire. The era of a request decides which fields its revision allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
from attrs import Attribute, field

from ._fields import as_optional_tuple, frozen

JsonObject: TypeAlias = Mapping[str, Any]
Role: TypeAlias = Literal["user", "assistant"]
RequestId: TypeAlias = int | str
ProgressToken: TypeAlias = int | str
CacheScope: TypeAlias = Literal["public", "private"]
LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOGGING_LEVELS: Final[tuple[LoggingLevel, ...]] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""The severity levels of RFC 5424, least severe first."""


class Record:
    """The base of every class here: equal if class and fields are equal; its repr omits absent fields."""

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
    """The type of `NULL`, a null on the wire in fields where `None` means absent."""

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


@frozen(kw_only=True)
class Icon(Record):
    """An image that a host may show next to a name."""

    src: str
    mime_type: str | None = None
    sizes: tuple[str, ...] | None = field(default=None, converter=as_optional_tuple)
    theme: Literal["light", "dark"] | None = None


# -- params


@frozen(kw_only=True)
class Params(Record):
    """The params of a request or notification, without fields of its own."""

    meta: JsonObject | None = None


@frozen(kw_only=True)
class InputResponseParams(Params):
    """The params of a request that the server may answer with an `InputRequiredResult` (multi round-trip requests).

    A response has no tag, so the responses stay plain JSON until they are matched with their requests.
    """

    input_responses: Mapping[str, JsonObject] | None = None
    request_state: str | None = None


# Not in `tools`, which imports all content classes: most servers need only this one, and would start 3 % slower.
@frozen(kw_only=True)
class CallToolParams(InputResponseParams):
    """The tool to call, and its arguments."""

    name: str
    arguments: JsonObject | None = None
    task: JsonObject | None = None


@frozen(kw_only=True)
class PaginatedParams(Params):
    """The params of a request for one page of a list."""

    cursor: str | None = None


PingParams = Params
