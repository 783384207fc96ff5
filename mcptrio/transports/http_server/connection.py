"""One connection, served by Hypercorn with its sharp edges taken off.

Theory of operation. Hypercorn's own classes do the work: its TCP server, its HTTP/1.1 and WebSocket streams. They are
subclassed, never copied, at these points: the stream is a `GuardedStream`; HTTP/2 is never entered; a head and its body
leave in one write; the app's inbox tells a disconnect without waiting, and tells it to whoever asks again; a WebSocket
that breaks a rule is told why and closed. The private names this rests on are checked when `protocol` is imported.

One task reads, all the time, so a peer that goes away is noticed at once. An app has a task of its own beside it. Our
own application, if no middleware stands between, begins in the reading task; when it first waits the task is its own
for good, or its handler's, and another one reads on. So a call that never waits costs no task. Each of these tasks is
contained for itself: a handler that was lent one is the session's, and goes on whatever becomes of the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from time import time
from typing import Any, cast

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import ProtocolWrapper
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import EventWrapper, WorkerContext
from hypercorn.typing import AppWrapper, ASGIReceiveEvent, ASGISendEvent, LifespanState, Scope
from hypercorn.utils import parse_socket_addr

from mcptrio._actors.eager import run_eagerly

from .app import TARGET_EXTENSION, AsgiApp
from .deadlines import Deadlines
from .framing import Head, MaxBody
from .gate import Phase, RequestGate
from .guarded import AppFailed, GuardedStream, Report, SocketOrTLS, contain
from .inbox import Inbox
from .own_stream import OwnStream, Run
from .protocol import GuardedH11
from .report import log_event
from .serve import ListenerConfig

AppSend = Callable[[ASGISendEvent | None], Awaitable[None]]


class Flag(EventWrapper):
    """Hypercorn's event, settable without awaiting."""

    up = False

    def set_now(self) -> None:
        self.up = True
        self._event.set()

    async def set(self) -> None:
        self.set_now()

    def is_set(self) -> bool:
        return self.up


