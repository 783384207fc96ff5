"""Tools: functions of a server that a model may call."""

from __future__ import annotations

from typing import Any, Literal

from attrs import field

from ._fields import NULL_MATTERS, as_optional_tuple, as_schema, as_tuple, frozen
from .base import Icon, JsonObject, PaginatedParams, Params, Record
from .content import ContentBlock, TextContent
from .results import PaginatedResult, Result


@frozen(kw_only=True)
class ToolAnnotations(Record):
    """Hints about the behaviour of a tool; a client must not rely on them unless it trusts the server."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


@frozen(kw_only=True)
class ToolExecution(Record):
    """How a tool may be executed."""

    task_support: Literal["forbidden", "optional", "required"] | None = None


@frozen(kw_only=True)
class Tool(Record):
    """A tool as `tools/list` describes it."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: JsonObject = field(converter=as_schema)
    output_schema: JsonObject | None = field(default=None, converter=as_schema)
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None
    icons: tuple[Icon, ...] | None = field(default=None, converter=as_optional_tuple)
    meta: JsonObject | None = None


ListToolsParams = PaginatedParams


@frozen(kw_only=True)
class ListToolsResult(PaginatedResult):
    """One page of the tools of a server."""

    tools: tuple[Tool, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class CallToolResult(Result):
    """The result of a tool; with `is_error`, an error that the model can read."""

    content: tuple[ContentBlock, ...] = field(default=(), converter=as_tuple)
    structured_content: Any = field(default=None, metadata=NULL_MATTERS)
    is_error: bool | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined with newlines; empty if there are none."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))


ToolListChangedParams = Params
