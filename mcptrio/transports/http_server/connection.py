"""One connection, served by Hypercorn with its sharp edges taken off.

Theory of operation. Hypercorn's own classes do the work: its TCP server, its HTTP/1.1 and WebSocket streams. They are
subclassed, never copied, at these points: the stream is a `GuardedStream`; HTTP/2 is never entered; a head and its body
leave in one write; the app's inbox tells a disconnect without waiting, and tells it to whoever asks again; a WebSocket
that breaks a rule is told why and closed. The private names this rests on are checked when the module is imported.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import time
from typing import Any, Final, cast

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.protocol.ws_stream import WebsocketBuffer, WSStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import EventWrapper, WorkerContext
from hypercorn.typing import (
    AppWrapper,
    ASGIReceiveEvent,
    ASGISendEvent,
    ConnectionState,
    LifespanState,
    Scope,
)
from hypercorn.utils import parse_socket_addr

from .deadlines import Deadlines
from .framing import Head, MaxBody
from .gate import Phase, RequestGate
from .guarded import (
    AppFailed,
    GuardCaught,
    GuardedStream,
    ListenerEvent,
    MessageTooLarge,
    Report,
    SocketOrTLS,
    contain,
)
from .inbox import Inbox
from .plain import PlainBody, PlainReply, PlainRequest
from .serve import ListenerConfig
from .socket_stream import WebSocket

TARGET_EXTENSION: Final = "mcptrio.target"  # scope["extensions"][...]["target"]: the request target as it was sent

_logger = logging.getLogger("mcptrio.http")

_RESTS_ON: Final[tuple[tuple[Any, tuple[str, ...]], ...]] = (
    (TCPServer, ("run", "protocol_send", "_read_data")),
    (TCPServer.__init__, ("app", "config", "context", "state", "stream")),
    (TaskGroup, ("spawn_app", "spawn", "__aenter__", "__aexit__")),
    (H11Protocol, ("handle", "stream_send", "_create_stream", "_check_protocol", "_maybe_recycle", "_close_stream")),
    (H11Protocol.__init__, ("app", "config", "context", "task_group", "connection_state", "ssl", "client", "server")),
    (HTTPStream.__init__, ("app", "config", "context", "task_group", "ssl", "client", "server", "send", "stream_id")),
    (WSStream, ("_handle_events", "_send_wsproto_event", "handle")),
    (WSStream.__init__, ("app", "config", "context", "task_group", "ssl", "client", "server", "send", "stream_id")),
    (WebsocketBuffer, ("extend", "clear", "to_message")),
    (WorkerContext(None), ("terminated", "event_class", "mark_request")),
    (TaskGroup(), ("_nursery",)),
)


def check_private_names(table: tuple[tuple[Any, tuple[str, ...]], ...] = _RESTS_ON) -> None:
    """Raise ImportError when the installed Hypercorn is not the one these subclasses were written for."""
    for owner, names in table:
        code = getattr(owner, "__code__", None)
        known = code.co_varnames[1 : code.co_argcount] if code is not None else dir(owner)
        missing = [name for name in names if name not in known]
        if missing:
            title = getattr(owner, "__qualname__", type(owner).__qualname__)
            raise ImportError(
                f"mcptrio needs hypercorn 0.18: in the installed one {title} has no {', '.join(missing)}. "
                "Install 'hypercorn>=0.18,<0.19'."
            )


check_private_names()


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

    def spawn(self, func: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run one of Hypercorn's own tasks: a WebSocket's pings, which would sleep on after the peer is gone."""
        assert self._nursery is not None
        self._nursery.start_soon(self._run_helper, func, *args)

    def stop_helpers(self) -> None:
        """The peer is gone: only the app may go on."""
        self._helpers.cancel()

    @trio.lowlevel.enable_ki_protection
    async def _run_helper(self, func: Callable[..., Awaitable[Any]], *args: Any) -> None:
        with self._helpers:  # a connection becomes a WebSocket once, so there is one such task
            await func(*args)

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        head = self._connection.head
        if scope["type"] != "lifespan":
            scope["extensions"][TARGET_EXTENSION] = {"target": head.target}
            if (certificate := self._connection.guarded.client_certificate()) is not None:
                scope["extensions"]["tls"] = {"client_cert_chain": (certificate,), "client_cert_error": None}
        before_body = self._connection.send_continue if head.expects_continue else None
        inbox = self._connection.inbox = Inbox(config.max_app_queue_size, before_body)
        assert self._nursery is not None
        self._nursery.start_soon(self._run_app, app, scope, inbox, send, name="app")
        return inbox.put

    @trio.lowlevel.enable_ki_protection
    async def _run_app(
        self, app: AppWrapper, scope: Scope, inbox: Inbox, send: Callable[[ASGISendEvent | None], Awaitable[None]]
    ) -> None:
        try:
            await app(scope, inbox.receive, send, trio.to_thread.run_sync, trio.from_thread.run)
        except Exception as error:  # noqa: BLE001  reported, and answered with 500 below
            self._connection.report(AppFailed(client=self._connection.guarded.client, error=error))
        finally:
            await send(None)  # 500 if nothing was sent, the end of the connection if something was


