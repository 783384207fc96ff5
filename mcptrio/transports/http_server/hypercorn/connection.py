"""One connection served by Hypercorn's HTTP/1.1 and WebSocket code, behind the listener's guard.

Theory of operation. `HypercornConnection` takes the place of Hypercorn's `TCPServer`. Its own task reads all the time,
so a peer that goes away is noticed at once; the ASGI application of each request runs in a second task. Hypercorn's
classes do the protocol work and are subclassed, never copied. The differences to Hypercorn's own connection:

- bytes come from a `GuardedStream`: framing is checked, and every read and write has a deadline;
- HTTP/2 is never entered;
- the head and the body of a response leave in one write;
- a disconnect reaches the application without blocking, and every later `receive()` returns it again;
- an application that raises ends its own connection only.

The names of Hypercorn's that this depends on are checked when `protocol` is imported.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.worker_context import EventWrapper, WorkerContext
from hypercorn.typing import (
    AppWrapper,
    ASGIReceiveEvent,
    ASGISendEvent,
    HTTPScope,
    LifespanState,
    Scope,
)
from hypercorn.utils import parse_socket_addr

from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.listener.containment import contain, is_failure, report_failure
from mcptrio.transports.http_server.listener.framing import RawHead
from mcptrio.transports.http_server.listener.gate import ReadPhase
from mcptrio.transports.http_server.listener.guarded_stream import GuardedStream

from .app_events import AppEvents
from .asgi import TARGET_EXTENSION
from .protocol import GuardedH11
from .settings import hypercorn_config

AppSend = Callable[[ASGISendEvent | None], Awaitable[None]]


class AppTasks:
    """The tasks of one connection besides its reader; takes the place of Hypercorn's `TaskGroup`.

    Borrows: the connection and its nursery.
    """

    def __init__(self, connection: HypercornConnection, nursery: trio.Nursery) -> None:
        self._connection = connection
        self._nursery = nursery
        self._pings = trio.CancelScope()

    def spawn(self, func: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Start Hypercorn's only task besides the application: the pings of a WebSocket."""
        self._nursery.start_soon(self._ping, func, *args, name="pings")

    def stop_pings(self) -> None:
        """End the pings, which would otherwise sleep on after the peer is gone."""
        self._pings.cancel()

    @trio.lowlevel.enable_ki_protection
    async def _ping(self, func: Callable[..., Awaitable[Any]], *args: Any) -> None:
        with self._pings:
            await func(*args)

    async def spawn_app(
        self, app: AppWrapper, config: Config, scope: Scope, send: AppSend
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start the application for one request, and return the function that passes it events."""
        connection = self._connection
        head = connection.head
        extensions = cast(HTTPScope, scope)["extensions"]
        extensions[TARGET_EXTENSION] = {"target": head.target}
        if (certificate := connection.guarded.client_certificate()) is not None:
            extensions["tls"] = {"client_cert_chain": (certificate,), "client_cert_error": None}
        before_body = connection.send_continue if head.expects_continue else None
        inbox = connection.inbox = AppEvents(config.max_app_queue_size, before_body)
        self._nursery.start_soon(self._run_app, app, scope, inbox, send, name="app")
        return inbox.put

    @trio.lowlevel.enable_ki_protection
    async def _run_app(self, app: AppWrapper, scope: Scope, inbox: AppEvents, send: AppSend) -> None:
        connection = self._connection
        try:
            await app(scope, inbox.receive, send, trio.to_thread.run_sync, trio.from_thread.run)
        except BaseException as error:  # reported, and answered with 500 below
            if not is_failure(error):
                raise
            report_failure(error, connection.guarded.hub, connection.guarded.client)
        finally:
            await send(None)  # 500 if nothing was sent; closes the connection if the response is incomplete
            if connection.inbox is inbox:
                connection.inbox = None


class HypercornConnection:
    """One connection, from its first byte to its last.

    Owns: the guarded stream, the nursery of its tasks.   Borrows: the app, the worker's context.
    """

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        state: LifespanState,
        stream: GuardedStream,
    ) -> None:
        self.app = app
        self.config = config
        self.context = context
        self.state = state
        self.guarded = stream
        self.responding = False
        """The head of the final response was sent."""
        self.corked = False
        """Writes are collected until `uncork`."""
        self.inbox: AppEvents | None = None
        """Of the application that was started last, while it runs."""
        self._cork = bytearray()
        self._writing = trio.Lock()

    @property
    def head(self) -> RawHead:
        """The head of the request that is being served."""
        head = self.guarded.gate.head
        if head is None:
            raise RuntimeError("no request is being served on this connection")
        return head

    async def run(self) -> None:
        """Serve requests until the peer is gone or the connection is closed."""
        try:
            if not await self.guarded.handshake():
                return
            sock = self.guarded.socket
            client = parse_socket_addr(sock.family, sock.getpeername())
            server = parse_socket_addr(sock.family, sock.getsockname())
            async with trio.open_nursery() as nursery:
                tasks = AppTasks(self, nursery)
                self.h11 = GuardedH11(self, tasks, client, server)
                try:
                    # A protocol error must not cancel the application: it is informed of the disconnect below.
                    if not await contain(self._read, self.guarded.hub, self.guarded.client):
                        self.guarded.kill()
                finally:
                    tasks.stop_pings()
                    if self.inbox is not None:
                        self.inbox.hang_up(websocket=self.guarded.gate.phase in (ReadPhase.UPGRADING, ReadPhase.RAW))
        except OSError:
            pass  # the peer was gone before its address could be read
        finally:
            self.guarded.kill()

    async def _read(self) -> None:
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            while data := await self.guarded.receive_some():
                await self.h11.handle(RawData(data))
            await self.h11.handle(RawData(b""))
        await self.h11.handle(Closed())

    # -- writing

    async def protocol_send(self, event: Event) -> None:
        """Perform an event of Hypercorn's protocol."""
        match event:
            case RawData(data=data):
                if self.corked:
                    self._cork += data
                elif data:
                    await self._write(data)
            case Closed():
                await self.uncork()
                await self.guarded.finish()
                await self.h11.handle(Closed())
            case Updated(idle=True):
                # Hypercorn starts and cancels an idle task here, for every request. The next read has a deadline.
                self.responding = False
                self.guarded.response_done()

    async def uncork(self) -> None:
        """Write what was held back."""
        self.corked = False
        if self._cork:
            data = bytes(self._cork)
            self._cork.clear()
            await self._write(data)

    async def send_continue(self) -> None:
        """Send 100 Continue to a peer that waits for it; called when the application first asks for the body."""
        if self.guarded.gate.phase is ReadPhase.BODY and not self.responding:
            await self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _write(self, data: bytes) -> None:
        try:
            if not self._writing.locked():
                data = self.guarded.send_now(data)
            if data:
                async with self._writing:
                    with trio.CancelScope(shield=True):  # a cancelled write would end in the middle of a chunk
                        await self.guarded.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self.h11.handle(Closed())


class HypercornEngine:
    """The ordinary engine: Hypercorn's HTTP/1.1 and WebSocket code serves an ASGI application.

    Borrows: the application.
    """

    def __init__(self, app: Callable[[Any, Any, Any], Awaitable[None]], config: HttpConfig) -> None:
        self._app = ASGIWrapper(app)
        self._config = hypercorn_config(config)

    @trio.lowlevel.enable_ki_protection
    async def serve(self, guarded: GuardedStream) -> None:
        """Serve one connection until it ends."""
        context = WorkerContext(None)
        context.terminated = _Draining(guarded)
        await HypercornConnection(self._app, self._config, context, {}, guarded).run()


class _Draining(EventWrapper):
    """Hypercorn's event `terminated` of one connection: set when the listener drains."""

    def __init__(self, guarded: GuardedStream) -> None:
        super().__init__()
        self._guarded = guarded

    def is_set(self) -> bool:
        return self._guarded.draining
