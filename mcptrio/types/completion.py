"""Completion: suggestions for the arguments of prompts and resource templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from attrs import field

from .base import Params, Record, as_tuple, frozen
from .result import Result


@frozen(kw_only=True)
class PromptReference(Record):
    """A prompt whose argument is completed."""

    type: Literal["ref/prompt"] = field(default="ref/prompt", init=False, repr=False)
    name: str
    title: str | None = None


@frozen(kw_only=True)
class ResourceTemplateReference(Record):
    """A resource template, or a resource, whose variable is completed."""

    type: Literal["ref/resource"] = field(default="ref/resource", init=False, repr=False)
    uri: str


CompletionReference: TypeAlias = PromptReference | ResourceTemplateReference
REFERENCE_BY_TYPE: Final[Mapping[str, type[Any]]] = {
    "ref/prompt": PromptReference,
    "ref/resource": ResourceTemplateReference,
}


@frozen(kw_only=True)
class CompletionArgument(Record):
    """The argument being typed, and what has been typed so far."""

    name: str
    value: str


@frozen(kw_only=True)
class CompletionContext(Record):
    """The arguments that are already filled in."""

    arguments: Mapping[str, str] | None = None


@frozen(kw_only=True)
class CompleteParams(Params):
    """What to complete."""

    ref: CompletionReference
    argument: CompletionArgument
    context: CompletionContext | None = None


@frozen(kw_only=True)
class Completion(Record):
    """Suggestions, best first; at most 100 of them."""

    values: tuple[str, ...] = field(converter=as_tuple)
    total: int | None = None
    has_more: bool | None = None


@frozen(kw_only=True)
class CompleteResult(Result):
    """The answer to `completion/complete`."""

    completion: Completion
