"""A client's description of itself: its name, its capabilities, and the params of `initialize`.

In capabilities, an empty object means that the feature is supported, an absent one that it is not.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field

from ._fields import as_optional_tuple, frozen
from .base import Icon, JsonObject, Params, Record


@frozen(kw_only=True)
class Implementation(Record):
    """The name and version of a client or server."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: tuple[Icon, ...] | None = field(default=None, converter=as_optional_tuple)


# -- capabilities of a client


@frozen(kw_only=True)
class RootsCapability(Record):
    """The client has roots, and may notify of changes."""

    list_changed: bool | None = None


@frozen(kw_only=True)
class SamplingCapability(Record):
    """The client lets the server use its model."""

    context: JsonObject | None = None
    tools: JsonObject | None = None


@frozen(kw_only=True)
class ElicitationCapability(Record):
    """The client lets the server ask the user; with neither mode declared, with a form."""

    form: JsonObject | None = None
    url: JsonObject | None = None


@frozen(kw_only=True)
class ClientCapabilities(Record):
    """The capabilities of a client. `tasks` is the form of 2025-11-25; later, tasks are one of the `extensions`."""

    experimental: Mapping[str, JsonObject] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: JsonObject | None = None
    extensions: Mapping[str, JsonObject] | None = None


# -- initialize


@frozen(kw_only=True)
class InitializeParams(Params):
    """The client's side of opening a stateful session."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


InitializedParams = Params
DiscoverParams = Params
