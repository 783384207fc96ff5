"""Sampling: a server asks the client's model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from attrs import field, has

from .base import JsonObject, Params, Record, Role, as_optional_tuple, as_tuple, frozen, role_check
from .content import SamplingContent, TextContent
from .result import Result
from .tools import Tool

# Metadata of a field that is a tuple here and, while it holds one value, that value alone on the wire: an object was
# the only form until 2025-06-18, and every revision still reads it.
ONE_OR_MANY: Final = {"one_or_many": True}


def as_blocks(content: Any | Iterable[Any]) -> tuple[Any, ...]:
    """Let callers pass one content block where several may stand."""
    return (content,) if has(type(content)) else as_tuple(content)


check_role = role_check("use the system_prompt of the request")


@frozen(kw_only=True)
class ModelHint(Record):
    """A part of a model's name, as a wish."""

    name: str | None = None


@frozen(kw_only=True)
class ModelPreferences(Record):
    """What matters in choosing the model; the priorities go from 0 to 1."""

    hints: tuple[ModelHint, ...] | None = field(default=None, converter=as_optional_tuple)
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


@frozen(kw_only=True)
class ToolChoice(Record):
    """Whether the model may, must or must not use the tools it is given."""

    mode: Literal["auto", "required", "none"] | None = None


@frozen(kw_only=True)
class SamplingMessage(Record):
    """One message to or from a model."""

    role: Role = field(validator=check_role)
    content: tuple[SamplingContent, ...] = field(converter=as_blocks, metadata=ONE_OR_MANY)
    meta: JsonObject | None = None


@frozen(kw_only=True)
class CreateMessageParams(Params):
    """What to ask the model."""

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
    """What the model said, and why it stopped: `endTurn`, `stopSequence`, `maxTokens`, `toolUse` or its own word."""

    role: Role = field(validator=check_role)
    content: tuple[SamplingContent, ...] = field(converter=as_blocks, metadata=ONE_OR_MANY)
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """All that is text in it; empty if the model answered with something else."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))