class AppTasks(TaskGroup):
    """The tasks of one connection: the app's, and Hypercorn's pings."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._helpers = trio.CancelScope()

    def start(self, run: Callable[..., Awaitable[Any]], *args: Any, name: str) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(run, *args, name=name)

    def spawn(self, func: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run one of Hypercorn's own tasks: a WebSocket's pings, which would sleep on after the peer is gone."""
        self.start(self._run_helper, func, *args, name="pings")

    def stop_helpers(self) -> None:
        """The peer is gone: only the app may go on."""
        self._helpers.cancel()

    @trio.lowlevel.enable_ki_protection
    async def _run_helper(self, func: Callable[..., Awaitable[Any]], *args: Any) -> None:
        with self._helpers:  # a connection becomes a WebSocket once, so there is one such task
            await self._connection.contain(partial(func, *args))

    async def spawn_app(
        self, app: AppWrapper, config: Config, scope: Scope, send: AppSend
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        connection = self._connection
        head = connection.guarded.gate.head
        assert head is not None  # the gate let it through, and keeps it until the response is over
        if scope["type"] != "lifespan":
            scope["extensions"][TARGET_EXTENSION] = {"target": head.target}
            if (certificate := connection.guarded.client_certificate()) is not None:
                scope["extensions"]["tls"] = {"client_cert_chain": (certificate,), "client_cert_error": None}
        before_body = connection.send_continue if head.expects_continue else None
        inbox = connection.inbox = Inbox(config.max_app_queue_size, before_body)
        connection.apps += 1
        stream = connection.h11.stream
        if type(stream) is OwnStream:
            stream.inbox, stream.go_on = inbox, self._go_on  # it begins when its body is there: `serve_here`
        else:
            run = partial(app, scope, inbox.receive, send, trio.to_thread.run_sync, trio.from_thread.run)
            self.start(self._run_beside, run, send, name="app")
        return inbox.put

    def _go_on(self, stream: OwnStream, run: Run) -> None:
        """The task of our own application is lost to a handler."""
        self._connection.read_elsewhere(stream)
        self.start(self._run_beside, run, stream.app_send, stream, name="app")

    @trio.lowlevel.enable_ki_protection
    async def _run_beside(self, run: Run, send: AppSend, own: OwnStream | None = None) -> None:
        await self._connection.contain(partial(self.run_app, run, send, own))

    @trio.lowlevel.enable_ki_protection
    async def run_app(self, run: Run, send: AppSend, own: OwnStream | None = None) -> None:
        """Run an app, or what is left of our own."""
        connection, turn = self._connection, 0 if own is None else own.turn
        try:
            await run()
        except Exception as error:  # noqa: BLE001  reported, and answered with 500 below
            connection.report(AppFailed(client=connection.guarded.client, error=error))
        finally:
            if own is None or own.turn == turn:
                try:
                    if own is None or not own.closed:
                        await send(None)  # 500 if nothing was sent, the end of the connection if something was
                finally:
                    connection.apps -= 1
                    if not connection.apps:
                        connection.inbox = None
                    if not connection.reads:
                        connection.end_if_over()


class Connection(TCPServer):
    """One peer, from its first byte to its last.

    Owns: the guarded stream, the nursery of its tasks.   Lent: the app, the worker's context.
    """

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        state: LifespanState,
        stream: GuardedStream,
        report: Report,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(app, config, context, state, cast(Any, stream))  # it looks like the socket it wraps
        self.guarded = stream
        self.report = report
        self.on_end = on_end
        self.responding = False
        self.corked = False
        self.inbox: Inbox | None = None
        """Of the app that was started last."""
        inner = getattr(app, "app", None)
        self.own_app: AsgiApp | None = inner if type(inner) is AsgiApp else None
        """The app, if it is ours and nothing stands between."""
        self.apps = 0
        self._plain: Head | None = None  # of the request whose body is being read
        self._turn = 0  # which task reads
        self._variables = copy_context()  # of whoever reads: a request has its own
        self.reads = True
        self._cork = bytearray()
        self._standing: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")
        self._standing_since = 0

    @property
    def head(self) -> Head:
        """The head of the request being served."""
        assert self.guarded.gate.head is not None  # the gate let it through, and keeps it until the response is over
        return self.guarded.gate.head

    async def run(self) -> None:
        try:
            if not await self.guarded.handshake():
                return
            sock = self.guarded.socket
            client = parse_socket_addr(sock.family, sock.getpeername())
            server = parse_socket_addr(sock.family, sock.getsockname())
            self._tasks = AppTasks(self)
            async with self._tasks:
                self.h11 = GuardedH11(self, self._tasks, client, server)
                self.protocol = cast(ProtocolWrapper, self.h11)  # which would be there to switch to HTTP/2
                await self._read()
        except OSError:
            pass  # the peer was gone before we could ask for its address
        finally:
            self.guarded.kill()

    async def contain(self, run: Run) -> None:
        """Run one of the connection's tasks: what it raises ends the connection, and nothing else."""
        if not await contain(run, self.report, self.guarded.client):
            self.guarded.kill()

    # -- reading

    @trio.lowlevel.enable_ki_protection
    async def _read(self) -> None:
        """Read until the peer is gone, or until another task does."""
        turn = self._turn
        try:
            await self.contain(self._read_data)
        finally:
            if self._turn == turn:
                self.reads = False
                self._tasks.stop_helpers()
                if self.inbox is not None:
                    self.inbox.hang_up(websocket=self.guarded.gate.phase in (Phase.UPGRADING, Phase.RAW))
                self.end_if_over()

    def read_elsewhere(self, stream: OwnStream) -> None:
        """The task that has read a request is kept by it: another one reads on, if none does already."""
        if stream.read_in == self._turn:
            self._turn += 1
            self._variables.run(self._tasks.start, self._read, name=f"connection {self.guarded.client}")

    async def _read_data(self) -> None:
        guarded, turn = self.guarded, self._turn
        part: Head | bytes | None = None
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            while part != b"":
                with guarded.reading() as scope:
                    while not guarded.interrupted:  # nothing is begun in a scope that was cancelled a moment too late
                        if part is None:
                            part = await guarded.receive_part(scope)
                        elif part:
                            taken, part = part, None
                            await self._take(taken, scope)
                            if self._turn != turn:
                                return
                        else:
                            break
                if self._turn != turn:
                    return
                if part is None and not await guarded.look_again():
                    part = b""
            if self._plain is None:
                await self.h11.handle(RawData(b""))
        await self.h11.handle(Closed())

    async def _take(self, part: Head | bytes, scope: trio.CancelScope) -> None:
        gate = self.guarded.gate
        if isinstance(part, Head):
            self._plain = part
            body = gate.take_body()
            await self.h11.begin(part, body, gate.phase is not Phase.BODY, scope)
        elif self._plain is not None and gate.head is self._plain:
            await self.h11.more(part, gate.phase is not Phase.BODY)
        else:
            self._plain = None
            await self.h11.handle(RawData(part))

    async def serve_here(self, stream: OwnStream) -> None:
        """Run our own application in the present task, which is the one that reads; see the module's docstring."""
        stream.read_in = self._turn
        app: Any = self.own_app
        run = partial(app, stream.scope, stream.inbox.receive, stream.app_send)
        serving = self._tasks.run_app(run, stream.app_send, stream)
        await run_eagerly(serving, copy_context(), partial(self.read_elsewhere, stream))

    def end_if_over(self) -> None:
        """Close if nobody reads or writes any more. A handler that was lent a task may still run."""
        if not self.reads and not self.apps:
            self.guarded.kill()
            if self.on_end is not None:
                self.on_end()

    # -- writing

    def standing_headers(self) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """What every response carries, as a list and as it is written: the date, which changes once a second."""
        now = int(time())
        if now != self._standing_since:
            self._standing_since = now
            headers = self.config.response_headers("h11")
            self._standing = headers, b"".join(b"%b: %b\r\n" % header for header in headers)
        return self._standing

    async def protocol_send(self, event: Event) -> None:
        match event:
            case RawData(data=data):
                if self.corked:
                    self._cork += data
                elif data:
                    await self.send_bytes(data)
            case Closed():
                await self.uncork()
                await self.guarded.finish()
                await self.protocol.handle(Closed())
            case Updated(idle=True):
                self.next_request()

    def next_request(self) -> None:
        """The response is complete."""
        # Hypercorn would start and cancel an idle task for every request: a deadline on the next read does it.
        self.responding = False
        self.guarded.next_request()

    async def uncork(self) -> None:
        """Write what was held back."""
        self.corked = False
        if self._cork:
            data = bytes(self._cork)
            self._cork.clear()
            await self.send_bytes(data)

    async def send_bytes(self, data: bytes) -> None:
        if not self.send_lock.locked():
            try:
                data = self.guarded.send_now(data)
            except trio.BrokenResourceError:
                await self.protocol.handle(Closed())
                return
        if data:
            await super().protocol_send(RawData(data))

    async def send_continue(self) -> None:
        """Tell a peer that waits for it to send its body; the app has asked for the body just now."""
        if self.guarded.gate.phase is Phase.BODY and not self.responding:
            await super().protocol_send(RawData(b"HTTP/1.1 100 Continue\r\n\r\n"))


def guarded_handler(
    config: ListenerConfig, max_body: MaxBody | None = None, report: Report | None = None
) -> Callable[[AppWrapper, Config, WorkerContext, LifespanState, SocketOrTLS], Awaitable[None]]:
    """A stand-in for Hypercorn's `TCPServer` in its own worker."""

    async def handle(
        app: AppWrapper, hyper: Config, context: WorkerContext, state: LifespanState, stream: SocketOrTLS
    ) -> None:
        tell = report or log_event
        gate = RequestGate(config.framing, max_body or (lambda head: config.max_body))
        async with trio.open_nursery() as nursery:
            guarded = GuardedStream(stream, gate, config, tell, Deadlines(lambda: nursery))
            connection = Connection(app, hyper, context, state, guarded, tell)
            await contain(connection.run, tell, guarded.client)
            nursery.cancel_scope.cancel()

    return handle
