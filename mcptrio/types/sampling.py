"""Sampling: a server requests a completion from the client's model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from attrs import field

from ._fields import NULL_MATTERS, ONE_OR_MANY, as_blocks, as_optional_tuple, as_tuple, check_sampling_role, frozen
from .base import JsonObject, Params, Record, Role
from .content import AudioContent, ContentBlock, ImageContent, TextContent, UnknownContent
from .results import Result
from .tools import Tool


@frozen(kw_only=True)
class ToolUseContent(Record):
    """A tool call that the model requests in a sampling message."""

    type: Literal["tool_use"] = field(default="tool_use", init=False, repr=False)
    id: str
    name: str
    input: JsonObject
    meta: JsonObject | None = None


@frozen(kw_only=True)
class ToolResultContent(Record):
    """The result of the tool call of a `ToolUseContent`."""

    type: Literal["tool_result"] = field(default="tool_result", init=False, repr=False)
    tool_use_id: str
    content: tuple[ContentBlock, ...] = field(default=(), converter=as_tuple)
    structured_content: Any = field(default=None, metadata=NULL_MATTERS)
    is_error: bool | None = None
    meta: JsonObject | None = None


SamplingContent: TypeAlias = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent
)  # fmt: skip
SAMPLING_CONTENT_BY_TYPE: Final[Mapping[str, type[Any]]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "tool_use": ToolUseContent,
    "tool_result": ToolResultContent,
}


@frozen(kw_only=True)
class ModelHint(Record):
    """A preferred model, by a part of its name."""

    name: str | None = None


@frozen(kw_only=True)
class ModelPreferences(Record):
    """Preferences for the choice of the model; priorities range from 0 to 1."""

    hints: tuple[ModelHint, ...] | None = field(default=None, converter=as_optional_tuple)
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


@frozen(kw_only=True)
class ToolChoice(Record):
    """Whether the model may, must or must not use the given tools."""

    mode: Literal["auto", "required", "none"] | None = None


@frozen(kw_only=True)
class SamplingMessage(Record):
    """One message to or from a model."""

    role: Role = field(validator=check_sampling_role)
    content: tuple[SamplingContent, ...] = field(converter=as_blocks, metadata=ONE_OR_MANY)
    meta: JsonObject | None = None


@frozen(kw_only=True)
class CreateMessageParams(Params):
    """The params of `sampling/createMessage`."""

    messages: tuple[SamplingMessage, ...] = field(converter=as_tuple)
    max_tokens: int
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: float | None = None
    stop_sequences: tuple[str, ...] | None = field(default=None, converter=as_optional_tuple)
    metadata: JsonObject | None = None
    tools: tuple[Tool, ...] | None = field(default=None, converter=as_optional_tuple)
    tool_choice: ToolChoice | None = None
    task: JsonObject | None = None


@frozen(kw_only=True)
class CreateMessageResult(Result):
    """The answer of the model; `stop_reason` is `endTurn`, `stopSequence`, `maxTokens`, `toolUse` or its own word."""

    role: Role = field(validator=check_sampling_role)
    content: tuple[SamplingContent, ...] = field(converter=as_blocks, metadata=ONE_OR_MANY)
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined with newlines; empty if there are none."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))
