"""Building blocks for the classes of this package: a decorator, field converters, validators and metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import Attribute

if TYPE_CHECKING:
    from attrs import frozen as frozen
else:
    # `Record` defines comparison and repr once: generating them for every class would double the time to import.
    frozen = partial(attrs.frozen, eq=False, repr=False)

NULL_MATTERS: Final[Mapping[str, bool]] = {"null_matters": True}
"""Metadata of a field in which null differs from absent on the wire: null is read as `NULL`."""

# Until 2025-06-18 the object was the only form, and every revision still reads it.
ONE_OR_MANY: Final[Mapping[str, bool]] = {"one_or_many": True}
"""Metadata of a tuple field that is written as an object instead of an array while it holds one value."""


def as_tuple(values: Iterable[Any]) -> tuple[Any, ...]:
    """Convert any iterable to a tuple, but reject a string: passing one is almost always a mistake."""
    if type(values) is tuple:
        return values
    if isinstance(values, str | bytes):
        raise TypeError(f"expected several values, got the single string {values!r}; put it in a list")
    return tuple(values)


def as_optional_tuple(values: Iterable[Any] | None) -> tuple[Any, ...] | None:
    """Convert like `as_tuple`, but keep None."""
    return None if values is None else as_tuple(values)


def as_schema(schema: Any) -> Any:
    """Convert a `mcptrio.Schema` to a JSON object; a JSON object stays as it is."""
    return schema.to_json() if hasattr(schema, "to_json") else schema


def as_blocks(content: Any | Iterable[Any]) -> tuple[Any, ...]:
    """Convert one content block or an iterable of them to a tuple."""
    return (content,) if attrs.has(type(content)) else as_tuple(content)


def _role_check(instead_of_system: str) -> Callable[[object, Attribute[Any], object], None]:
    """Make a validator of roles whose error for the role "system", which MCP lacks, says what to do instead."""

    def check(_instance: object, _attribute: Attribute[Any], role: object) -> None:
        if role == "system":
            raise ValueError(f'MCP has no "system" role: {instead_of_system}')
        if role not in ("user", "assistant"):
            raise ValueError(f'a role is "user" or "assistant", not {role!r}')

    return check


check_prompt_role = _role_check("put the text in a user message or in the instructions of the server")
check_sampling_role = _role_check("use the system_prompt of the request")
