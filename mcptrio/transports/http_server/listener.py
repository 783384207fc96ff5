"""The accept loop: takes connections, gives each one to Hypercorn behind a guard, and ends them in order.

Hypercorn's own loop makes every connection a child of one nursery: what one of them raises ends the server, and a peer
that stops reading holds up its shutdown. Here a connection can only end itself. What else is mended is in `connection`,
and each point has its test in `tests/e2e/test_hypercorn_*`.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.trio.worker_context import WorkerContext

from .app import TARGET_EXTENSION
from .bind import BoundAddress, bound_address, open_sockets, remove_unix_path
from .connection import Connection, Flag
from .deadlines import Deadlines
from .framing import MaxBody, Refusal
from .gate import RequestGate
from .guarded import (
    AcceptFailed,
    AppFailed,
    ConnectionEnded,
    ConnectionOpened,
    ConnectionRefused,
    GuardCaught,
    GuardedStream,
    HandshakeFailed,
    ListenerEvent,
    RequestRefused,
    SocketOrTLS,
    WriteTimedOut,
    contain,
)
from .report import log_event
from .serve import ListenerConfig, hypercorn_config, tls_context

__all__ = [
    "TARGET_EXTENSION",
    "AcceptFailed",
    "AppFailed",
    "BoundAddress",
    "ConnectionEnded",
    "ConnectionOpened",
    "ConnectionRefused",
    "GuardCaught",
    "HandshakeFailed",
    "Listener",
    "ListenerConfig",
    "ListenerEvent",
    "RequestRefused",
    "WriteTimedOut",
]

if TYPE_CHECKING:
    from .answer import Endpoint
    from .express import Express, Unfinished

ASGIApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_logger = logging.getLogger("mcptrio.http")

_ACCEPT_PAUSE: Final = 0.1  # out of file descriptors: the next try is as hopeless as this one, until something closes
_REFUSING_MAX: Final = 64  # connections being turned away politely at one time; beyond it they are just closed
_REFUSING_TIME: Final = 1.0
_LAST_WAIT: Final = 0.5  # after everything was cancelled
_TOO_MANY: Final = Refusal(503, "too many connections", (("retry-after", "1"),))


class Listener:
    """Serves one ASGI app on its sockets until it is closed.

    Owns: the listening sockets, the accept loops, the connections' nursery.   Lent: the app.

    `max_body` says what a request may declare as its length, where that depends on the request. Plain requests for
    `express` are answered without the app; they would reach the same endpoint through it. `sockets` are bound
    already (by a parent process) and used instead of the configured address. `on_event` is called with every
    `ListenerEvent`, from the loop: it must not wait. The app gets no lifespan: who starts a listener starts the rest.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: ListenerConfig,
        *,
        max_body: MaxBody | None = None,
        express: Endpoint | None = None,
        sockets: Sequence[socket.socket] | None = None,
        on_event: Callable[[ListenerEvent], None] | None = None,
    ) -> None:
        self.config = config
        self.accepted = 0
        self.refused = 0  # connections beyond the cap
        self.requests_refused = 0
        self.guard_caught = 0
        self.app_failures = 0
        self.write_timeouts = 0
        self.handshake_failures = 0
        self.accept_failures = 0
        self._app = ASGIWrapper(app)
        self._hyper = hypercorn_config(config)
        self._tls = tls_context(config)
        self._max_body: MaxBody = max_body or (lambda head: config.max_body)
        self._given = sockets
        self._on_event = on_event
        self._draining = Flag()
        self._context = WorkerContext(None)
        self._context.terminated = self._draining
        self._listening: list[trio.SocketListener] = []
        self._live: set[GuardedStream] = set()
        self._deadlines = Deadlines(lambda: self._nursery)
        self._express: Express | None = None
        if express is not None:
            from .express import Express

            self._express = Express(
                express, config, self._report, self._hand_over, self._pass_on, self._draining.is_set
            )
        self._refusing = 0
        self._nursery: trio.Nursery | None = None
        self._variables = Context()  # of its connections: a request has its own
        self._empty = trio.Event()  # draining, and the last connection is gone
        self._closing = trio.Event()
        self._done = trio.Event()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._live)

    # -- for the owner

    async def serve(self, *, task_status: trio.TaskStatus[list[BoundAddress]] = trio.TASK_STATUS_IGNORED) -> None:
        """Bind, tell where, and serve until `close`. A listener serves once.

        Raises:
            OSError: the address cannot be bound.
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
                    # Also when cancelled from outside: a write to a stalled peer sits in a shield, closing ends it.
                    self.stop_accepting()
                    self._kill_all()
        finally:
            if self._given is None and self.config.unix_path is not None:
                remove_unix_path(self.config.unix_path)
            self._done.set()

    def stop_accepting(self) -> None:
        """Close the door at once. Requests being served go on; idle connections end."""
        self._draining.set_now()
        for listener in self._listening:
            listener.socket.close()
        for stream in list(self._live):
            stream.drain()
        if not self._live:
            self._empty.set()

    async def close(self, deadline: float) -> None:
        """Wait for open connections until `deadline` (Trio's clock), then cut and cancel what is left."""
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
        with trio.move_on_after(_LAST_WAIT):  # an app that shields itself is left to whoever ends the process
            await self._done.wait()

    def reload_certificates(self) -> None:
        """Read the certificate and key files again, for connections to come.

        Raises:
            DeclarationError: they cannot be used; the old ones stay in use.
        """
        self._tls = tls_context(self.config)

    # -- the accept loop

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        failing = False
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                return
            except OSError as error:
                if not failing:  # one line for each time of want, not for each try
                    _logger.warning("cannot accept connections: %s; trying again every %s s", error, _ACCEPT_PAUSE)
                failing = True
                self._report(AcceptFailed(error=error))
                await trio.sleep(_ACCEPT_PAUSE)
                continue
            failing = False
            if self._draining.is_set():  # accepted in the very moment the door closed
                stream.socket.close()
            elif len(self._live) < self.config.max_connections:
                self._open(stream, nursery)
            else:
                self._turn_away(stream, nursery)

    def _open(self, stream: trio.SocketStream, nursery: trio.Nursery) -> None:
        transport: SocketOrTLS = stream
        if self._tls is not None:
            transport = trio.SSLStream(stream, self._tls, server_side=True, https_compatible=True)
        gate = RequestGate(self.config.framing, self._max_body)
        guarded = GuardedStream(transport, gate, self.config, self._report, self._deadlines)
        self._live.add(guarded)
        self._report(ConnectionOpened(client=guarded.client))
        nursery.start_soon(self._run, guarded, name=f"connection {guarded.client}")

    # A Ctrl-C must not end in some connection's guard: it belongs to whoever runs the program.
    @trio.lowlevel.enable_ki_protection
    async def _hand_over(self, guarded: GuardedStream) -> None:
        """Hypercorn serves the connection from here on."""
        on_end = partial(self._over, guarded)
        await Connection(self._app, self._hyper, self._context, {}, guarded, self._report, on_end).run()

    def _pass_on(self, guarded: GuardedStream, unfinished: Unfinished) -> None:
        """The task of a connection is lost to a handler."""
        assert self._nursery is not None
        run = partial(self._run, guarded, unfinished)
        self._variables.run(partial(self._nursery.start_soon, run, name=f"connection {guarded.client}"))

    @trio.lowlevel.enable_ki_protection
    async def _run(self, guarded: GuardedStream, unfinished: Unfinished | None = None) -> None:
        express, turn = self._express, guarded.turn
        try:
            if express is None:
                await contain(lambda: self._hand_over(guarded), self._report, guarded.client)
            else:
                await contain(lambda: express.run(guarded, unfinished), self._report, guarded.client)
        finally:
            if guarded.turn == turn:
                self._over(guarded)

    def _over(self, guarded: GuardedStream) -> None:
        guarded.kill()
        if guarded not in self._live:
            return  # it was over before its last task was
        self._live.discard(guarded)
        self._report(ConnectionEnded(client=guarded.client, requests=guarded.gate.requests))
        if self._draining.is_set() and not self._live:
            self._empty.set()

    def _turn_away(self, stream: trio.SocketStream, nursery: trio.Nursery) -> None:
        guarded = GuardedStream(stream, RequestGate(self.config.framing), self.config, self._report, self._deadlines)
        self._report(ConnectionRefused(client=guarded.client))
        if self._tls is not None or self._refusing >= _REFUSING_MAX:
            guarded.kill()
            return
        self._refusing += 1
        nursery.start_soon(self._say_too_many, guarded, name="refuse")

    @trio.lowlevel.enable_ki_protection
    async def _say_too_many(self, guarded: GuardedStream) -> None:
        try:
            with trio.move_on_after(_REFUSING_TIME):
                await contain(lambda: guarded.turn_away(_TOO_MANY), self._report, guarded.client)
        finally:
            guarded.kill()
            self._refusing -= 1

    def _kill_all(self) -> None:
        for stream in list(self._live):
            stream.kill()

    def _report(self, event: ListenerEvent) -> None:
        counter = _COUNTERS.get(type(event))
        if counter is not None:
            setattr(self, counter, getattr(self, counter) + 1)
        log_event(event)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:  # a listener must not end because someone could not listen to it
                _logger.exception("on_event failed for %s", type(event).__name__)


_COUNTERS: Final[dict[type[Any], str]] = {
    ConnectionOpened: "accepted",
    ConnectionRefused: "refused",
    RequestRefused: "requests_refused",
    GuardCaught: "guard_caught",
    AppFailed: "app_failures",
    WriteTimedOut: "write_timeouts",
    HandshakeFailed: "handshake_failures",
    AcceptFailed: "accept_failures",
}
