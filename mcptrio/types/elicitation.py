"""Elicitation: a server asks the person, by a form or by sending them to a URL."""

from __future__ import annotations

from typing import Literal

from .base import JsonObject, Params, frozen
from .result import Result


@frozen(kw_only=True)
class ElicitParams(Params):
    """What to ask the person.

    A form (`mode` absent or `"form"`) has a `requested_schema`, an object with properties of primitive types;
    `mode="url"` has a `url`, and, in the revision that tells when it is done, an `elicitation_id`.
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
    """What the person did; `content` is there when they accepted a form."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject | None = None


@frozen(kw_only=True)
class ElicitationCompleteParams(Params):
    """Which elicitation in url mode is done."""

    elicitation_id: str
