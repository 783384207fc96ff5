"""Completion: suggestions for the arguments of prompts and resource templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from attrs import field

from ._fields import as_tuple, frozen
from .base import Params, Record
from .results import Result


@frozen(kw_only=True)
class PromptReference(Record):
    """The prompt whose argument is completed."""

    type: Literal["ref/prompt"] = field(default="ref/prompt", init=False, repr=False)
    name: str
    title: str | None = None


@frozen(kw_only=True)
class ResourceTemplateReference(Record):
    """The resource or resource template whose variable is completed."""

    type: Literal["ref/resource"] = field(default="ref/resource", init=False, repr=False)
    uri: str


CompletionReference: TypeAlias = PromptReference | ResourceTemplateReference
REFERENCE_BY_TYPE: Final[Mapping[str, type[Any]]] = {
    "ref/prompt": PromptReference,
    "ref/resource": ResourceTemplateReference,
}


@frozen(kw_only=True)
class CompletionArgument(Record):
    """The argument to complete, and the text typed so far."""

    name: str
    value: str


@frozen(kw_only=True)
class CompletionContext(Record):
    """The arguments that already have values."""

    arguments: Mapping[str, str] | None = None


@frozen(kw_only=True)
class CompleteParams(Params):
    """The params of `completion/complete`."""

    ref: CompletionReference
    argument: CompletionArgument
    context: CompletionContext | None = None


@frozen(kw_only=True)
class Completion(Record):
    """At most 100 suggestions, best first."""

    values: tuple[str, ...] = field(converter=as_tuple)
    total: int | None = None
    has_more: bool | None = None


@frozen(kw_only=True)
class CompleteResult(Result):
    """The result of `completion/complete`."""

    completion: Completion
