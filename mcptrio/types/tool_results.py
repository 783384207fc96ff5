"""What requests about tools give back."""

from __future__ import annotations

from typing import Any

from attrs import field

from .base import NULL_MATTERS, as_tuple, frozen
from .content import ContentBlock, TextContent
from .result import PaginatedResult, Result
from .tools import Tool


@frozen(kw_only=True)
class ListToolsResult(PaginatedResult):
    """One page of the tools a server has."""

    tools: tuple[Tool, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class CallToolResult(Result):
    """What a tool gave back; with `is_error`, a failure that the model can read."""

    content: tuple[ContentBlock, ...] = field(default=(), converter=as_tuple)
    structured_content: Any = field(default=None, metadata=NULL_MATTERS)
    is_error: bool | None = None

    @property
    def text(self) -> str:
        """All that is text in it; empty if there is none."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))
