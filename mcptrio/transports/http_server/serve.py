"""The listener's settings, what Hypercorn is told of them, TLS, and the order in which serving ends.

Nothing here imports Hypercorn until it is needed, so settings can be built without paying for a server.

Second best: a user who runs `hypercorn -k trio module:app` gets Hypercorn's accept loop and process runner. Importing a
module that calls `install_guard()` puts the connection guard, the framing checks and the write deadline into it. What
cannot be had that way: the connection cap, the back-off when files run out, certificates reloaded while running, the
drain order (the app learns of a shutdown only after every connection has ended), and a fleet of workers that survives
the death of one of them.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal, Protocol

import trio
from attrs import frozen

from mcptrio.errors import DeclarationError

from .framing import FramingLimits

if TYPE_CHECKING:
    from hypercorn.config import Config

_POSITIVE: Final = (
    "backlog",
    "header_timeout",
    "write_timeout",
    "keep_alive_timeout",
    "keep_alive_max_requests",
    "max_header_bytes",
    "max_headers",
    "max_body",
    "max_connections",
    "handshake_timeout",
    "websocket_max_message",
    "websocket_ping_interval",
)


@frozen(kw_only=True)
class ListenerConfig:
    """Where to listen, and every bound on a connection. Times are seconds. Checked when built."""

    host: str | None = "127.0.0.1"
    """The address to listen on; `"0.0.0.0"` for every one of IPv4, None for every one of both kinds."""
    port: int = 8000
    """The port to listen on; 0 takes any free one, and what was taken is told by `nursery.start`."""
    unix_path: str | None = None
    """A Unix socket to listen on instead of host and port, for a proxy on the same machine."""
    unix_mode: int = 0o600
    """Who may use that socket; 0o660 if the proxy runs as another user of the same group."""
    reuse_port: bool = False
    """Let several processes listen on the same port; each serves only the sessions that it opened."""
    backlog: int = 1024
    """Connections that wait to be accepted; the system has a limit of its own (`somaxconn`)."""
    header_timeout: float = 5
    """Seconds for the whole head of a request; against clients that hold a connection by sending slowly."""
    write_timeout: float = 30
    """Seconds that a client may take to accept 64 KiB; one that is slower is cut."""
    keep_alive_timeout: float = 75
    """Seconds that a connection may be idle between two requests; more than the proxy in front keeps its own."""
    keep_alive_max_requests: int = 100_000
    """Requests on one connection, which is closed then; lower it to spread clients over new processes."""
    max_header_bytes: int = 16 * 1024
    """Bytes of the whole head of a request; raise it for long tokens or cookies."""
    max_headers: int = 100
    """Header fields of a request."""
    max_body: int = 4 * 1024 * 1024
    """Bytes that a request may declare as its length; set it through `HttpConfig`, which counts what really
    comes."""
    max_connections: int = 10_000
    """Open connections; further ones are turned away. The process needs as many file descriptors (`ulimit -n`)."""
    certfile: str | None = None
    """A certificate (PEM file) with its chain: then TLS is spoken. Leave it out behind a proxy that speaks TLS."""
    keyfile: str | None = None
    """The certificate's key (PEM file); None: it is in the certificate's file."""
    keyfile_password: str | None = None
    """What the key is encrypted with, if it is."""
    client_ca: str | None = None
    """Authorities (PEM file), of one of which clients need a certificate: mutual TLS."""
    handshake_timeout: float = 10
    """Seconds for the TLS handshake."""
    websocket_max_message: int = 4 * 1024 * 1024
    """Bytes of one message on a WebSocket; raise it together with `max_body`."""
    websocket_ping_interval: float | None = 20
    """Seconds between two pings on a WebSocket, which keep it open through proxies; None: no pings."""
    drain_timeout: float = 25
    """Seconds that open connections may take to end when the server is told to stop."""
    lane: Literal["express", "hypercorn"] = "express"
    """What answers plain requests for the endpoint: `"express"`, the connection itself, which is cheaper and hands
    everything else to Hypercorn; or `"hypercorn"`, which sends them through ASGI too."""

    def __attrs_post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise DeclarationError(f"ListenerConfig.{name} must be positive, got {value!r}")
        if self.port not in range(65536):  # a text is not either
            raise DeclarationError(f"ListenerConfig.port must be a number from 0 to 65535, got {self.port!r}")
        if self.lane not in ("hypercorn", "express"):
            raise DeclarationError(f"ListenerConfig.lane is hypercorn or express, not {self.lane!r}")
        if self.drain_timeout < 0:
            raise DeclarationError(f"ListenerConfig.drain_timeout must not be negative, got {self.drain_timeout}")
        if self.max_header_bytes < 1024:
            raise DeclarationError("ListenerConfig.max_header_bytes below 1024 would refuse ordinary requests")
        if self.unix_path == "":
            raise DeclarationError("ListenerConfig.unix_path is empty; leave it out to listen on host and port")
        if self.certfile is None and (self.keyfile is not None or self.keyfile_password is not None):
            raise DeclarationError("ListenerConfig.keyfile needs certfile: both make TLS")
        if self.certfile is None and self.client_ca is not None:
            raise DeclarationError("ListenerConfig.client_ca needs certfile: without TLS there are no certificates")

    @property
    def framing(self) -> FramingLimits:
        return FramingLimits(max_header_bytes=self.max_header_bytes, max_headers=self.max_headers)


def hypercorn_config(config: ListenerConfig) -> Config:
    """The part of the settings that Hypercorn reads.

    `read_timeout` stays unset: it covers every read, so a healthy client that listens quietly to a stream would be
    taken for gone. `server_names` stays empty: Host is the app's check.
    """
    from hypercorn.config import Config

    hyper = Config()
    hyper.alpn_protocols = ["http/1.1"]
    hyper.backlog = config.backlog
    hyper.bind = [f"unix:{config.unix_path}" if config.unix_path else f"{config.host or '::'}:{config.port}"]
    hyper.certfile = config.certfile
    hyper.keyfile = config.keyfile or config.certfile
    hyper.keyfile_password = config.keyfile_password
    hyper.errorlog = logging.getLogger("mcptrio.http")
    hyper.graceful_timeout = config.drain_timeout
    # The gate has already bounded the head; what h11 may hold on top is one rewritten head or one chunk's size line.
    hyper.h11_max_incomplete_size = 2 * config.max_header_bytes
    hyper.include_server_header = False
    hyper.keep_alive_max_requests = config.keep_alive_max_requests
    hyper.keep_alive_timeout = config.keep_alive_timeout
    hyper.ssl_handshake_timeout = config.handshake_timeout
    hyper.websocket_max_message_size = config.websocket_max_message
    hyper.websocket_ping_interval = config.websocket_ping_interval
    hyper.worker_class = "trio"
    return hyper


def tls_context(config: ListenerConfig) -> ssl.SSLContext | None:
    """What new connections are encrypted with, read from the files anew; None for plain HTTP.

    Raises:
        DeclarationError: the files cannot be read, or do not belong together.
    """
    if config.certfile is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password OpenSSL would ask for one on the terminal, and wait.
        context.load_cert_chain(config.certfile, config.keyfile, config.keyfile_password or _no_password)
    except (OSError, ssl.SSLError) as error:
        key = config.keyfile or config.certfile
        raise DeclarationError(f"cannot use certificate {config.certfile} with key {key}: {error}") from error
    if config.client_ca is not None:
        try:
            context.load_verify_locations(config.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise DeclarationError(f"cannot use client_ca {config.client_ca}: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    raise ssl.SSLError("the key is encrypted; set keyfile_password")


class Stoppable(Protocol):
    """What `shut_down` ends: a `Listener`."""

    def stop_accepting(self) -> None: ...
    async def close(self, deadline: float) -> None: ...


async def shut_down(listener: Stoppable, drain: Callable[[float], Awaitable[None]], *, timeout: float) -> None:
    """End serving in the one order that loses nothing.

    The door closes first. Then `drain(deadline)` lets the runtime finish calls and say goodbye on open streams, while
    their connections still work. Then connections end, by force if the deadline has come.
    """
    deadline = trio.current_time() + timeout
    listener.stop_accepting()
    try:
        with trio.move_on_at(deadline):
            await drain(deadline)
    finally:
        await listener.close(deadline)


def install_guard(config: ListenerConfig | None = None) -> None:
    """Put the connection guard into Hypercorn's own trio worker (second best, see above)."""
    import hypercorn.trio.run

    from .connection import guarded_handler

    # setattr: the worker looks this name up for every listener it opens, but does not export it.
    setattr(hypercorn.trio.run, "TCPServer", guarded_handler(config or ListenerConfig()))  # noqa: B010