class GuardedH11(H11Protocol):
    """Hypercorn's HTTP/1.1, fed by a gate: every head it reads was checked and written anew."""

    def __init__(self, connection: Connection, task_group: AppTasks, client: Any, server: Any) -> None:
        super().__init__(
            connection.app,
            connection.config,
            connection.context,
            task_group,
            ConnectionState(connection.state),
            connection.guarded.tls,
            client,
            server,
            connection.protocol_send,
        )
        self._connection = connection
        self._reply: PlainReply | None = None  # to the plain request that is being served

    async def handle(self, event: Event) -> None:
        match event:
            case PlainRequest():
                await self._begin(event)
            case PlainBody(data=data, whole=whole):
                if self.stream is not None:
                    if data:
                        await self.stream.handle(Body(stream_id=STREAM_ID, data=data))
                    if whole:
                        await self.stream.handle(EndBody(stream_id=STREAM_ID))
            case _:
                await super().handle(event)

    # -- plain requests, which h11 never sees

    async def _begin(self, event: PlainRequest) -> None:
        head = event.head
        connection = self._connection
        self._reply = PlainReply(head)
        stream = self.stream = self._new_stream(HTTPStream)
        await stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=event.headers(),
                http_version="1.1",
                method=head.method.decode(),
                raw_path=head.path,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()
        inbox = connection.take_inbox()
        if inbox is not None and event.whole:  # None: it was answered without the app
            inbox.put_whole(event.body)
        elif event.body:
            await stream.handle(Body(stream_id=STREAM_ID, data=event.body))

    async def _send_plain(self, reply: PlainReply, event: StreamEvent) -> None:
        connection = self._connection
        match event:
            case Response(status_code=status) if status >= 200:
                if self.keep_alive_requests >= self.config.keep_alive_max_requests or self.context.terminated.is_set():
                    reply.keeps = False
                connection.responding = True
                data = reply.start(status, (*event.headers, *connection.standing_headers()))
                connection.corked = reply.length is not None  # its body comes next: one write for both
                await connection.protocol_send(RawData(data))
            case Body(data=data):
                if data := reply.body(data):
                    await connection.protocol_send(RawData(data))
            case EndBody():
                if data := reply.end():
                    await connection.protocol_send(RawData(data))
                await connection.uncork()
            case StreamClosed():
                await connection.uncork()
                self._reply = None
                await self._close_stream()
                whole = reply.ended and connection.guarded.gate.phase is Phase.BUSY
                if whole and reply.keeps and not self.context.terminated.is_set():
                    await self.send(Updated(idle=True))
                else:
                    await self.send(Closed())

    def _new_stream(self, kind: type[HTTPStream] | type[WebSocket]) -> HTTPStream | WebSocket:
        return kind(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )

    # -- the others

    async def _check_protocol(self, event: h11.Request) -> None:
        """Nothing: HTTP/2 is refused at the gate."""

    async def _create_stream(self, request: h11.Request) -> None:
        head = self._connection.head
        self.stream = self._new_stream(WebSocket if head.websocket else HTTPStream)
        if isinstance(self.stream, WebSocket):
            report, client = self._connection.report, self._connection.guarded.client
            self.stream.on_too_large = lambda: report(MessageTooLarge(client=client))
            self.connection = H11WSConnection(cast(h11.Connection, self.connection))
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=head.version.decode(),
                method=head.method.decode(),
                raw_path=head.path,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()

    async def stream_send(self, event: StreamEvent) -> None:
        if self._reply is not None:
            await self._send_plain(self._reply, event)
            return
        connection = self._connection
        match event:
            case Response():
                names = {name.lower() for name, _ in event.headers}
                if event.status_code >= 200:
                    connection.responding = True
                    connection.corked = b"content-length" in names  # its body comes next: one write for both
                    if self.context.terminated.is_set() and b"connection" not in names:
                        event.headers.append((b"connection", b"close"))
                await super().stream_send(event)
                if event.status_code == 101:
                    connection.guarded.switch()
            case Body() | EndBody():
                await super().stream_send(event)
                await connection.uncork()
            case StreamClosed():
                await connection.uncork()
                await super().stream_send(event)
            case _:
                await super().stream_send(event)


