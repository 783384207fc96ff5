"""Limits per principal, over all its connections: of HTTP, WebSocket and HTTP+SSE."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import define
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import Server
from mcptrio._actors.limits import Limits
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import Plain, Stream
from mcptrio.transports.websocket.server import serve_websocket
from tests.transports.app_for_tests import LATEST, Reader, exchange, head, initialize, request

from .callers import TOKENS, Caller, open_protected

TRANSPORTS = ("websocket", "sse")


def make_server(limits: Limits) -> Server:
    server = Server("slow", limits=limits)

    @server.tool(timeout=600)
    async def slow(seconds: float = 100) -> str:
        await trio.sleep(seconds)
        return "done"

    return server


@define(eq=False)
class Socket:
    """A client at a WebSocket."""

    to_app: Any
    said: list[dict[str, Any]]

    @classmethod
    async def open(cls, endpoint: Endpoint, nursery: trio.Nursery, name: str) -> Socket:
        to_app, from_client = trio.open_memory_channel[dict[str, Any]](1000)
        said: list[dict[str, Any]] = []

        async def hear(event: dict[str, Any]) -> None:
            said.append(event)

        headers = [(b"host", b"localhost:8000"), (b"authorization", f"Bearer {TOKENS[name]}".encode())]
        scope = {
            "type": "websocket",
            "path": "/mcp",
            "scheme": "ws",
            "headers": headers,
            "subprotocols": ["mcp"],
            "extensions": {"websocket.http.response": {}},
        }
        await to_app.send({"type": "websocket.connect"})
        nursery.start_soon(serve_websocket, endpoint, scope, from_client.receive, hear)
        socket = cls(to_app, said)
        await socket.send(initialize())
        return socket

    async def send(self, body: bytes) -> None:
        await self.to_app.send({"type": "websocket.receive", "text": body.decode()})
        await wait_all_tasks_blocked()

    async def error_of(self, body: bytes) -> dict[str, Any] | None:
        """Send a request; gives its error, if it was answered with one at once."""
        await self.send(body)
        wanted = json.loads(body)["id"]
        frames = [json.loads(event["text"]) for event in self.said if "text" in event]
        return next((frame["error"] for frame in frames if frame["id"] == wanted and "error" in frame), None)

    @property
    def status(self) -> int:
        return int(next((event["status"] for event in self.said if "status" in event), 101))

    async def close(self) -> None:
        await self.to_app.send({"type": "websocket.disconnect", "code": 1000})
        await wait_all_tasks_blocked()


@define(eq=False)
class Pair:
    """A client at the two endpoints of HTTP+SSE."""

    endpoint: Endpoint
    name: str
    reader: Reader | None
    status: int
    query: bytes = b""
    opened: Any = None

    @classmethod
    async def open(cls, endpoint: Endpoint, nursery: trio.Nursery, name: str) -> Pair:
        authorization = f"Bearer {TOKENS[name]}"
        opened = await exchange(endpoint, head("GET", "/sse", authorization=authorization))
        if isinstance(opened, Plain):
            return cls(endpoint, name, None, opened.status)
        reader = Reader(opened)
        event = await reader.event()
        assert event is not None
        pair = cls(endpoint, name, reader, 101, event.data.decode().partition("?")[2].encode(), opened)
        await pair.error_of(initialize("2024-11-05"))
        return pair

    async def error_of(self, body: bytes) -> dict[str, Any] | None:
        authorization = f"Bearer {TOKENS[self.name]}"
        sent = head("POST", "/messages", query=self.query, accept="*/*", authorization=authorization)
        reply = await exchange(self.endpoint, sent, body)
        await wait_all_tasks_blocked()
        assert isinstance(reply, Plain)
        if reply.status == 202:
            return None
        error = json.loads(reply.body)["error"]
        assert reply.status == (503 if error["data"]["limit"] == "max_calls" else 429)
        assert dict(reply.headers)[b"retry-after"] == b"%d" % error["data"]["retryAfter"]
        return dict(error)

    async def close(self) -> None:
        assert isinstance(self.opened, Stream)
        self.opened.events.detach("gone")
        await wait_all_tasks_blocked()


CLIENTS: dict[str, Any] = {"websocket": Socket, "sse": Pair}


def call(number: int, **arguments: Any) -> bytes:
    return request(number, "tools/call", name="slow", arguments=arguments)


@asynccontextmanager
async def opened(busy_timeout: float = 0.25, **settings: Any) -> AsyncIterator[tuple[Endpoint, trio.Nursery]]:
    config = HttpConfig(legacy_sse=True, **settings)
    server = make_server(limits=Limits(busy_timeout=busy_timeout))
    async with open_protected(server, config=config) as endpoint, trio.open_nursery() as nursery:
        yield endpoint, nursery
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_calls_are_counted_over_all_connections_of_a_principal(transport: str, autojump_clock: MockClock) -> None:
    async with opened(max_calls_per_principal=4) as (endpoint, nursery):
        kind = CLIENTS[transport]
        first, second, bob = [await kind.open(endpoint, nursery, name) for name in ("ada", "ada", "bob")]
        for number in (10, 11):
            assert await first.error_of(call(number, seconds=50)) is None
            assert await second.error_of(call(number)) is None
        for client in (first, second):
            error = await client.error_of(call(12))
            assert (error["code"], error["data"]) == (-32603, {"retryAfter": 1, "limit": "max_calls_per_principal"})
        assert await bob.error_of(call(12)) is None
        over_http = await Caller.open(endpoint, "2026-07-28", "ada")
        refused = await over_http.call("slow")
        assert (refused.status, refused.error["data"]["limit"]) == (429, "max_calls_per_principal")
        await trio.sleep(60)
        assert await first.error_of(call(13)) is None, "two calls are done"
        await second.close()
        assert [await first.error_of(call(number)) for number in (14, 15, 16)] == [None] * 3, "two went with theirs"
        assert (await first.error_of(call(17)))["data"]["limit"] == "max_calls_per_principal"


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_calls_of_the_whole_process_are_counted_whatever_carries_them(
    transport: str, autojump_clock: MockClock
) -> None:
    """Places that sockets took are taken for HTTP too, and the other way round; each is free when its call is done."""
    async with opened(max_calls=4) as (endpoint, nursery):
        kind = CLIENTS[transport]
        first, second = [await kind.open(endpoint, nursery, name) for name in ("ada", "bob")]
        over_http = await Caller.open(endpoint, "2026-07-28", "eve")
        for number in (10, 11):
            assert await first.error_of(call(number, seconds=50)) is None
        assert await second.error_of(call(10, seconds=70)) is None
        nursery.start_soon(over_http.call, "slow")
        await wait_all_tasks_blocked()
        for client in (first, second):
            error = await client.error_of(call(12))
            assert (error["code"], error["data"]) == (-32603, {"retryAfter": 1, "limit": "max_calls"})
        began = trio.current_time()
        refused = await over_http.call("slow")
        assert (refused.status, refused.error["data"]["limit"]) == (503, "max_calls")
        assert trio.current_time() - began == pytest.approx(0.25)
        await trio.sleep(60)
        assert [await client.error_of(call(13)) for client in (second, first)] == [None] * 2, "two calls are done"
        assert (await first.error_of(call(15)))["data"]["limit"] == "max_calls"
        await second.close()
        await trio.sleep(1)
        for number in range(16, 30):
            assert await first.error_of(call(number, seconds=0.5)) is None, "they went with theirs"
            await trio.sleep(1)


@pytest.mark.defect("S7")
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_one_principal_cannot_take_every_call_of_the_process(transport: str, autojump_clock: MockClock) -> None:
    async with opened(max_calls=8) as (endpoint, nursery):
        kind = CLIENTS[transport]
        bob = await Caller.open(endpoint, "2026-07-28", "bob")
        assert (await bob.call("slow", seconds=0)).status == 200
        greedy = [await kind.open(endpoint, nursery, "ada") for _ in range(2)]
        errors = [await client.error_of(call(number)) for number in range(10, 14) for client in greedy]
        assert [error is None for error in errors] == [True] * 6 + [False] * 2
        assert (await bob.call("slow", seconds=0)).status == 200


async def test_a_request_that_waits_for_a_place_has_that_of_a_socket_in_time(autojump_clock: MockClock) -> None:
    async with opened(max_calls=1, busy_timeout=10) as (endpoint, nursery):
        socket = await Socket.open(endpoint, nursery, "ada")
        assert await socket.error_of(call(10, seconds=5)) is None
        over_http = await Caller.open(endpoint, "2026-07-28", "bob")
        assert (await over_http.call("slow", seconds=1)).status == 200
        assert (endpoint.calls, endpoint.admission.places.waiting) == (0, 0)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_rate_counts_over_all_connections_of_a_principal(transport: str, autojump_clock: MockClock) -> None:
    async with opened(rate=0.25, rate_burst=4) as (endpoint, nursery):
        kind = CLIENTS[transport]
        first, second = [await kind.open(endpoint, nursery, "ada") for _ in range(2)]  # two are spent
        assert await first.error_of(call(10)) is None
        assert await second.error_of(call(10)) is None
        error = await first.error_of(call(11))
        assert error["data"] == {"retryAfter": 4, "limit": "rate"}
        bob = await kind.open(endpoint, nursery, "bob")
        assert await bob.error_of(call(10)) is None
        await trio.sleep(4)
        assert await second.error_of(call(12)) is None


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_sessions_are_counted_whatever_carries_them(transport: str, autojump_clock: MockClock) -> None:
    async with opened(max_sessions_per_principal=2) as (endpoint, nursery):
        kind = CLIENTS[transport]
        over_http = await Caller.open(endpoint, LATEST, "ada")
        first = await kind.open(endpoint, nursery, "ada")
        second = await kind.open(endpoint, nursery, "ada")
        assert (first.status, second.status) == (101, 503)
        assert (await kind.open(endpoint, nursery, "bob")).status == 101
        assert sorted(endpoint.admission.sessions.values()) == [1, 2]
        await first.close()
        await trio.sleep(1)
        assert (await kind.open(endpoint, nursery, "ada")).status == 101
        assert (await over_http.ask("ping")).status == 200
