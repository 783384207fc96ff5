"""A listener on loopback and a minimal client, for tests of single bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio

from mcptrio import telemetry
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.direct.engine import DirectEngine
from mcptrio.transports.http_server.hypercorn.connection import HypercornConnection, HypercornEngine
from mcptrio.transports.http_server.listener.listener import Listener
from mcptrio.transports.http_server.listener.sockets import BoundAddress
from tests import engines

App = Callable[[Any, Any, Any], Awaitable[None]]

WEBSOCKET = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


class Served:
    """A running listener, its events, and a way to connect to it."""

    def __init__(self, listener: Listener, address: BoundAddress, events: list[telemetry.Event]) -> None:
        self.listener = listener
        self.address = address
        self.events = events
        self.closing = ExitStack()  # what the test opened

    def count(self, kind: str) -> int:
        """Return how many events of its connections had this kind."""
        return sum(isinstance(event, telemetry.ConnectionEvent) and event.kind == kind for event in self.events)

    def caught(self, layer: str = "connection") -> int:
        """Return how many exceptions a guard caught."""
        return sum(isinstance(event, telemetry.GuardCaught) and event.layer == layer for event in self.events)

    async def connect(self) -> trio.SocketStream:
        """A connection to the listener, closed at the end of `serving` if not before."""
        if self.address.path is not None:
            stream = await trio.open_unix_socket(self.address.path)
        else:
            stream = await trio.open_tcp_stream(self.address.host, self.address.port)
        self.closing.callback(stream.socket.close)
        return stream

    async def ask(self, request: bytes) -> bytes:
        """Everything the server answers on a connection of its own, until it closes or falls silent."""
        async with await self.connect() as stream:
            await stream.send_all(request)
            return await read_all(stream)

    async def is_alive(self) -> bool:
        return b"200" in await self.ask(get("/hello", close=True))


@asynccontextmanager
async def serving(app: App, **settings: Any) -> AsyncIterator[Served]:
    """A listener on a free port; closed by force at the end. Times out rather than hang the suite."""
    events: list[telemetry.Event] = []
    sockets, endpoint = settings.pop("sockets", None), settings.pop("direct", None)
    shared = settings.pop("shared", {})
    if endpoint is None and engines.current() == "direct":
        # An endpoint that is never asked for: the direct engine reads everything and hands it over.
        endpoint, settings["path"] = SimpleNamespace(), "/not-asked-for"
    config = HttpConfig(**{"port": 0, **({} if endpoint is None else _settings(endpoint)), **settings})
    hypercorn = HypercornEngine(app, config)
    engine: HypercornEngine | DirectEngine = hypercorn
    if endpoint is not None:
        engine = DirectEngine(endpoint, config)
        engine._hypercorn = hypercorn.serve  # so that the app of the test serves what it hands over
    listener = Listener(engine.serve, config, telemetry.Hub([events.append]), sockets=sockets, **shared)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            bound: list[BoundAddress] = await nursery.start(listener.serve)
            server = Served(listener, bound[0], events)
            with server.closing:
                yield server
            await listener.close(trio.current_time())


def listening(app: App, hub: telemetry.Hub | None = None, **settings: Any) -> Listener:
    """Return a listener that serves an ASGI application with Hypercorn."""
    config = HttpConfig(**settings)
    return Listener(HypercornEngine(app, config).serve, config, hub)


def _settings(endpoint: Any) -> dict[str, Any]:
    """Return the settings of an endpoint, for the listener in front of it."""
    config = getattr(endpoint, "config", None)
    return {} if config is None else {**attrs.asdict(config, recurse=False), "port": 0}


def break_protocol(monkeypatch: pytest.MonkeyPatch, trigger: bytes, fault: BaseException) -> None:
    """Make Hypercorn's protocol raise for a request with the trigger in its head."""
    handle = HypercornConnection.handle

    async def handle_or_fail(self: HypercornConnection, event: Any) -> None:
        if trigger in getattr(event, "data", b""):
            raise fault
        await handle(self, event)

    monkeypatch.setattr(HypercornConnection, "handle", handle_or_fail)


def get(path: str, *lines: str, close: bool = False) -> bytes:
    extra = "".join(f"{line}\r\n" for line in (*lines, *(("Connection: close",) if close else ())))
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{extra}\r\n".encode("latin-1")


def post(path: str, body: bytes, *lines: str) -> bytes:
    extra = "".join(f"{line}\r\n" for line in lines)
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body


async def read_all(stream: trio.abc.ReceiveStream, *, silence: float = 2) -> bytes:
    """All bytes until the end of the stream, a reset, or silence."""
    data = b""
    while True:
        with trio.move_on_after(silence):
            try:
                piece = await stream.receive_some()
            except trio.BrokenResourceError:
                return data
            if not piece:
                return data
            data += piece
            continue
        return data


async def read_until(stream: trio.abc.ReceiveStream, end: bytes) -> bytes:
    data = b""
    while end not in data:
        piece = await stream.receive_some()
        assert piece, f"the server closed after {data!r}"
        data += piece
    return data


def status(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


# -- apps


async def read_body(receive: Any) -> bytes:
    body = b""
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return body
        body += event["body"]
        if not event["more_body"]:
            return body


async def answer(send: Any, code: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": code, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the request as JSON, and echo WebSocket messages."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (event := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": event["text"], "bytes": event["bytes"]})
        return
    received = {
        "method": scope["method"],
        "path": scope["path"],
        "target": scope["extensions"]["mcptrio.target"]["target"].decode(),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "body": (await read_body(receive)).decode("latin-1"),
    }
    await answer(send, 200, json.dumps(received).encode())


class Streaming:
    """An app with one open stream per request: sends beats until it is stopped or the client is gone."""

    def __init__(self, beat: float = 3600) -> None:
        self.beat = beat
        self.opened = trio.Event()
        self.disconnected = trio.Event()
        self.ended = trio.Event()
        self.stop = trio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await read_body(receive)
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            await send({"type": "http.response.body", "body": b": hello\n\n", "more_body": True})
            self.opened.set()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, receive)
                while not self.stop.is_set() and not self.disconnected.is_set():
                    with trio.move_on_after(self.beat):
                        await self.stop.wait()
                    await send({"type": "http.response.body", "body": b": beat\n\n", "more_body": True})
                nursery.cancel_scope.cancel()
            await send({"type": "http.response.body", "body": b": bye\n\n"})
        finally:
            self.ended.set()

    async def _watch(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.disconnected.set()
        self.stop.set()


async def answer_on(stream: trio.SocketStream) -> tuple[bytes, Any]:
    """The next response on a connection: its head, and its body as JSON."""
    head = await read_until(stream, b"\r\n\r\n")
    head, _, body = head.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += await stream.receive_some()
    assert len(body) == length
    return head, json.loads(body)
