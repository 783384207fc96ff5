"""Hypercorn's HTTP/1.1, fed by a gate, and the names of Hypercorn's that all of this rests on.

A plain request never reaches h11, since the gate has read it: see `plain`. The others (WebSockets, chunked bodies,
`Expect`, HTTP/1.0) do, with a head that was checked and written anew. HTTP/2 is never entered: the gate refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import h11
import trio
from hypercorn.events import Closed, RawData
from hypercorn.logging import Logger
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.protocol.ws_stream import WebsocketBuffer, WSStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from . import message
from .framing import Head
from .gate import Phase
from .guarded import MessageTooLarge
from .own_stream import Known, OwnStream
from .plain import PlainReply, handed_on
from .socket_stream import WebSocket

if TYPE_CHECKING:
    from .connection import AppTasks, Connection

S = TypeVar("S", bound=HTTPStream | WSStream)

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
    (HTTPStream, ("handle", "app_send")),
    (ASGIHTTPState, ("REQUEST", "CLOSED")),
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
        self.known: Known | None = None
        """What our own application made of the last head."""
        log = connection.config.log
        self.logs_access = type(log) is not Logger or log.access_logger is not None
        self.send_bytes = connection.send_bytes
        self._connection = connection
        self._reply: PlainReply | None = None  # to the plain request that is being served

    # -- plain requests, which h11 never sees

    async def begin(self, head: Head, body: bytes, whole: bool, reading: trio.CancelScope) -> None:
        """Serve a request; with `whole` nothing follows of its body."""
        connection = self._connection
        self._reply = PlainReply(head)
        # A GET listens: it would keep the reading task in any case, with all that is beneath it.
        own = connection.own_app is not None and head.method == b"POST"
        stream = self.stream = self._new_stream(OwnStream if own else HTTPStream)
        known = self.known
        if type(stream) is OwnStream:
            stream.protocol, stream.parsed, stream.reading = self, head, reading
        if type(stream) is OwnStream and known is not None and known.parsed is head:
            stream.known = known.head
            stream.scope = known.scope
            stream.start_time = time()
            stream.app_put = await self.task_group.spawn_app(self.app, self.config, stream.scope, stream.app_send)
        else:
            await stream.handle(
                Request(
                    stream_id=STREAM_ID,
                    headers=handed_on(head),
                    http_version="1.1",
                    method=head.method.decode(),
                    raw_path=head.path,
                    state=self.connection_state,
                )
            )
        self.keep_alive_requests += 1
        await self.context.mark_request()
        if stream.closed:  # it was answered without the app
            return
        if whole:
            assert connection.inbox is not None  # the app has one
            connection.inbox.put_whole(body)
        elif body:
            await stream.handle(Body(stream_id=STREAM_ID, data=body))
        if type(stream) is OwnStream:
            await connection.serve_here(stream)

    async def more(self, data: bytes, whole: bool) -> None:
        """What came next of the body."""
        if self.stream is not None:
            if data:
                await self.stream.handle(Body(stream_id=STREAM_ID, data=data))
            if whole:
                await self.stream.handle(EndBody(stream_id=STREAM_ID))

    def whole_response(self, status: int, headers: message.Headers, body: bytes) -> bytes:
        """A response from head to end, as it is written; `end_response` has to follow."""
        reply = self._reply
        assert reply is not None  # nothing was sent yet
        self._begin_response(reply)
        return reply.whole(status, headers, body, *self._connection.standing_headers())

    async def _send_plain(self, reply: PlainReply, event: StreamEvent) -> None:
        connection = self._connection
        match event:
            case Response(status_code=status) if status >= 200:
                self._begin_response(reply)
                data = reply.start(status, (*event.headers, *connection.standing_headers()[0]))
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
                await self._close_stream()
                await self.end_response()

    def _begin_response(self, reply: PlainReply) -> None:
        self._connection.responding = True
        if self.keep_alive_requests >= self.config.keep_alive_max_requests or self.context.terminated.is_set():
            reply.keeps = False

    async def end_response(self) -> None:
        """Nothing follows: the next request may come, or the connection ends."""
        reply, connection = self._reply, self._connection
        self._reply = self.stream = None
        assert reply is not None
        whole = reply.ended and connection.guarded.gate.phase is Phase.BUSY
        if whole and reply.keeps and not self.context.terminated.is_set():
            connection.next_request()
        else:
            await self.send(Closed())

    def _new_stream(self, kind: Callable[..., S]) -> S:
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
        kind: type[HTTPStream] | type[WebSocket] = WebSocket if head.websocket else HTTPStream
        self.stream = self._new_stream(kind)
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
