"""How two sides get to know each other: `initialize` and `server/discover`."""

from __future__ import annotations

from attrs import field

from .base import Params, Record, as_optional_tuple, frozen
from .client_capabilities import ClientCapabilities
from .icons import Icon


@frozen(kw_only=True)
class Implementation(Record):
    """The name and version of a client or server."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: tuple[Icon, ...] | None = field(default=None, converter=as_optional_tuple)


@frozen(kw_only=True)
class InitializeParams(Params):
    """What a client says of itself when it opens a stateful session."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


DiscoverParams = Params
InitializedParams = Params