class Connection(TCPServer):
    """One peer, from its first byte to its last.

    Owns: the guarded stream, the nursery of its app tasks.   Lent: the app, the worker's context.
    """

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        state: LifespanState,
        stream: GuardedStream,
        report: Report,
    ) -> None:
        super().__init__(app, config, context, state, cast(Any, stream))  # it looks like the socket it wraps
        self.guarded = stream
        self.report = report
        self.responding = False
        self.corked = False
        self.inbox: Inbox | None = None
        self._cork = bytearray()
        self._standing: list[tuple[bytes, bytes]] = []
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
            tasks = AppTasks(self)
            async with tasks:
                self._task_group = tasks
                self.protocol = ProtocolWrapper(
                    self.app,
                    self.config,
                    self.context,
                    tasks,
                    ConnectionState(self.state),
                    self.guarded.tls,
                    client,
                    server,
                    self.protocol_send,
                )
                self.protocol.protocol = GuardedH11(self, tasks, client, server)
                await self._read_data()
                tasks.stop_helpers()
        except OSError:
            pass  # the peer was gone before we could ask for its address
        finally:
            self.guarded.kill()

    def take_inbox(self) -> Inbox | None:
        """The inbox of the app that was just started, if one was."""
        inbox, self.inbox = self.inbox, None
        return inbox

    def standing_headers(self) -> list[tuple[bytes, bytes]]:
        """What every response carries: the date, which changes once a second."""
        now = int(time())
        if now != self._standing_since:
            self._standing_since = now
            self._standing = self.config.response_headers("h11")
        return self._standing

    async def _read_data(self) -> None:
        guarded, gate = self.guarded, self.guarded.gate
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            plain: Head | None = None
            while True:
                part = await guarded.receive_part()
                if isinstance(part, Head):
                    plain = part
                    body = gate.take_body()
                    await self.protocol.handle(PlainRequest(part, body, gate.phase is not Phase.BODY))
                elif part and plain is not None and gate.head is plain:
                    await self.protocol.handle(PlainBody(part, gate.phase is not Phase.BODY))
                elif part:
                    plain = None
                    await self.protocol.handle(RawData(part))
                else:
                    if plain is None:
                        await self.protocol.handle(RawData(b""))
                    break
        await self.protocol.handle(Closed())

    async def protocol_send(self, event: Event) -> None:
        match event:
            case RawData(data=data):
                if self.corked:
                    self._cork += data
                elif data:
                    await self._send(data)
            case Closed():
                await self.uncork()
                await self.guarded.finish()
                await self.protocol.handle(Closed())
            case Updated(idle=True):
                # Hypercorn would start and cancel an idle task for every request: a deadline on the next read does it.
                self.responding = False
                self.guarded.next_request()

    async def uncork(self) -> None:
        """Write what was held back."""
        self.corked = False
        if self._cork:
            data = bytes(self._cork)
            self._cork.clear()
            await self._send(data)

    async def _send(self, data: bytes) -> None:
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


def log_event(event: ListenerEvent) -> None:
    """One log line for what a listener tells: a warning for what is our fault, debug for what is the peer's."""
    match event:
        case GuardCaught(client=client, error=error):
            _logger.error("connection %s ended by %r", client, error, exc_info=error)
        case AppFailed(client=client, error=error):
            _logger.error("the app failed on connection %s", client, exc_info=error)
        case _:
            _logger.debug("%s", event)
