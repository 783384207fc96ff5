"""The settings of the HTTP server, endpoint and listener, validated on construction."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from attrs import field, frozen

from mcptrio._settings import as_path, as_tuple, check_fields
from mcptrio._wire.headers import parse_host, parse_origin
from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, JsonLimits
from mcptrio.errors import DeclarationError

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_WILDCARDS: Final = ("", "0.0.0.0", "::")
_HEADER_NAME: Final = re.compile(r"[!#$%&'+\-.^_`|~0-9A-Za-z]+")  # without *: each header is named
_POSITIVE: Final = (
    "max_body",
    "max_body_memory",
    "body_timeout",
    "min_body_rate",
    "heartbeat",
    "write_timeout",
    "max_calls",
    "max_listeners",
    "max_waiting",
    "max_calls_per_principal",
    "rate_burst",
    "max_sessions_per_principal",
    "outbox_events",
    "outbox_bytes",
    "max_outbox_memory",
    "backlog",
    "header_timeout",
    "keep_alive_timeout",
    "keep_alive_max_requests",
    "max_header_bytes",
    "max_headers",
    "max_connections",
    "handshake_timeout",
    "websocket_max_message",
    "websocket_ping_interval",
)
_NOT_NEGATIVE: Final = ("stream_after", "retry_ms", "resume_grace", "drain_timeout")
_FINITE: Final = ("port", "unix_mode", "backlog", "retry_ms", "min_body_rate")


def _optional_tuple(value: Iterable[str] | None) -> tuple[str, ...] | None:
    if isinstance(value, str):
        raise DeclarationError(f"a list of names is needed, got the text {value!r}; write ({value!r},)")
    names: tuple[str, ...] | None = as_tuple(value)
    return names


def _path(value: str | os.PathLike[str] | None) -> str | None:
    path: str | None = as_path(value)
    return path


def _names(value: Iterable[str]) -> tuple[str, ...]:
    names = _optional_tuple(value)
    return () if names is None else names


@frozen(kw_only=True)
class HttpConfig:
    """The settings of the HTTP server. Times are in seconds."""

    path: str = "/mcp"
    """The path of the endpoint, with or without a trailing slash; change it if another application has `/mcp`."""
    engine: Literal["hypercorn", "direct"] = "hypercorn"
    """The HTTP engine: `"hypercorn"` serves a standard ASGI application; `"direct"` answers plain requests for the
    endpoint without ASGI, which costs less, and hands everything else to Hypercorn."""

    # -- addresses
    host: str | None = "127.0.0.1"
    """The address to listen on; it is allowed as a Host. `"0.0.0.0"` means all addresses of IPv4, None all addresses
    of IPv4 and IPv6."""
    port: int = 8000
    """The port to listen on; 0 takes any free port, which `nursery.start` returns."""
    unix_path: str | None = field(default=None, converter=_path)
    """A Unix socket to listen on instead of host and port, for a proxy on the same machine."""
    unix_mode: int = 0o600
    """The permissions of that socket; 0o660 if the proxy runs as another user of the same group."""
    reuse_port: bool = False
    """Let several processes listen on the same port; each serves only the sessions that it opened."""
    backlog: int = 1024
    """Connections that may wait to be accepted; the system has a limit of its own (`somaxconn`)."""

    # -- connections
    max_connections: int = 10_000
    """Maximum open connections; further ones are refused. The process needs as many file descriptors (`ulimit -n`)."""
    header_timeout: float = 5
    """Seconds for the whole head of a request; protects against clients that send slowly to hold a connection."""
    keep_alive_timeout: float = 75
    """Seconds that a connection may be idle between two requests; set it higher than that of a proxy in front."""
    keep_alive_max_requests: int = 100_000
    """Requests on one connection before it is closed; lower it to spread clients over new processes."""
    write_timeout: float = 30
    """Seconds that a client may take to accept 64 KiB; a slower one is disconnected and may resume its stream."""
    max_header_bytes: int = 16 * 1024
    """Maximum size of the head of a request in bytes; raise it for long tokens or cookies."""
    max_headers: int = 100
    """Maximum header fields of a request."""
    websocket_max_message: int = 4 * 1024 * 1024
    """Maximum size of one WebSocket message in bytes; raise it together with `max_body`."""
    websocket_ping_interval: float | None = 20
    """Seconds between two WebSocket pings, which keep the connection open through proxies. A connection that leaves one
    unanswered for as long is closed (1011). None turns pings off."""

    # -- TLS
    certfile: str | None = field(default=None, converter=_path)
    """A certificate (PEM file) with its chain, which enables TLS. Leave it out behind a proxy that terminates TLS."""
    keyfile: str | None = field(default=None, converter=_path)
    """The certificate's key (PEM file); None: it is in the certificate's file."""
    keyfile_password: str | None = field(default=None, repr=False)
    """The password of the key, if it is encrypted."""
    client_ca: str | None = field(default=None, converter=_path)
    """A CA bundle (PEM file); clients need a certificate of it (mutual TLS)."""
    handshake_timeout: float = 10
    """Timeout of the TLS handshake in seconds."""

    # -- Host and Origin
    allowed_hosts: tuple[str, ...] | None = field(default=None, converter=_optional_tuple)
    """Allowed `Host` headers: `"example.org"` with any port, `"example.org:8443"` with this one, `"*"` for all. None:
    the names of the loopback interface and `host`."""
    allowed_origins: tuple[str, ...] | None = field(default=None, converter=_optional_tuple)
    """Allowed `Origin` headers of web pages: `"https://app.example.org"`, with `":*"` appended for any port, `"*"` for
    all. Pages of these origins may also read responses (CORS). Pages from the endpoint's own host and port are always
    allowed. None: requests of pages from the loopback interface too, which can read nothing."""
    allowed_headers: tuple[str, ...] = field(default=(), converter=_names)
    """Request headers that pages of `allowed_origins` may send besides those of MCP and `Authorization`, for an
    `auth=` function that reads a header of its own: `("X-Api-Key",)`."""

    # -- drafts of the specification
    server_card: str | None = None
    """The public URL of the endpoint, such as `"https://mcp.example.org/mcp"`, which turns on documents for discovery:
    a server card at `path` + `/server-card` and an AI catalog at `/.well-known/ai-catalog.json` (SEP-2127, a draft).
    Everyone may read them, without credentials. None: off."""

    # -- logging
    access_log: bool = False
    """Emit `RequestServed` for every response, which `LogListener` writes as a line: client, method, path, status,
    seconds."""

    # -- requests
    max_body: int = 4 * 1024 * 1024
    """Maximum size of a request body in bytes; a larger one is refused with 413. Raise it for tools that take files."""
    max_body_memory: int = 16 * 1024 * 1024
    """Maximum bytes of all bodies and WebSocket messages over 64 KiB that are read or processed at the same time;
    others wait, unread. One that is larger than this is admitted alone. A WebSocket message counts as
    `websocket_max_message` while it arrives; its socket is closed (1013) if it gets no memory within `body_timeout`."""
    body_timeout: float = 10
    """Seconds for receiving a body, or a WebSocket message over 64 KiB; raise it for slow connections."""
    min_body_rate: int = 64 * 1024
    """Bytes per second of a body or a WebSocket message over 64 KiB, on average. A slower one holds memory that others
    may wait for: the body is refused with 408, the socket is closed (1008)."""
    json_limits: JsonLimits = DEFAULT_LIMITS
    """Limits of JSON: nesting depth, values, messages of a batch; see `JsonLimits`."""
    max_calls: int = 1024
    """Maximum concurrent requests, over all sessions; lower it to protect the resources that tools use."""
    max_waiting: int = 1024
    """Requests that may wait for a slot of `max_calls`, for `Limits.busy_timeout` and in turns of their clients;
    further ones are refused at once with `Retry-After`."""
    max_calls_per_principal: int = 256
    """Slots of `max_calls` that one principal may hold; raise it for a gateway that signs in once for many users.
    Anonymous clients are not counted."""
    rate: float | None = None
    """Average requests per second of one client, counted by principal, else by address. None: no limit; set it if the
    endpoint is public."""
    rate_burst: float = 100
    """Requests that a client may send at once before `rate` applies."""
    max_listeners: int = 10_000
    """Maximum concurrent `subscriptions/listen` streams; each is a connection, so keep it at or below
    `max_connections`. One client gets at most three quarters of them, because they stay open for long."""
    max_sessions_per_principal: int = 200
    """Maximum sessions of one principal; raise it for a gateway that signs in once for many users. Anonymous clients
    are not counted."""

    # -- responses
    stream_after: float = 0.05
    """Seconds after which a running call is answered with a stream; a call that sends a message before its response
    becomes one at once. Raise it for clients that prefer plain JSON."""
    json_only: bool = False
    """Never answer with a stream, for clients and proxies without support for it: notifications of a call are lost, and
    its requests go to the GET stream."""
    sse_only: bool = False
    """Answer every call with a stream, even a quick one, for clients that support nothing else."""
    heartbeat: float = 15
    """Seconds after which a silent stream gets a comment; lower it if a proxy closes idle connections sooner."""
    retry_ms: int = 1000
    """Milliseconds that a client should wait before it reconnects after the server closed a stream on purpose."""
    resume_grace: float = 300
    """Seconds that a call continues after its connection was lost; raise it for clients that are often offline, lower
    it to save work whose result is never fetched."""
    outbox_events: int = 256
    """Events that may wait for a connection; see `outbox_bytes`."""
    outbox_bytes: int = 1024 * 1024
    """Bytes that may wait for a connection before handlers block; also the amount kept for a later connection. Raise it
    together with `StoreLimits.stream_bytes`."""
    max_outbox_memory: int = 16 * 1024 * 1024
    """Bytes that may wait for all connections together, in the server's memory. At three quarters of it the
    notifications of handlers wait. Beyond it the client that has most unread loses the connection that has not moved
    for longest, if that is 5 s. Clients that read may take more together, and a single one three times as much; it gets
    an error in place of a further answer. Raise it for large answers to clients that call many tools at the same
    time."""
    drain_timeout: float = 25
    """Seconds that running calls may take to finish at shutdown; keep it below the grace period of the service
    manager."""

    # -- other paths
    legacy_sse: bool = False
    """Also serve the HTTP+SSE transport of 2024-11-05, for hosts that support nothing newer."""
    sse_path: str = "/sse"
    """Path of the event stream of `legacy_sse`."""
    messages_path: str = "/messages"
    """Path for the messages of `legacy_sse`."""
    health: bool = True
    """Serve /livez, /readyz and, if there is a source for it, /metrics; False if the surrounding application has such
    paths."""
    open_metrics: bool = False
    """Serve /metrics without credentials although other requests need them. Without `auth=` it is open anyway."""

    def __attrs_post_init__(self) -> None:
        check_fields(self, positive=_POSITIVE, not_negative=_NOT_NEGATIVE, finite=_FINITE)
        if self.rate is not None and not self.rate > 0:
            raise DeclarationError(f"HttpConfig.rate must be positive, or None for no limit, got {self.rate!r}")
        if not 0 <= self.unix_mode <= 0o777:  # 660 instead of 0o660
            got = f"got {self.unix_mode!r}; write 0o660, or 432 in a variable"
            raise DeclarationError(f"HttpConfig.unix_mode must be between 0 and 0o777, {got}")
        if self.json_only and self.sse_only:
            raise DeclarationError("HttpConfig.json_only and sse_only exclude each other")
        self._check_paths()
        self._check_listening()

    def _check_paths(self) -> None:
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
        if self.server_card is not None:
            url = urlsplit(self.server_card)
            if not url.hostname or (url.scheme != "https" and not (url.scheme == "http" and url.hostname in LOOPBACK)):
                raise DeclarationError(
                    f"HttpConfig.server_card is the public URL of the endpoint, with https: "
                    f"https://mcp.example.org{self.path}, not {self.server_card!r:.200}"
                )
        for name in self.allowed_headers:
            if not _HEADER_NAME.fullmatch(name):
                raise DeclarationError(f"HttpConfig.allowed_headers: {name!r} is not the name of a header: X-Api-Key")

    def _check_listening(self) -> None:
        if self.port not in range(65536):
            raise DeclarationError(f"HttpConfig.port must be a number from 0 to 65535, got {self.port!r}")
        if self.max_header_bytes < 1024:
            raise DeclarationError("HttpConfig.max_header_bytes below 1024 would refuse ordinary requests")
        if self.unix_path == "":
            raise DeclarationError("HttpConfig.unix_path is empty; leave it out to listen on host and port")
        if self.certfile is None and (self.keyfile is not None or self.keyfile_password is not None):
            raise DeclarationError("HttpConfig.keyfile needs certfile: both make TLS")
        if self.certfile is None and self.client_ca is not None:
            raise DeclarationError("HttpConfig.client_ca needs certfile: without TLS there are no certificates")

    def served_path(self, path: str) -> str:
        """Return the configured path that a request's path stands for, ignoring a trailing slash."""
        served = (self.path, self.sse_path, self.messages_path)
        other = path[:-1] if path.endswith("/") else f"{path}/"
        return other if path not in served and other in served else path

    @property
    def hosts(self) -> tuple[str, ...]:
        """The allowed `Host` values, with the defaults filled in."""
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
