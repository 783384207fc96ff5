"""The direct engine: what it answers itself, what it hands over, and that a client cannot tell the difference."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest
import trio

from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
from tests.transports.app_for_tests import Ctx, Stage, open_endpoint, request

from .http_peer import HttpClient
from .raw_peer import WEBSOCKET, Served, answer_on, get, read_all, read_until, serving, status

BOTH = "Accept: application/json, text/event-stream"
JSON = "Content-Type: application/json"


@asynccontextmanager
async def served(
    config: HttpConfig | None = None, *, engine: str = "direct", stage: Stage | None = None, **listener: Any
) -> AsyncIterator[tuple[Served, Endpoint]]:
    options = {} if stage is None else {"stage": stage}
    async with open_endpoint(config, **options) as endpoint:
        direct = endpoint if engine == "direct" else None
        async with serving(AsgiApp(endpoint), direct=direct, **listener) as server:
            yield server, endpoint


def post(body: bytes, *lines: str, session: str | None = None, path: str = "/mcp") -> bytes:
    extra = [BOTH, JSON, *lines, *([f"Mcp-Session-Id: {session}"] if session else [])]
    head = "".join(f"{line}\r\n" for line in extra)
    return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


async def test_requests_on_one_connection_are_answered_one_after_the_other() -> None:
    async with served() as (server, _):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            for number in range(1, 4):
                await stream.send_all(post(request(number, "echo", say=number), session=client.session_id))
                head, answer = await answer_on(stream)
                assert status(head) == 200
                assert b"date: " in head
                assert (answer["id"], answer["result"]) == (number, {"echo": number})


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with served() as (server, _):
        client = await HttpClient.open(server)
        sent = [post(request(n, "echo", say=n), session=client.session_id) for n in range(1, 6)]
        last = post(request(6, "echo", say=6), "Connection: close", session=client.session_id)
        received = await server.ask(b"".join([*sent, last]))
        assert [json.loads(part.partition(b"\r\n\r\n")[2])["id"] for part in received.split(b"HTTP/1.1 ")[1:]] == [
            1, 2, 3, 4, 5, 6,
        ]  # fmt: skip
        assert received.count(b"connection: close") == 1


async def test_a_request_that_comes_byte_by_byte_is_understood() -> None:
    async with served() as (server, _):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            for byte in post(request(1, "echo", say="x"), session=client.session_id):
                await stream.send_all(bytes([byte]))
            _, answer = await answer_on(stream)
            assert answer["result"] == {"echo": "x"}


@pytest.mark.parametrize(
    "ask",
    [
        get("/readyz", close=True),
        get("/nowhere", close=True),
        b"GET http://127.0.0.1/readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"POST /mcp HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}",
        post(b"{}", "Connection: close", path="/%6dcp"),
        b"OPTIONS /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{BOTH}\r\n{JSON}\r\nTransfer-Encoding: chunked\r\n"
        "Connection: close\r\n\r\n2\r\n{}\r\n0\r\n\r\n".encode(),
        post(b"[", "Connection: close"),
        post(b"{}", "Connection: close", "Origin: https://evil.example"),
        post(b"{}", "Connection: close", "Content-Encoding: gzip"),
        b"GET /mcp HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1, 2\r\n\r\n",
        b"\x16\x03\x01 not http\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_both_engines_answer_the_same(ask: bytes) -> None:
    """A client cannot distinguish the engines, except by the reason phrase."""
    received = []
    for engine in ("hypercorn", "direct"):
        async with served(engine=engine) as (server, _):
            response = await server.ask(ask)
            head, _, body = response.partition(b"\r\n\r\n")
            lines = sorted(line for line in head.lower().split(b"\r\n")[1:] if not line.startswith(b"date:"))
            received.append((status(response), lines, body))
    assert received[0] == received[1]


async def test_a_websocket_is_handed_over() -> None:
    async with served() as (server, _):
        ask = WEBSOCKET.replace(b"/ws", b"/mcp").replace(b"Host: x", b"Host: 127.0.0.1")
        async with await server.connect() as stream:
            await stream.send_all(ask + b"Sec-WebSocket-Protocol: mcp\r\n\r\n")
            assert status(await read_until(stream, b"\r\n\r\n")) == 101


async def test_a_connection_that_was_handed_over_still_serves_the_endpoint() -> None:
    async with served() as (server, _):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            await stream.send_all(get("/livez").replace(b"Host: x", b"Host: 127.0.0.1"))
            await read_until(stream, b"ok\n")
            await stream.send_all(post(request(1, "echo", say=1), session=client.session_id))
            _, answer = await answer_on(stream)
            assert answer["result"] == {"echo": 1}


async def test_a_disconnect_ends_a_stream_once_the_call_has_lasted() -> None:
    async with served(HttpConfig(stream_after=0.02, heartbeat=60)) as (server, endpoint):
        client = await HttpClient.open(server)
        response = await client.send("POST", request(1, "sleep", seconds=60))
        assert response.headers["content-type"] == "text/event-stream"
        session = endpoint.runtime.supervisor.find(client.session_id or "")
        assert session is not None
        await until(lambda: bool(session.link.connections))  # type: ignore[attr-defined]
        response.reset()
        await until(lambda: not session.link.connections)  # type: ignore[attr-defined]


async def test_a_disconnect_is_seen_although_no_stream_is_ever_opened() -> None:
    async with served(HttpConfig(json_only=True)) as (server, endpoint):
        client = await HttpClient.open(server)
        before = server.listener.connections
        async with await server.connect() as stream:
            await stream.send_all(post(request(1, "sleep", seconds=60), session=client.session_id))
            await until(lambda: endpoint.calls == 1)
        await until(lambda: server.listener.connections == before)


# -- a handler runs in the task of its connection on the direct engine, and in a task of its session on the other

MARK: ContextVar[str] = ContextVar("mark", default="none")


class Marking(Stage):
    """Handlers that leave a mark in their context, and tell which one they found."""

    async def echo(self, ctx: Ctx, params: dict[str, Any]) -> dict[str, Any]:
        found = MARK.get()
        MARK.set(str(params["say"]))
        if params.get("wait"):
            await trio.sleep(0.01)
            assert MARK.get() == params["say"]
        return {"found": found, "task": trio.lowlevel.current_task().name}


@pytest.mark.parametrize("wait", [False, True])
async def test_context_variables_of_a_handler_do_not_reach_the_next_request(wait: bool, engine: str) -> None:
    async with served(engine=engine, stage=Marking()) as (server, _):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            for number in range(1, 5):
                body = request(number, "echo", say=f"mark {number}", wait=wait)
                await stream.send_all(post(body, session=client.session_id))
                _, answer = await answer_on(stream)
                assert answer["result"]["found"] == "none"
            # A handler that runs in the reader's task sees the name that a task of its own would have.
            assert answer["result"]["task"].startswith("echo · session ")


async def test_a_connection_goes_on_after_handlers_that_wait_and_leaves_no_task_behind(engine: str) -> None:
    async with served(engine=engine) as (server, _):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            await stream.send_all(post(request(1, "echo", say=1), session=client.session_id))
            await answer_on(stream)
            before = trio.lowlevel.current_statistics().tasks_living
            for number in range(2, 8):
                method, params = ("echo", {"say": 1}) if number % 2 else ("sleep", {"seconds": 0.01})
                await stream.send_all(post(request(number, method, **params), session=client.session_id))
                _, answer = await answer_on(stream)
                assert answer["id"] == number
            await until(lambda: trio.lowlevel.current_statistics().tasks_living <= before)
        assert server.caught() == 0


@pytest.mark.parametrize("stream_after", [60, 0.02])
async def test_a_cancelled_call_leaves_its_connection_usable(engine: str, stream_after: float) -> None:
    """Before its response has begun as a stream, and after it."""
    stage = Stage()
    async with served(HttpConfig(stream_after=stream_after), engine=engine, stage=stage) as (server, _):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            await stream.send_all(post(request(1, "sleep", seconds=60, name="long"), session=client.session_id))
            await until(lambda: stage.begun == ["long"])
            head = b"" if stream_after == 60 else await read_until(stream, b"\r\n\r\n")
            cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
            assert status(await server.ask(post(cancel, "Connection: close", session=client.session_id))) == 202
            head += await read_until(stream, b":\n\n" if stream_after == 60 else b"0\r\n\r\n")
            assert status(head) == 200
            assert stage.ended == ["long"]
            await stream.send_all(post(request(2, "echo", say=2), session=client.session_id))
            _, answer = await answer_on(stream)
            assert answer["result"] == {"echo": 2}


async def test_a_handler_outlives_the_connection_whose_task_it_runs_in(engine: str) -> None:
    stage = Stage()
    async with served(HttpConfig(stream_after=0.02), engine=engine, stage=stage) as (server, endpoint):
        client = await HttpClient.open(server)
        before = server.listener.connections
        response = await client.send("POST", request(1, "sleep", seconds=0.3, name="long"))
        await until(lambda: stage.begun == ["long"])
        response.reset()
        await until(lambda: server.listener.connections <= before)
        assert stage.ended == []
        await until(lambda: stage.ended == ["long"])
        await until(lambda: endpoint.calls == 0)


async def test_a_crash_of_the_exchange_is_answered_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as (server, endpoint):
        client = await HttpClient.open(server)

        async def broken(head: Any, body: bytes) -> Any:
            raise RuntimeError("no")

        monkeypatch.setattr(type(endpoint), "answer", lambda self, head, body: broken(head, body))
        received = await server.ask(post(request(1, "echo"), session=client.session_id))
        assert status(received) == 500
        assert b"no" not in received.partition(b"\r\n\r\n")[2].replace(b"internal error", b"")
        assert server.caught("request") == 1


async def test_a_body_that_does_not_come_is_timed_out() -> None:
    async with served(HttpConfig(body_timeout=0.05)) as (server, _):
        async with await server.connect() as stream:
            await stream.send_all(post(request(1, "echo"))[:-5])
            received = await read_all(stream)
        assert status(received) == 408
        assert b"connection: close" in received


async def test_an_idle_connection_ends_when_the_listener_drains() -> None:
    async with served() as (server, _):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            await stream.send_all(post(request(1, "echo", say=1), session=client.session_id))
            await answer_on(stream)
            server.listener.stop_accepting()
            assert await read_all(stream) == b""


async def test_an_idle_connection_and_a_slow_head_end_in_time() -> None:
    async with served(keep_alive_timeout=0.05, header_timeout=0.05) as (server, _):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            await stream.send_all(post(request(1, "echo", say=1), session=client.session_id))
            await answer_on(stream)
            assert await read_all(stream) == b""
        async with await server.connect() as stream:
            await stream.send_all(b"POST /mcp HT")
            assert status(await read_all(stream)) == 408


async def until(true: Any) -> None:
    with trio.fail_after(30):
        while not true():
            await trio.sleep(0.01)
