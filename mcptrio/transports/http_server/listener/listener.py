"""The accept loop and the connections it owns.

Hypercorn's own loop makes every connection a child of one nursery: an exception in one of them ends the server, and a
peer that stops reading blocks the shutdown. Here a connection can only end itself. How its requests are served is not
known here: the listener is given an engine, a function that serves one connection. `tests/e2e/test_hypercorn_*` has a
test for each difference to Hypercorn.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Final

import trio

from mcptrio import telemetry
from mcptrio._actors.timers import Timers
from mcptrio._actors.turns import Turns
from mcptrio._actors.unread import Unread
from mcptrio.transports.http_server.config import HttpConfig

from .containment import ConnectionGuard
from .framing import Refusal
from .guarded_stream import GuardedStream, Serve, SocketOrTLS
from .sockets import BoundAddress, bound_address, open_sockets, remove_unix_path
from .tls import tls_context

logger = logging.getLogger("mcptrio.http")

_ACCEPT_PAUSE: Final = 0.1  # out of file descriptors: trying again is useless until something closes
_REFUSING_MAX: Final = 64  # connections that get a 503 at the same time; further ones are just closed
_REFUSING_TIME: Final = 1.0
_SAME_MOMENT: Final = 0.05  # after the accept loop ended, for a connection that it had just accepted
_LAST_WAIT: Final = 0.5  # after everything was cancelled
_SOCKET_GONE: Final = (errno.EBADF, errno.ENOTSOCK, errno.EINVAL)  # closed, or no longer a listening socket
_STOPPED: Final = "the listener stopped accepting connections although nothing closed it; start the server again"
_TOO_MANY: Final = Refusal(503, "too many connections", (("retry-after", "1"),))


class Listener:
    """The accept loop on its sockets, and the connections it owns.

    Owns: the listening sockets, the accept loops, the nursery of the connections.   Borrows: the engine, the hub.

    `serve` is the engine. `sockets`, if given, are bound already and are used instead of the configured address.
    """

    def __init__(
        self,
        serve: Serve,
        config: HttpConfig,
        hub: telemetry.Hub | None = None,
        *,
        sockets: Sequence[socket.socket] | None = None,
        turns: Turns | None = None,
        unread: Unread | None = None,
    ) -> None:
        self.config = config
        self.hub = telemetry.Hub() if hub is None else hub
        self.draining = False
        self._engine = serve
        self._tls = tls_context(config)
        self._given = sockets
        self._listening: list[trio.SocketListener] = []
        self._live: set[GuardedStream] = set()
        timers = Timers(self._open_nursery)
        self._guard = partial(GuardedStream, config=config, hub=self.hub, timers=timers, turns=turns, unread=unread)
        self._refusing = 0
        self._nursery: trio.Nursery | None = None
        self._variables = Context()  # context variables of connections; each request has its own
        self._empty = trio.Event()  # draining, and the last connection has ended
        self._closing = trio.Event()
        self._done = trio.Event()

    def _open_nursery(self) -> trio.Nursery:
        if self._nursery is None:
            raise RuntimeError("the listener does not serve yet")
        return self._nursery

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._live)

    # -- for the owner

    async def serve(self, *, task_status: trio.TaskStatus[list[BoundAddress]] = trio.TASK_STATUS_IGNORED) -> None:
        """Bind, report the addresses, and serve until `close`. A listener serves once.

        Raises:
            OSError: the address cannot be bound.
            RuntimeError: it stopped accepting connections although nothing closed it.
        """
        sockets = await open_sockets(self.config) if self._given is None else self._given
        bound = [bound_address(sock, tls=self._tls is not None) for sock in sockets]
        self._listening = [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in sockets]
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._variables = copy_context()
                try:
                    for listener in self._listening:
                        nursery.start_soon(self._accept, listener, nursery, name="accept")
                    task_status.started(bound)
                    await self._closing.wait()
                finally:
                    # Also when cancelled from outside: a write to a stalled peer is shielded, and closing ends it.
                    self.stop_accepting()
                    self._kill_all()
            if not self._closing.is_set():
                # A process that stays alive and listens to nothing helps no client, and no supervisor restarts it.
                raise RuntimeError(_STOPPED)
        finally:
            if self._given is None and self.config.unix_path is not None:
                remove_unix_path(self.config.unix_path)
            self._done.set()

    def stop_accepting(self, grace: float = 0.0) -> None:
        """Close the listening sockets. Requests being served go on; connections that are idle for `grace` s end."""
        self.draining = True
        for listener in self._listening:
            listener.socket.close()
        for stream in list(self._live):
            stream.drain(grace)
        if not self._live:
            self._empty.set()

    async def hand_over(self, seconds: float) -> float:
        """Leave the sockets to other processes: each open connection may send one more request within `seconds`.

        Return the seconds that it took.
        """
        began = trio.current_time()
        self.stop_accepting(seconds)
        with trio.move_on_after(seconds):
            await trio.sleep(_SAME_MOMENT)
            await self._empty.wait()
        return round(trio.current_time() - began, 1)

    async def close(self, deadline: float) -> None:
        """Wait for open connections until `deadline` (Trio's clock), then close and cancel the rest."""
        self.stop_accepting()
        if self._nursery is None:  # not serving yet: it will end as soon as it does
            self._closing.set()
            return
        try:
            with trio.move_on_at(deadline):
                await self._empty.wait()
        finally:
            self._kill_all()
            self._closing.set()
            self._nursery.cancel_scope.cancel()
        with trio.move_on_after(_LAST_WAIT):  # an application that shields itself ends with the process
            await self._done.wait()

    async def shut_down(self, drain: Callable[[float], Awaitable[None]], *, timeout: float) -> None:
        """Stop accepting, drain the runtime, close the connections: the only order that loses nothing.

        `drain(deadline)` lets the runtime finish calls and end open streams while their connections still work.
        """
        deadline = trio.current_time() + timeout
        self.stop_accepting()
        try:
            with trio.move_on_at(deadline):
                await drain(deadline)
        finally:
            await self.close(deadline)

    def reload_certificates(self) -> bool:
        """Read the certificate and key files again, for new connections. Returns whether there are any.

        Raises:
            DeclarationError: they cannot be used; the old ones stay in use.
        """
        self._tls = tls_context(self.config)
        return self._tls is not None

    # -- the accept loop

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        failing = False
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                if self.draining:
                    return
                raise RuntimeError(_STOPPED) from None
            except OSError as error:
                if error.errno in _SOCKET_GONE:
                    raise RuntimeError(_STOPPED) from error
                if not failing:  # log once per outage, not once per retry
                    logger.warning("cannot accept connections: %s; trying again every %s s", error, _ACCEPT_PAUSE)
                failing = True
                if self.hub:
                    self.hub.emit(telemetry.ConnectionEvent(kind="accept_failed", detail=str(error)))
                await trio.sleep(_ACCEPT_PAUSE)
                continue
            failing = False
            if len(self._live) < self.config.max_connections:
                self._open(stream)
            else:
                self._turn_away(stream, nursery)

    def _open(self, stream: trio.SocketStream) -> None:
        transport: SocketOrTLS = stream
        if self._tls is not None:
            transport = trio.SSLStream(stream, self._tls, server_side=True, https_compatible=True)
        guarded = self._guard(transport)
        self._live.add(guarded)
        guarded.report("opened")
        if self.draining:  # accepted at the same moment: its first request may be under way
            guarded.drain()
            self._empty = trio.Event()
        start = partial(self._open_nursery().start_soon, self._run, guarded)
        self._variables.run(partial(start, name=f"connection {guarded.client}"))

    # A Ctrl-C must reach the main task, not the guard of a connection.
    @trio.lowlevel.enable_ki_protection
    async def _run(self, guarded: GuardedStream) -> None:
        try:
            with ConnectionGuard(self.hub, guarded.client):
                await self._engine(guarded)
        finally:
            self._end(guarded)

    def _end(self, guarded: GuardedStream) -> None:
        guarded.kill()
        self._live.discard(guarded)
        guarded.report("ended", f"{guarded.gate.requests} requests")
        if self.draining and not self._live:
            self._empty.set()

    def _turn_away(self, stream: trio.SocketStream, nursery: trio.Nursery) -> None:
        guarded = self._guard(stream)
        guarded.report("refused", limit="connections")
        if self._tls is not None or self._refusing >= _REFUSING_MAX:
            guarded.kill()
            return
        self._refusing += 1
        nursery.start_soon(self._answer_too_many, guarded, name="refuse")

    @trio.lowlevel.enable_ki_protection
    async def _answer_too_many(self, guarded: GuardedStream) -> None:
        try:
            with trio.move_on_after(_REFUSING_TIME), ConnectionGuard(self.hub, guarded.client):
                await guarded.turn_away(_TOO_MANY)
        finally:
            guarded.kill()
            self._refusing -= 1

    def _kill_all(self) -> None:
        for stream in list(self._live):
            stream.kill()
