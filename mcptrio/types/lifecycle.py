"""How two sides get to know each other: `initialize` and `server/discover`."""

from __future__ import annotations

from attrs import field

from .base import CacheableResult, Params, Record, Result, as_optional_tuple, as_tuple, frozen
from .capabilities import ClientCapabilities, ServerCapabilities
from .marks import Icon


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


@frozen(kw_only=True)
class InitializeResult(Result):
    """What a server says of itself when a stateful session is opened."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


@frozen(kw_only=True)
class DiscoverResult(CacheableResult):
    """What a server says of itself to a client that opens no session."""

    supported_versions: tuple[str, ...] = field(converter=as_tuple)
    capabilities: ServerCapabilities
    instructions: str | None = None


DiscoverParams = Params
InitializedParams = Params
