"""A scripted web server, without sockets: the requests it got, and its responses, to the byte."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
import trio

URL = "http://server.test/mcp"


@dataclass
class Asked:
    """One HTTP request."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def frame(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body) if self.body else {}
        return found

    @property
    def rpc(self) -> str:
        return str(self.frame.get("method", ""))


Piece = bytes | float | Exception
"""Bytes to send, seconds to wait, or how the connection breaks."""


class Body(httpx2.AsyncByteStream):
    def __init__(self, pieces: list[Piece] | AsyncIterator[bytes], web: Web) -> None:
        self._pieces, self._web = pieces, web
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if not isinstance(self._pieces, list):
            async for data in self._pieces:
                yield data
            return
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, bytes):
                await trio.lowlevel.checkpoint()
                yield piece
            else:
                await trio.sleep(piece)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            if isinstance(self._pieces, AsyncGenerator):
                await self._pieces.aclose()
            self._web.closed += 1


@dataclass
class Answer:
    status: int = 200
    body: Any = b""
    """Bytes, something to write as JSON, or a list of pieces."""
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Asked], Awaitable[Answer] | Answer]


@dataclass
class Web(httpx2.AsyncBaseTransport):
    """The web as a client's HTTP requests see it."""

    handler: Handler
    asked: list[Asked] = field(default_factory=list)
    closed: int = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        body = await request.aread()
        asked = Asked(request.method, str(request.url), dict(request.headers), body, trio.current_time())
        self.asked.append(asked)
        answer = self.handler(asked)
        if not isinstance(answer, Answer):
            answer = await answer
        headers, content = dict(answer.headers), answer.body
        if isinstance(content, dict):
            content = json.dumps(content).encode()
            headers.setdefault("content-type", "application/json")
        pieces = content if not isinstance(content, bytes) else [content]
        if isinstance(pieces, list) and "content-type" not in headers and answer.status == 200 and answer.body:
            headers["content-type"] = "text/event-stream"
        return httpx2.Response(answer.status, headers=headers, stream=Body(pieces, self))

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=self, timeout=None)

    def of(self, rpc: str) -> list[Asked]:
        return [one for one in self.asked if one.rpc == rpc]


def event(message: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    """An SSE event with a message, or without data."""
    lines = [f"{name}: {value}" for name, value in fields.items()]
    lines.append("data: " + (json.dumps(message) if message is not None else ""))
    return ("\n".join(lines) + "\n\n").encode()


def result(asked: Asked | dict[str, Any], **values: Any) -> dict[str, Any]:
    frame = asked.frame if isinstance(asked, Asked) else asked
    return {"jsonrpc": "2.0", "id": frame["id"], "result": values}


def refusal(asked: Asked, code: int, data: Any = None) -> dict[str, Any]:
    error = {"code": code, "message": "no"} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": asked.frame.get("id"), "error": error}


CAPABILITIES = {"tools": {}, "resources": {}, "prompts": {}}


def stateful(date: str, then: Handler, *, session: str | None = "s-1") -> Handler:
    """A server of a stateful date: the handshake is done, everything else is `then`'s."""

    def handle(asked: Asked) -> Awaitable[Answer] | Answer:
        if asked.rpc == "server/discover":
            return Answer(400, b"Bad Request: no session")
        if asked.rpc == "initialize":
            body = result(
                asked,
                protocolVersion=date,
                capabilities=CAPABILITIES,
                serverInfo={"name": "web", "version": "1"},
            )
            return Answer(200, body, {"mcp-session-id": session} if session else {})
        if asked.rpc == "notifications/initialized":
            return Answer(202)
        if asked.method == "DELETE":
            return Answer(200)
        if asked.method == "GET" and "last-event-id" not in asked.headers:
            return Answer(405)
        return then(asked)

    return handle


def stateless(date: str, then: Handler) -> Handler:
    def handle(asked: Asked) -> Awaitable[Answer] | Answer:
        if asked.rpc == "server/discover":
            return Answer(
                200,
                result(
                    asked,
                    resultType="complete",
                    supportedVersions=[date],
                    capabilities=CAPABILITIES,
                    ttlMs=0,
                    cacheScope="private",
                ),
            )
        return then(asked)

    return handle
