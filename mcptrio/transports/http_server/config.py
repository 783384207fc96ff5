"""Every setting of the HTTP endpoint, checked when built."""

from __future__ import annotations

from typing import Any, Final

from attrs import field, frozen

from mcptrio._wire.headers import parse_host, parse_origin
from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, JsonLimits
from mcptrio.errors import DeclarationError

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_WILDCARDS: Final = ("", "0.0.0.0", "::")
_POSITIVE: Final = (
    "max_body",
    "max_body_memory",
    "body_timeout",
    "heartbeat",
    "write_timeout",
    "busy_timeout",
    "max_calls",
    "max_listeners",
    "max_waiting",
    "max_calls_per_principal",
    "rate_burst",
    "max_sessions_per_principal",
    "outbox_events",
    "outbox_bytes",
)
_NOT_NEGATIVE: Final = ("stream_after", "retry_ms", "resume_grace", "drain_timeout")


def _optional_tuple(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, str):
        raise DeclarationError(f"a list of names is needed, got the text {value!r}; write ({value!r},)")
    return None if value is None else tuple(value)


@frozen(kw_only=True)
class HttpConfig:
    """How the endpoint behaves, and every bound of it. Times are seconds."""

    path: str = "/mcp"
    """Where the endpoint is; change it where another application has `/mcp` already."""
    host: str | None = "127.0.0.1"
    """The address that is listened on: it is allowed as a Host. Set by whatever listens, so seldom by hand."""

    # -- who may talk to it
    allowed_hosts: tuple[str, ...] | None = field(default=None, converter=_optional_tuple)
    """Names that clients may put into `Host`: `"example.org"` with any port, `"example.org:8443"` with this one,
    `"*"` for all. None: the names of the loopback interface and `host`."""
    allowed_origins: tuple[str, ...] | None = field(default=None, converter=_optional_tuple)
    """Web pages that may talk to it: `"https://app.example.org"`, with `":*"` behind for any port, `"*"` for all.
    Pages that come from the endpoint's own host and port may always. None: pages from the loopback interface too."""

    # -- requests
    max_body: int = 4 * 1024 * 1024
    """The largest body of a request, in bytes; a larger one is answered with 413. Raise it for tools that take
    files."""
    max_body_memory: int = 32 * 1024 * 1024
    """Bodies of more than 64 KiB that are read or answered at the same time, in bytes; others wait, unread. A larger
    one is let in alone."""
    body_timeout: float = 10
    """Seconds that a body may take to arrive; raise it for large bodies over slow lines."""
    json_limits: JsonLimits = DEFAULT_LIMITS
    """What JSON may hold: levels, values, messages of a batch; see `JsonLimits`."""
    max_calls: int = 1024
    """Requests being served at the same time, over all sessions; lower it to spare what the tools work with."""
    max_waiting: int = 1024
    """Requests that wait for one of these places, for `busy_timeout` and in turns of their clients; further ones
    are told at once to come back."""
    max_calls_per_principal: int = 256
    """Of all these places, how many one principal may have; raise it for a gateway that signs in once for many
    people. Anonymous clients are not counted."""
    rate: float | None = None
    """Requests that a client may send in a second, on average: by principal, else by session, else by address.
    None: no limit; set it where anybody may call."""
    rate_burst: float = 100
    """How many requests may come at once before `rate` counts."""
    max_listeners: int = 10_000
    """Streams of `subscriptions/listen` that are open at the same time; each is a connection, so no more than
    `max_connections` make sense."""
    max_sessions_per_principal: int = 200
    """Sessions of one principal at the same time; raise it for a gateway that signs in once for many people.
    Anonymous clients are not counted."""
    busy_timeout: float = 0.25
    """Seconds that a request waits for room, in its session and in the process, before it is told to come back;
    raise it to ride out peaks, at the price of slower refusals."""

    # -- answers
    stream_after: float = 0.05
    """A call that takes more seconds, or that sends anything before its answer, is answered with a stream; raise it
    for clients that are better at plain JSON."""
    json_only: bool = False
    """Never answer with a stream, for clients and proxies that cannot take one: what a call sends before its answer
    is lost, what it asks goes to the GET stream."""
    sse_only: bool = False
    """Answer every call with a stream, also a quick one, for clients that expect nothing else."""
    heartbeat: float = 15
    """A silent stream gets a comment after so many seconds; lower it where a proxy closes idle connections
    sooner."""
    retry_ms: int = 1000
    """Milliseconds that a client should wait before it comes back after a stream was closed on purpose."""
    resume_grace: float = 300
    """Seconds that a call goes on although its connection was lost; raise it for clients that are often offline,
    lower it to save work that nobody fetches."""
    write_timeout: float = 30
    """A client that does not take a piece for so many seconds is cut; it may resume."""
    outbox_events: int = 256
    """Events that may wait for a connection, as `outbox_bytes`."""
    outbox_bytes: int = 1024 * 1024
    """Bytes that may wait for a connection before handlers have to wait; also what is kept for a connection to
    come. Raise it together with `StoreLimits.stream_bytes`."""
    drain_timeout: float = 25
    """Seconds that running calls may take to finish when the server is told to stop; keep it below what the service
    manager grants before it kills."""

    # -- what else is served
    legacy_sse: bool = False
    """Also serve the HTTP+SSE pair of endpoints of 2024-11-05, for hosts that know nothing newer."""
    sse_path: str = "/sse"
    """Of `legacy_sse`: where the stream is opened."""
    messages_path: str = "/messages"
    """Of `legacy_sse`: where messages are sent."""
    health: bool = True
    """Serve /livez, /readyz and, if there is a source for it, /metrics; False where the application around it has
    such paths."""
    open_metrics: bool = False
    """Serve /metrics to everybody, although other requests need credentials. Without `auth=` it is open anyway."""

    def __attrs_post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise DeclarationError(f"HttpConfig.{name} must be positive, got {getattr(self, name)!r}")
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise DeclarationError(f"HttpConfig.{name} must not be negative, got {getattr(self, name)!r}")
        if self.rate is not None and not self.rate > 0:
            raise DeclarationError(f"HttpConfig.rate must be positive, or None for no limit, got {self.rate!r}")
        if self.json_only and self.sse_only:
            raise DeclarationError("HttpConfig.json_only and sse_only exclude each other")
        paths = [self.path]
        if self.legacy_sse:
            paths += [self.sse_path, self.messages_path]
        if self.health:
            paths += ["/livez", "/readyz", "/metrics"]
        for path in paths:
            if not path.startswith("/") or "?" in path or "#" in path:
                raise DeclarationError(f"HttpConfig: {path!r} is not a path; it begins with / and has no query")
        if len(set(paths)) != len(paths):
            raise DeclarationError(f"HttpConfig: two things are served at one path: {', '.join(paths)}")
        for entry in self.allowed_hosts or ():
            _check_entry("allowed_hosts", entry, entry, parse_host, "example.org or example.org:8443")
        for entry in self.allowed_origins or ():
            bare = entry.removesuffix(":*")
            _check_entry("allowed_origins", entry, bare, parse_origin, "https://example.org or https://example.org:*")

    @property
    def hosts(self) -> tuple[str, ...]:
        """What is allowed as a Host, with the defaults filled in."""
        if self.allowed_hosts is not None:
            return self.allowed_hosts
        bound = () if self.host is None or self.host in _WILDCARDS else (self.host,)
        return tuple(dict.fromkeys((*LOOPBACK, *bound)))


def _check_entry(name: str, entry: str, bare: str, parse: Any, example: str) -> None:
    if entry == "*":
        return
    try:
        # IPv6 addresses are written without brackets too, where no port follows.
        parse(f"[{bare}]" if bare.count(":") > 1 and not bare.startswith("[") and "/" not in bare else bare)
    except ValueError:
        raise DeclarationError(f"HttpConfig.{name}: {entry!r} is not of the form {example}") from None
