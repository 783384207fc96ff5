"""What a server says of itself."""

from __future__ import annotations

from attrs import field

from .base import as_tuple, frozen
from .lifecycle import Implementation
from .result import CacheableResult, Result
from .server_capabilities import ServerCapabilities


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
