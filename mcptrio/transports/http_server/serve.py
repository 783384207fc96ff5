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

    host: str | None = "127.0.0.1"  # None: every interface
    port: int = 8000  # 0: any free port
    unix_path: str | None = None  # instead of host and port
    unix_mode: int = 0o600  # who may use the socket
    reuse_port: bool = False  # several processes share the port
    backlog: int = 1024  # connections that wait to be accepted
    header_timeout: float = 5  # for the whole head of a request
    write_timeout: float = 30  # for each 64 KiB
    keep_alive_timeout: float = 75  # how long a connection may be idle between two requests
    keep_alive_max_requests: int = 100_000  # so many on one connection, which is closed then
    max_header_bytes: int = 16 * 1024  # the whole head of a request
    max_headers: int = 100  # fields in it
    max_body: int = 4 * 1024 * 1024  # what a request may declare; counting what it sends is the app's part
    max_connections: int = 10_000  # further ones are turned away
    certfile: str | None = None  # a certificate (PEM), with its chain: then TLS is spoken
    keyfile: str | None = None  # None: the certificate's file holds the key too
    keyfile_password: str | None = None  # if the key is encrypted
    client_ca: str | None = None  # clients need a certificate of one of these authorities (PEM)
    handshake_timeout: float = 10  # for TLS
    websocket_max_message: int = 4 * 1024 * 1024  # in bytes
    websocket_ping_interval: float | None = 20  # None: no pings
    drain_timeout: float = 25  # how long open connections may take to end
    lane: Literal["hypercorn", "express"] = "hypercorn"  # express: plain requests are answered without ASGI

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
