"""The endpoint on a real socket, and a client that reads its answers as they come."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import h11
import trio

from mcptrio._wire.sse import ServerSentEvent, SseReader
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
from tests import engines
from tests.transports.app_for_tests import LATEST, initialize, notification, open_endpoint

from .raw_peer import Served, serving


@asynccontextmanager
async def serving_endpoint(config: HttpConfig | None = None, **options: Any) -> AsyncIterator[tuple[Served, Endpoint]]:
    listener = options.pop("listener", {})
    async with open_endpoint(config, **options) as endpoint:
        direct = endpoint if engines.current() == "direct" else None
        shared = {"turns": endpoint.runtime.turns, "unread": endpoint.admission.unread}
        async with serving(AsgiApp(endpoint), direct=direct, shared=shared, **listener) as server:
            yield server, endpoint


class Response:
    """A response that is being read."""

    def __init__(self, stream: trio.SocketStream, parser: h11.Connection) -> None:
        self.stream = stream
        self._parser = parser
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
        self._sse = SseReader(16 * 2**20)
        self._events: list[ServerSentEvent] = []
        self.raw = b""

    async def _next(self) -> Any:
        while True:
            event = self._parser.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._parser.receive_data(await self.stream.receive_some(65536))

    async def start(self) -> Response:
        event = await self._next()
        assert isinstance(event, h11.Response)
        self.status = event.status_code
        self.headers = {name.decode(): value.decode() for name, value in event.headers}
        return self

    async def piece(self) -> bytes | None:
        event = await self._next()
        if isinstance(event, h11.EndOfMessage):
            self.complete = True
            return None
        assert isinstance(event, h11.Data)
        self.raw += bytes(event.data)
        return bytes(event.data)

    async def body(self) -> bytes:
        while await self.piece() is not None:
            pass
        return self.raw

    async def json(self) -> Any:
        return json.loads(await self.body())

    async def event(self) -> ServerSentEvent | None:
        """The next event with data; None when the response is complete."""
        while True:
            while self._events:
                event = self._events.pop(0)
                if event.data:
                    return event
            piece = await self.piece()
            if piece is None:
                return None
            self._events += self._sse.feed(piece)

    async def rest(self) -> list[ServerSentEvent]:
        found = []
        while (event := await self.event()) is not None:
            found.append(event)
        return found

    @property
    def cursor(self) -> str:
        """The id in the first line: that of the priming event."""
        return self.raw.split(b"\n")[0].removeprefix(b"id: ").decode()

    def reset(self) -> None:
        """Reset the connection."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.socket.close()


class Begun:
    """A request that is being sent."""

    def __init__(self, stream: trio.SocketStream, parser: h11.Connection, data: bytes) -> None:
        self.stream = stream
        self._parser = parser
        self._data = data

    async def go_on(self, count: int) -> Begun:
        """Send so many bytes."""
        now, self._data = self._data[:count], self._data[count:]
        await self.stream.send_all(now)
        return self

    async def finish(self) -> Response:
        """Send the rest, and wait for the beginning of the answer."""
        await self.stream.send_all(self._data)
        return await Response(self.stream, self._parser).start()


class HttpClient:
    """One session; every request on a connection of its own."""

    def __init__(self, server: Served, session_id: str | None = None) -> None:
        self.server = server
        self.session_id = session_id

    @classmethod
    async def open(cls, server: Served, date: str = LATEST, **capabilities: Any) -> HttpClient:
        client = cls(server)
        opened = await client.send("POST", initialize(date, **capabilities))
        assert opened.status == 200
        assert (await opened.json())["result"]["protocolVersion"] == date
        client.session_id = opened.headers["mcp-session-id"]
        received = await client.send("POST", notification("notifications/initialized"))
        assert (received.status, await received.body()) == (202, b"")
        return client

    async def send(self, method: str, body: bytes = b"", *, path: str = "/mcp", **headers: Any) -> Response:
        return await (await self.begin(method, body, path=path, **headers)).finish()

    async def begin(self, method: str, body: bytes = b"", *, path: str = "/mcp", **headers: Any) -> Begun:
        """Connect for a request, of which nothing is sent yet."""
        stream = await self.server.connect()
        fields = {
            "host": f"127.0.0.1:{self.server.address.port}",
            "accept": "application/json, text/event-stream",
            **({"content-type": "application/json", "content-length": len(body)} if method == "POST" else {}),
            **({"mcp-session-id": self.session_id} if self.session_id else {}),
            **{name.replace("_", "-"): value for name, value in headers.items() if value is not None},
        }
        parser = h11.Connection(h11.CLIENT)
        request = h11.Request(method=method, target=path, headers=[(n, str(v)) for n, v in fields.items()])
        data = (parser.send(request) or b"") + body
        if method == "POST":
            parser.send(h11.Data(data=body))
        parser.send(h11.EndOfMessage())
        return Begun(stream, parser, data)

    async def listen(self, cursor: str | None = None) -> Response:
        return await self.send("GET", last_event_id=cursor)
