"""Tool arguments that are repeated in an HTTP header, so that proxies can route by them (`x-mcp-header`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from mcptrio._schema.header_marks import MARK, TOKEN, InvalidHeaderMark, find_marks
from mcptrio.errors import DeclarationError


class Header(Struct, frozen=True):
    """A mark on a tool's parameter: `region: Annotated[str, Header("Region")]` is repeated in `Mcp-Param-Region`."""

    name: str

    def __post_init__(self) -> None:
        if not TOKEN.fullmatch(self.name):
            raise DeclarationError(f"{self.name!r} cannot be a part of a header's name; use letters, digits and dashes")

    def __mcp_schema__(self) -> dict[str, Any]:
        return {MARK: self.name}


def header_marks(tool: str, schema: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the marks in a tool's input schema, each with the path of its argument.

    Raises:
        DeclarationError: a mark is malformed, or at a place where it is not allowed.
    """
    try:
        return find_marks(schema)
    except InvalidHeaderMark as error:
        raise DeclarationError(f"tool {tool!r}: {error}") from None
