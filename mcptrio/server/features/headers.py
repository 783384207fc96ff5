"""Tool arguments that are repeated in an HTTP header, so that proxies can route by them (`x-mcp-header`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from mcptrio.errors import DeclarationError

KEYWORD: Final = "x-mcp-header"
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110 section 5.6.2
_PRIMITIVE: Final = ("string", "integer", "boolean")


class Header(Struct, frozen=True):
    """A mark on a tool's parameter: `region: Annotated[str, Header("Region")]` is repeated in `Mcp-Param-Region`."""

    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(_TOKEN, self.name):
            raise DeclarationError(f"{self.name!r} cannot be a part of a header's name; use letters, digits and dashes")

    def __mcp_schema__(self) -> dict[str, Any]:
        return {KEYWORD: self.name}


def header_marks(tool: str, schema: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the marks in a tool's input schema.

    Raises:
        DeclarationError: a mark is at a place where it is not allowed.
    """
    # 2026-07-28 basic/transports/streamable-http, "Schema Extension"
    marks: dict[str, tuple[str, ...]] = {}
    reachable = list(_marked(schema, ()))
    if _count(schema) != len(reachable):
        raise DeclarationError(f"tool {tool!r}: {KEYWORD} may only mark properties of the arguments object itself")
    for name, path, described in reachable:
        where = ".".join(path)
        if not isinstance(name, str) or not re.fullmatch(_TOKEN, name):
            raise DeclarationError(f"tool {tool!r}: {KEYWORD} of {where} is not a part of a header's name")
        if described.get("type") not in _PRIMITIVE:
            raise DeclarationError(f"tool {tool!r}: {where} has {KEYWORD}, so it must be {', '.join(_PRIMITIVE)}")
        if name.lower() in {known.lower() for known in marks}:
            raise DeclarationError(f"tool {tool!r}: two parameters have the header {name}")
        marks[name] = path
    return marks


def _marked(
    schema: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[Any, tuple[str, ...], Mapping[str, Any]]]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, described in properties.items():
        if isinstance(described, Mapping):
            if KEYWORD in described:
                yield described[KEYWORD], (*path, name), described
            yield from _marked(described, (*path, name))


def _count(schema: Any) -> int:
    """Count the keyword anywhere in a schema; a property may have the same name."""
    if isinstance(schema, list | tuple):
        return sum(_count(item) for item in schema)
    if not isinstance(schema, Mapping):
        return 0
    found = 0
    for key, value in schema.items():
        if key == "properties" and isinstance(value, Mapping):
            found += sum(_count(item) for item in value.values())
        elif key in ("enum", "const", "default", "examples"):
            continue
        else:
            found += _count(value) + (key == KEYWORD)
    return found
