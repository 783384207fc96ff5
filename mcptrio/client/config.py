"""The settings of a client, checked when built."""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from mcptrio._settings import check_fields
from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, JsonLimits
from mcptrio.transports.retry import Reconnect
from mcptrio.types import Implementation


@frozen(kw_only=True)
class ClientConfig:
    """The limits and timeouts of a client."""

    info: Implementation
    """Name and version of the host, as servers see it; default: those of mcptrio, so set it for your application."""
    timeout: float = 60.0
    """Seconds without a sign of life (response or progress) after which a request fails; `call_tool(timeout=…)` sets it
    for one call."""
    total_timeout: float = 900.0
    """Seconds after which a request fails even if it reports progress; raise it for work that takes hours."""
    open_timeout: float = 60.0
    """Timeout of the handshake, in seconds; raise it for a server that is downloaded first (`npx`, `uvx`)."""
    probe_timeout: float = 5.0
    """Seconds to wait for an answer to `server/discover` on a pipe before `initialize` is tried; lower it for old
    servers that ignore unknown methods."""
    callback_timeout: float = 3600.0
    """Seconds that a callback (a user, a model) may take."""
    visit_timeout: float = 300.0
    """Seconds to wait for a user at a page that a request needs (-32042), before the request is repeated anyway."""
    max_rounds: int = 16
    """How often a server may ask for input within one request."""
    max_pages: int = 1000
    """Maximum pages of one list; a server with more is refused, which ends a list that repeats itself."""
    max_items: int = 100_000
    """Maximum entries of one list; a server with more is refused. Raise it for large catalogues."""
    json_limits: JsonLimits = DEFAULT_LIMITS
    """Limits of a message from the server: nesting depth, values, messages of a batch; see `JsonLimits`. Raise its
    `max_nodes` for tools that return large tables."""
    cache_entries: int = 256
    """Number of results that are cached while the server declares them fresh; 0 turns the cache off."""
    reconnect: Reconnect = field(factory=Reconnect)
    """The retry policy for calls, streams, subscriptions and connections; `Reconnect(tries=0)` turns it off."""
    check_results: bool = True
    """Check `structuredContent` against the tool's `outputSchema`; False for servers that violate their own schemas."""

    def __attrs_post_init__(self) -> None:
        check_fields(self, positive=_POSITIVE, not_negative=("max_rounds", "cache_entries"))


_POSITIVE: Final = (
    *("timeout", "total_timeout", "open_timeout", "probe_timeout", "callback_timeout", "visit_timeout"),
    *("max_pages", "max_items"),
)
