"""A JSON Schema as a typed value, for tools whose schema is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs
from attrs import field, frozen

from mcptrio.types import NULL
from mcptrio.types._fields import as_optional_tuple

SchemaLike: TypeAlias = "Schema | Mapping[str, Any]"

_KEYWORDS: Final[Mapping[str, str]] = {"ref": "$ref", "defs": "$defs"}


def _type(value: str | Iterable[str] | None) -> str | tuple[str, ...] | None:
    return value if value is None or isinstance(value, str) else tuple(value)


@frozen(kw_only=True)
class Schema:
    """A JSON Schema: `Schema(type="object", properties={"city": Schema(type="string")}, required=["city"])`.

    It has the keywords that tools and forms use. A nested schema may also be a plain mapping, for example for a keyword
    that is missing here. `types.NULL` stands for a default of null.
    """

    type: str | tuple[str, ...] | None = field(default=None, converter=_type)
    title: str | None = None
    description: str | None = None
    default: Any = None
    enum: tuple[Any, ...] | None = field(default=None, converter=as_optional_tuple)
    const: Any = None
    format: str | None = None
    properties: Mapping[str, SchemaLike] | None = None
    required: tuple[str, ...] | None = field(default=None, converter=as_optional_tuple)
    additional_properties: bool | SchemaLike | None = None
    items: SchemaLike | None = None
    min_items: int | None = None
    max_items: int | None = None
    unique_items: bool | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    multiple_of: float | None = None
    any_of: tuple[SchemaLike, ...] | None = field(default=None, converter=as_optional_tuple)
    one_of: tuple[SchemaLike, ...] | None = field(default=None, converter=as_optional_tuple)
    all_of: tuple[SchemaLike, ...] | None = field(default=None, converter=as_optional_tuple)
    ref: str | None = None
    defs: Mapping[str, SchemaLike] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the schema as a JSON object."""
        given = ((f.name, getattr(self, f.name)) for f in attrs.fields(type(self)))
        return {_keyword(name): _to_json(value) for name, value in given if value is not None}


def _keyword(name: str) -> str:
    head, *rest = name.split("_")
    return _KEYWORDS.get(name, head + "".join(part.capitalize() for part in rest))


def _to_json(value: Any) -> Any:
    if value is NULL:
        return None
    match value:
        case Schema():
            return value.to_json()
        case Mapping():
            return {key: _to_json(item) for key, item in value.items()}
        case list() | tuple():
            return [_to_json(item) for item in value]
        case _:
            return value
