"""The settings of a client, checked when built."""

from __future__ import annotations

import random

from attrs import field, frozen, validators

from mcptrio.types import Implementation, LoggingLevel

positive = validators.gt(0.0)


@frozen(kw_only=True)
class Reconnect:
    """When and how a lost server is looked for again.

    A call is repeated by itself only if it surely never arrived or cannot do harm: lists and reads, and tools that the
    server declares read-only or idempotent.
    """

    tries: int = field(default=5, validator=validators.ge(0))
    """Attempts in a row to open the connection again, and to repeat a call; 0: what is lost stays lost."""
    first: float = field(default=0.2, validator=positive)
    """The pause before the second attempt in seconds, doubled for each further one, with jitter."""
    most: float = field(default=30.0, validator=positive)
    """The longest pause between two attempts, in seconds."""

    def pause(self, attempt: int) -> float:
        """Seconds to wait before attempt number `attempt` (the first attempt is number 0 and waits for nothing)."""
        if attempt <= 0:
            return 0.0
        most = min(self.first * 2.0 ** min(attempt - 1, 16), self.most)
        return random.uniform(most / 2, most)


NEVER = Reconnect(tries=0)


@frozen(kw_only=True)
class ClientConfig:
    """Every limit of a client."""

    info: Implementation
    """Name and version that servers are told of the client; without it those of mcptrio, so a host names itself."""
    timeout: float = field(default=60.0, validator=positive)
    """A request that shows no sign of life (answer or progress) for so many seconds is given up;
    `call_tool(timeout=…)` sets it for one call."""
    total_timeout: float = field(default=900.0, validator=positive)
    """A request is given up after so many seconds, whatever progress it reports; raise it for work of hours."""
    open_timeout: float = field(default=60.0, validator=positive)
    """Seconds that a server may take to introduce itself; raise it for one that downloads itself first (`npx`,
    `uvx`)."""
    probe_timeout: float = field(default=5.0, validator=positive)
    """A server on a pipe that says nothing to the newest form of introduction for so many seconds is tried with the
    older; lower it for old servers that ignore what they do not know."""
    callback_timeout: float = field(default=3600.0, validator=positive)
    """Seconds that a callback (a person, a model) may take."""
    visit_timeout: float = field(default=300.0, validator=positive)
    """Seconds that a person may be at a page that a request needs (-32042) before the request is made once more
    anyway."""
    max_rounds: int = field(default=16, validator=validators.ge(0))
    """So often a server may ask back within one request."""
    max_pages: int = field(default=1000, validator=validators.ge(1))
    """Pages of one list that are fetched; a server with more is refused, so that one which repeats itself ends."""
    max_items: int = field(default=100_000, validator=validators.ge(1))
    """Entries of one list that are taken; a server with more is refused. Raise it for large catalogues."""
    cache_entries: int = field(default=256, validator=validators.ge(0))
    """Results that are kept for as long as the server says they are fresh; 0: none."""
    log_level: LoggingLevel | None = None
    """The least severe log messages to ask for; None: `info` if there is a callback for them."""
    reconnect: Reconnect = field(factory=Reconnect)
    """How a lost server is looked for again; `Reconnect(tries=0)` leaves it lost."""
    check_results: bool = True
    """Check `structuredContent` against the tool's `outputSchema`; False for servers that are careless with it."""
