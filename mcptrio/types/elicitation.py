"""Elicitation: a server asks the user, with a form or by opening a URL."""

from __future__ import annotations

from typing import Literal

from attrs import field

from ._fields import as_tuple, frozen
from .base import JsonObject, Params, Record
from .results import Result


@frozen(kw_only=True)
class ElicitParams(Params):
    """The params of `elicitation/create`.

    A form (`mode` absent or `"form"`) has a `requested_schema`, an object with properties of primitive types.
    `mode="url"` has a `url` and, in the revision that notifies of completion, an `elicitation_id`.
    """

    message: str
    mode: Literal["form", "url"] | None = None
    requested_schema: JsonObject | None = None
    url: str | None = None
    elicitation_id: str | None = None
    task: JsonObject | None = None

    def __attrs_post_init__(self) -> None:
        if self.mode == "url":
            if self.url is None:
                raise ValueError("an elicitation in url mode needs a url")
        elif self.requested_schema is None:
            raise ValueError("an elicitation in form mode needs a requested schema")


@frozen(kw_only=True)
class ElicitResult(Result):
    """The action of the user; `content` is present after an accepted form."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject | None = None


@frozen(kw_only=True)
class ElicitationCompleteParams(Params):
    """The elicitation in url mode that is complete."""

    elicitation_id: str


@frozen(kw_only=True)
class UrlElicitationRequiredData(Record):
    """The error data with the URLs that the user must visit before the request can succeed."""

    elicitations: tuple[ElicitParams, ...] = field(converter=as_tuple)
