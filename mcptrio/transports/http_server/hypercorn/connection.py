"""One connection served by Hypercorn's HTTP/1.1 and WebSocket code, behind the listener's guard.

Theory of operation. `HypercornConnection` is Hypercorn's HTTP/1.1 protocol, and takes the place of its `TCPServer` and
`TaskGroup`. Its own task reads all the time, so a peer that goes away is noticed at once; the ASGI application of each
request runs in a second task. The gate in front has checked every head and written it again, so h11 and the gate cannot
read the same bytes differently. The differences to Hypercorn's own connection:

- bytes come from a `GuardedStream`: framing is checked, and every read and write has a deadline;
- HTTP/2 is never entered: the gate refuses its preface and removes every offer to upgrade to it;
- the head and the body of a response leave in one write;
- a disconnect reaches the application without blocking, and every later `receive()` returns it again;
- an application that raises ends its own connection only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, cast

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.worker_context import EventWrapper, WorkerContext
from hypercorn.typing import (
    AppWrapper,
    ASGIReceiveEvent,
    ASGISendEvent,
    ConnectionState,
    H11SendableEvent,
    HTTPScope,
    LifespanState,
    Scope,
    TaskGroup,
)
from hypercorn.utils import parse_socket_addr

from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.message_memory import MessageMemory
from mcptrio.transports.http_server.listener.containment import ConnectionGuard, is_failure, report_failure
from mcptrio.transports.http_server.listener.framing import REASON_PHRASES, RawHead
from mcptrio.transports.http_server.listener.gate import ReadPhase
from mcptrio.transports.http_server.listener.guarded_stream import WRITE_PIECE, GuardedStream

from .asgi import MEMORY_EXTENSION, OWNER_EXTENSION, TARGET_EXTENSION
from .pinned import check_private_names
from .websocket import WebSocket

AppSend = Callable[[ASGISendEvent | None], Awaitable[None]]

_GONE: Final[ASGIReceiveEvent] = {"type": "http.disconnect"}
_SOCKET_GONE: Final[ASGIReceiveEvent] = {"type": "websocket.disconnect", "code": 1006}

check_private_names()


class AppEvents:
    """A queue of one event for an application; the disconnect never blocks, and every later call returns it.

    With a full queue Hypercorn would block, inside the app's own last send(), until the app receives the disconnect.
    """

    def __init__(self, before_body: Callable[[], Awaitable[None]] | None) -> None:
        self._events: deque[ASGIReceiveEvent] = deque()
        self._farewell: ASGIReceiveEvent | None = None
        self._before_body = before_body
        self._changed: trio.lowlevel.ParkingLot | None = None

    # -- Hypercorn's side

    async def put(self, event: ASGIReceiveEvent) -> None:
        if event["type"] in ("http.disconnect", "websocket.disconnect"):
            self._farewell = event
            self._wake()
            return
        while self._events and self._farewell is None:
            await self._wait()
        if self._farewell is None:  # otherwise the response is over, and the rest of the body is not read
            self._events.append(event)
            self._wake()

    def hang_up(self, event: ASGIReceiveEvent) -> None:
        """Report a disconnect to the application, unless it was reported already."""
        if self._farewell is None:
            self._farewell = event
            self._wake()

    # -- the app's

    async def receive(self) -> ASGIReceiveEvent:
        if self._before_body is not None:
            before, self._before_body = self._before_body, None
            await before()
        while not self._events:
            if self._farewell is not None:
                await trio.lowlevel.checkpoint()
                return self._farewell
            await self._wait()
        event = self._events.popleft()
        if self._changed is not None:
            self._wake()
        return event

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = trio.lowlevel.ParkingLot()
        await self._changed.park()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.unpark_all()


class HypercornConnection(H11Protocol):
    """One connection, from its first byte to its last.

    Owns: the guarded stream, the nursery of the applications and pings.   Borrows: the app, the worker's context.
    """

    def __init__(
        self, app: AppWrapper, config: Config, context: WorkerContext, state: LifespanState, stream: GuardedStream
    ) -> None:
        tasks = cast(TaskGroup, self)
        super().__init__(
            app, config, context, tasks, ConnectionState(state), stream.tls, None, None, self.protocol_send
        )
        self.guarded = stream
        self._nursery: trio.Nursery | None = None
        self._pings = trio.CancelScope()
        self._events: AppEvents | None = None  # of the application that was started last, while it runs
        self._certificate: str | None = None
        self._responding = False  # the head of the final response was sent
        self._corked = False  # writes are collected until `_uncork`
        self._cork = bytearray()
        self._writing = trio.Lock()

    async def run(self) -> None:
        """Serve requests until the peer is gone or the connection is closed."""
        guarded = self.guarded
        try:
            if not await guarded.handshake():
                return
            self._certificate = guarded.client_certificate()
            sock = guarded.socket
            self.client = parse_socket_addr(sock.family, sock.getpeername())
            self.server = parse_socket_addr(sock.family, sock.getsockname())
            async with trio.open_nursery() as self._nursery:
                try:
                    # A protocol error must not cancel the application: it is informed of the disconnect below.
                    with ConnectionGuard(guarded.hub, guarded.client) as guard:
                        await self._read()
                    if guard.caught:
                        guarded.kill()
                finally:
                    self._pings.cancel()  # they would sleep on after the peer is gone
                    if self._events is not None:
                        websocket = guarded.gate.phase in (ReadPhase.UPGRADING, ReadPhase.RAW)
                        self._events.hang_up(_SOCKET_GONE if websocket else _GONE)
        except OSError:
            pass  # the peer was gone before its address could be read
        finally:
            guarded.kill()
            del self.send, self.task_group  # both are this object: a cycle would wait for the garbage collector

    async def _read(self) -> None:
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            while True:
                while data := await self.guarded.receive_some():
                    await self.handle(RawData(data))
                if not (self.guarded.timer.expired and isinstance(self.stream, WebSocket)):
                    break
                await self.stream.close_late()  # and read on, so that the peer can receive the close frame
            await self.handle(RawData(b""))
        await self.handle(Closed())

    # -- requests

    @property
    def _head(self) -> RawHead:
        """The head of the request that is being served."""
        head = self.guarded.gate.head
        if head is None:
            raise RuntimeError("no request is being served on this connection")
        return head

    async def _check_protocol(self, event: h11.Request) -> None:
        """Do nothing: Hypercorn would switch to HTTP/2 here."""

    async def _create_stream(self, request: h11.Request) -> None:
        head = self._head
        kind: type[HTTPStream] | type[WebSocket] = WebSocket if head.websocket else HTTPStream
        self.stream = kind(
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
        if isinstance(self.stream, WebSocket):
            report = self.guarded.report
            self.stream.on_limit = lambda kind, limit: report(kind, limit=limit)
            self.stream.set_deadline = self.guarded.timer.set
            self.stream.keeping = self.guarded.keeping
            self.connection = H11WSConnection(cast(h11.Connection, self.connection))
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=request.headers.raw_items(),  # the gate has written the names in lower case
                http_version=head.version.decode(),
                method=head.method.decode(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()

    # -- tasks, in place of Hypercorn's `TaskGroup`

    def spawn(self, func: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Start Hypercorn's only task besides the application: the pings of a WebSocket."""
        self._tasks.start_soon(self._ping, func, *args, name="pings")

    @property
    def _tasks(self) -> trio.Nursery:
        if self._nursery is None:
            raise RuntimeError("this connection is not served yet")
        return self._nursery

    @trio.lowlevel.enable_ki_protection
    async def _ping(self, func: Callable[..., Awaitable[Any]], *args: Any) -> None:
        with self._pings:
            await func(*args)

    async def spawn_app(
        self, app: AppWrapper, config: Config, scope: Scope, send: AppSend
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start the application for one request, and return the function that passes it events."""
        head = self._head
        extensions = cast(HTTPScope, scope)["extensions"]
        extensions[TARGET_EXTENSION] = {"target": head.target}
        extensions[OWNER_EXTENSION] = {"set": self.guarded.set_owner}
        if head.websocket:
            extensions[MEMORY_EXTENSION] = {"use": self._use_memory}
        if self._certificate is not None:
            extensions["tls"] = {"client_cert_chain": (self._certificate,), "client_cert_error": None}
        before_body = self._send_continue if head.expects_continue else None
        # A message of a WebSocket may be as large as a body, and a body that waits for memory must not take much.
        events = self._events = AppEvents(before_body)
        self._tasks.start_soon(self._run_app, app, scope, events, send, name="app")
        return events.put

    def _use_memory(self, memory: MessageMemory) -> None:
        if isinstance(self.stream, WebSocket):  # its own method would be a cycle: it keeps its scope
            self.stream.use_memory(memory)

    @trio.lowlevel.enable_ki_protection
    async def _run_app(self, app: AppWrapper, scope: Scope, events: AppEvents, send: AppSend) -> None:
        try:
            await app(scope, events.receive, send, trio.to_thread.run_sync, trio.from_thread.run)
        except BaseException as error:  # reported, and answered with 500 below
            if not is_failure(error):
                raise
            report_failure(error, self.guarded.hub, self.guarded.client)
        finally:
            await send(None)  # 500 if nothing was sent; closes the connection if the response is incomplete
            if self._events is events:
                self._events = None

    # -- responses

    async def stream_send(self, event: StreamEvent) -> None:
        match event:
            case Response() if event.status_code >= 200:
                names = {name.lower() for name, _ in event.headers}
                if self.context.terminated.is_set() and b"connection" not in names:
                    event.headers.append((b"connection", b"close"))
                self._responding = True
                # A body of known length follows at once: one write for both. A stream may stay silent, so its head
                # must not wait for the first event.
                self._corked = b"content-length" in names
                await super().stream_send(event)
            case Body(data=data) if len(data) > WRITE_PIECE:  # h11 makes a copy of what it frames
                with self.guarded.keeping(len(data)):
                    for at in range(0, len(data), WRITE_PIECE):
                        await super().stream_send(Body(STREAM_ID, data[at : at + WRITE_PIECE]))
                        await self._uncork()
            case Body() | EndBody():
                await super().stream_send(event)
                await self._uncork()
            case StreamClosed():
                await self._uncork()
                await super().stream_send(event)
            case _:
                await super().stream_send(event)
                if isinstance(event, Response) and event.status_code == 101:
                    self.guarded.switch()

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        if type(event) is h11.Response or type(event) is h11.InformationalResponse:  # `isinstance` is slow for them
            # Hypercorn sends none. Events of h11 are frozen; a second one would check every header again.
            object.__setattr__(event, "reason", REASON_PHRASES[event.status_code].encode())
        await super()._send_h11_event(event)

    async def protocol_send(self, event: Event) -> None:
        """Perform an event of Hypercorn's protocol."""
        match event:
            case RawData(data=data):
                if self._corked:
                    self._cork += data
                elif data:
                    await self._write(data)
            case Closed():
                await self._uncork()
                await self.guarded.finish()
                await self.handle(Closed())
            case Updated(idle=True):
                # Hypercorn starts and cancels an idle task here, for every request. The next read has a deadline.
                self._responding = False
                self.guarded.response_done()

    async def _uncork(self) -> None:
        """Write what was held back."""
        self._corked = False
        if self._cork:
            data = bytes(self._cork)
            self._cork.clear()
            await self._write(data)

    async def _send_continue(self) -> None:
        """Send 100 Continue to a peer that waits for it; called when the application first asks for the body."""
        if self.guarded.gate.phase is ReadPhase.BODY and not self._responding:
            await self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _write(self, data: bytes) -> None:
        try:
            sent = 0 if self._writing.locked() else self.guarded.send_now(data)
            if sent < len(data):
                async with self._writing:
                    with trio.CancelScope(shield=True):  # a cancelled write would end in the middle of a chunk
                        await self.guarded.send_all(data, sent)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self.handle(Closed())


def hypercorn_config(config: HttpConfig) -> Config:
    """Return the settings that Hypercorn's protocol reads. Its sockets, TLS and timeouts are the listener's."""
    hyper = Config()
    hyper.errorlog = logging.getLogger("mcptrio.http")
    # The gate has already bounded the head; h11 holds at most one rewritten head or one chunk's size line.
    hyper.h11_max_incomplete_size = 2 * config.max_header_bytes
    hyper.include_server_header = False
    hyper.keep_alive_max_requests = config.keep_alive_max_requests
    hyper.websocket_max_message_size = config.websocket_max_message
    hyper.websocket_ping_interval = config.websocket_ping_interval
    return hyper


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
