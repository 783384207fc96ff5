"""The names of Hypercorn and wsproto that mcptrio depends on without a documented interface, checked at import."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from hypercorn.protocol.h11 import H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.protocol.ws_stream import WebsocketBuffer, WSStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from wsproto.connection import Connection as WebSocketConnection
from wsproto.connection import ConnectionType
from wsproto.frame_protocol import FrameProtocol


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
        "the connection replaces it: a disconnect never blocks, and an app that raises ends its own connection only",
    ),
    Pinned(TaskGroup.spawn, ("func",), "the connection replaces it: pings stop when the peer is gone"),
    Pinned(
        H11Protocol.__init__,
        ("app", "config", "context", "task_group", "connection_state", "ssl", "client", "server", "send"),
        "the connection creates the protocol itself, without the switch to HTTP/2",
    ),
    Pinned(H11Protocol, ("handle",), "the connection feeds the protocol"),
    Pinned(H11Protocol, ("_check_protocol",), "a second Upgrade line of a WebSocket handshake must not start HTTP/2"),
    Pinned(H11Protocol, ("stream_send",), "the head and the body of a response leave in one write"),
    Pinned(H11Protocol, ("_send_h11_event",), "responses have a reason phrase"),
    Pinned(WSStream, ("handle",), "a WebSocket that ends frees its last frame"),
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
    Pinned(FrameProtocol(client=False, extensions=[]), ("_parse_more",), "a WebSocket that ends frees its last frame"),
    Pinned(WebSocketConnection(ConnectionType.SERVER), ("_proto",), "a WebSocket that ends frees its last frame"),
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
