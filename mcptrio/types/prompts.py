"""Prompts: messages that a server prepares and a person picks."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field

from .base import (
    InputResponseParams,
    JsonObject,
    Params,
    Record,
    Role,
    as_optional_tuple,
    as_tuple,
    frozen,
    role_check,
)
from .content import ContentBlock
from .icons import Icon
from .result import PaginatedResult, Result

check_role = role_check("put the text in a user message or in the instructions of the server")


@frozen(kw_only=True)
class PromptArgument(Record):
    """A value that a prompt asks for."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


@frozen(kw_only=True)
class Prompt(Record):
    """A prompt or prompt template that a server offers."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: tuple[PromptArgument, ...] | None = field(default=None, converter=as_optional_tuple)
    icons: tuple[Icon, ...] | None = field(default=None, converter=as_optional_tuple)
    meta: JsonObject | None = None


@frozen(kw_only=True)
class PromptMessage(Record):
    """One message of a prompt."""

    role: Role = field(validator=check_role)
    content: ContentBlock


@frozen(kw_only=True)
class ListPromptsResult(PaginatedResult):
    """One page of the prompts a server has."""

    prompts: tuple[Prompt, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class GetPromptParams(InputResponseParams):
    """Which prompt to fill in, and with what; the values are always strings."""

    name: str
    arguments: Mapping[str, str] | None = None


@frozen(kw_only=True)
class GetPromptResult(Result):
    """A prompt, filled in."""

    description: str | None = None
    messages: tuple[PromptMessage, ...] = field(converter=as_tuple)


PromptListChangedParams = Params
