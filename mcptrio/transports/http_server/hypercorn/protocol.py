"""Hypercorn's HTTP/1.1 protocol behind a gate, and the table of Hypercorn's names that mcptrio depends on.

The gate in front has checked every head and written it again, so h11 and the gate cannot read the same bytes
differently. HTTP/2 is never reached: the gate refuses its preface and removes every offer to upgrade to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import h11
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.protocol.ws_stream import WebsocketBuffer, WSStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState, H11SendableEvent
from hypercorn.typing import TaskGroup as AnyTaskGroup

from mcptrio.transports.http_server.listener.framing import reason_phrase

from .websocket import WebSocket

if TYPE_CHECKING:
    from .connection import AppTasks, HypercornConnection


class Pinned(NamedTuple):
    """Names of Hypercorn's, or parameters of one of its functions, that are not a documented interface."""

    owner: Any
    names: tuple[str, ...]
    reason: str


_STREAM: Final = ("app", "config", "context", "task_group", "ssl", "client", "server", "send", "stream_id")
_PINNED: Final = (
    Pinned(
        TCPServer.__init__,
        ("app", "config", "context", "state", "stream"),
        "install_guard() replaces this class in Hypercorn's worker, and is called like it",
    ),
    Pinned(
        TaskGroup.spawn_app,
        ("app", "config", "scope", "send"),
        "AppTasks replaces it: a disconnect never blocks, and an app that raises ends its own connection only",
    ),
    Pinned(TaskGroup.spawn, ("func",), "AppTasks replaces it: pings stop when the peer is gone"),
    Pinned(
        H11Protocol.__init__,
        ("app", "config", "context", "task_group", "connection_state", "ssl", "client", "server", "send"),
        "the connection creates the protocol itself, without the switch to HTTP/2",
    ),
    Pinned(H11Protocol, ("handle",), "the connection feeds the protocol"),
    Pinned(H11Protocol, ("_check_protocol",), "a second Upgrade line of a WebSocket handshake must not start HTTP/2"),
    Pinned(H11Protocol, ("stream_send",), "the head and the body of a response leave in one write"),
    Pinned(H11Protocol, ("_send_h11_event",), "responses have a reason phrase"),
    Pinned(H11Protocol, ("_create_stream",), "the gate has decided which requests are WebSockets"),
    Pinned(HTTPStream.__init__, _STREAM, "the protocol creates the stream of a request"),
    Pinned(WSStream.__init__, _STREAM, "the protocol creates the stream of a WebSocket, with byte limits"),
    Pinned(
        WSStream,
        ("_handle_events", "_send_wsproto_event"),
        "a WebSocket that breaks a rule is closed with the reason",
    ),
    Pinned(WSStream, ("_send_pings",), "a WebSocket whose peer does not answer a ping is closed"),
    Pinned(WebsocketBuffer, ("extend", "clear", "to_message"), "the limit of a WebSocket message counts bytes"),
    Pinned(WorkerContext(None), ("terminated",), "draining ends connections after their response"),
)


def check_private_names(table: tuple[Pinned, ...] = _PINNED) -> None:
    """Raise ImportError when the installed Hypercorn is not the one these classes were written for."""
    for owner, names, reason in table:
        code = getattr(owner, "__code__", None)
        known = code.co_varnames[1 : code.co_argcount] if code is not None else dir(owner)
        missing = [name for name in names if name not in known]
        if missing:
            title = getattr(owner, "__qualname__", type(owner).__qualname__)
            raise ImportError(
                f"mcptrio needs hypercorn 0.18: in the installed one {title} has no {', '.join(missing)} "
                f"(needed because {reason}). Install 'hypercorn>=0.18,<0.19'."
            )


check_private_names()


class GuardedH11(H11Protocol):
    """Hypercorn's HTTP/1.1 protocol for one connection, fed by its gate."""

    def __init__(self, connection: HypercornConnection, tasks: AppTasks, client: Any, server: Any) -> None:
        super().__init__(
            connection.app,
            connection.config,
            connection.context,
            cast(AnyTaskGroup, tasks),
            ConnectionState(connection.state),
            connection.guarded.tls,
            client,
            server,
            connection.protocol_send,
        )
        self._connection = connection

    async def _check_protocol(self, event: h11.Request) -> None:
        """Do nothing: Hypercorn would switch to HTTP/2 here."""

    async def _create_stream(self, request: h11.Request) -> None:
        head = self._connection.head
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
            guarded = self._connection.guarded
            self.stream.on_limit = lambda kind, limit: guarded.report(kind, limit=limit)
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

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        if isinstance(event, h11.Response | h11.InformationalResponse):
            # Hypercorn sends none. Events of h11 are frozen; a second one would check every header again.
            object.__setattr__(event, "reason", reason_phrase(event.status_code).encode())
        await super()._send_h11_event(event)

    async def stream_send(self, event: StreamEvent) -> None:
        connection = self._connection
        match event:
            case Response() if event.status_code >= 200:
                names = {name.lower() for name, _ in event.headers}
                if self.context.terminated.is_set() and b"connection" not in names:
                    event.headers.append((b"connection", b"close"))
                connection.responding = True
                # A body of known length follows at once: one write for both. A stream may stay silent, so its head
                # must not wait for the first event.
                connection.corked = b"content-length" in names
                await super().stream_send(event)
            case Body() | EndBody():
                await super().stream_send(event)
                await connection.uncork()
            case StreamClosed():
                await connection.uncork()
                await super().stream_send(event)
            case _:
                await super().stream_send(event)
                if isinstance(event, Response) and event.status_code == 101:
                    connection.guarded.switch()
