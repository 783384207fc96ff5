"""What a client declares that it can do. An empty object says yes, an absent one says no."""

from __future__ import annotations

from collections.abc import Mapping

from .base import JsonObject, Record, frozen


@frozen(kw_only=True)
class RootsCapability(Record):
    """The client has roots, and may tell when they change."""

    list_changed: bool | None = None


@frozen(kw_only=True)
class SamplingCapability(Record):
    """The client lets the server ask its model."""

    context: JsonObject | None = None
    tools: JsonObject | None = None


@frozen(kw_only=True)
class ElicitationCapability(Record):
    """The client lets the server ask the person; with neither mode named, by a form."""

    form: JsonObject | None = None
    url: JsonObject | None = None


@frozen(kw_only=True)
class ClientCapabilities(Record):
    """What a client can do. `tasks` is the shape of 2025-11-25; later, tasks are one of the `extensions`."""

    experimental: Mapping[str, JsonObject] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: JsonObject | None = None
    extensions: Mapping[str, JsonObject] | None = None
