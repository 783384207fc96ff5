"""Prompts: messages that a server prepares and a user picks."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field

from ._fields import as_optional_tuple, as_tuple, check_prompt_role, frozen
from .base import Icon, InputResponseParams, JsonObject, PaginatedParams, Params, Record, Role
from .content import ContentBlock
from .results import PaginatedResult, Result


@frozen(kw_only=True)
class PromptArgument(Record):
    """An argument of a prompt."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


@frozen(kw_only=True)
class Prompt(Record):
    """A prompt or prompt template as `prompts/list` describes it."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: tuple[PromptArgument, ...] | None = field(default=None, converter=as_optional_tuple)
    icons: tuple[Icon, ...] | None = field(default=None, converter=as_optional_tuple)
    meta: JsonObject | None = None


ListPromptsParams = PaginatedParams


@frozen(kw_only=True)
class ListPromptsResult(PaginatedResult):
    """One page of the prompts of a server."""

    prompts: tuple[Prompt, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class PromptMessage(Record):
    """One message of a prompt."""

    role: Role = field(validator=check_prompt_role)
    content: ContentBlock


@frozen(kw_only=True)
class GetPromptParams(InputResponseParams):
    """The prompt to get, and its arguments, whose values are always strings."""

    name: str
    arguments: Mapping[str, str] | None = None


@frozen(kw_only=True)
class GetPromptResult(Result):
    """The messages of a prompt for the given arguments."""

    description: str | None = None
    messages: tuple[PromptMessage, ...] = field(converter=as_tuple)


PromptListChangedParams = Params
