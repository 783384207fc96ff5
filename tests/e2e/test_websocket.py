"""The WebSocket transport on loopback, behind the real listener."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
import trio
from wsproto.events import BytesMessage, CloseConnection, TextMessage

from mcptrio import Server
from mcptrio._actors.runtime import Runtime
from mcptrio.auth.server import Principal
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import HttpRequest
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
from tests.engines import both_engines

from .raw_peer import Served, read_until, serving, status
from .test_hypercorn_websocket import Socket

pytestmark = both_engines

server = Server("sockets", version="1")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def wait() -> str:
    """Wait for ever."""
    await trio.sleep_forever()


def serving_endpoint(runtime: Runtime) -> AbstractAsyncContextManager[Served]:
    return serving(AsgiApp(Endpoint(runtime)), websocket_ping_interval=None)


def handshake(served: Served, *lines: str, host: str = "127.0.0.1") -> bytes:
    head = (
        f"GET /mcp HTTP/1.1\r\nHost: {host}:{served.address.port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    return (head + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()


async def connect(served: Served, *lines: str) -> Socket:
    stream = await served.connect()
    await stream.send_all(handshake(served, "Sec-WebSocket-Protocol: mcp", *lines))
    head = await read_until(stream, b"\r\n\r\n")
    assert status(head) == 101
    assert b"sec-websocket-protocol: mcp" in head.lower()
    return Socket(stream)


async def ask(socket: Socket, request_id: int, method: str, **params: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    await socket.send(TextMessage(data=msgspec.json.encode(message).decode()))
    text = ""
    while True:
        event = await socket.receive()
        assert isinstance(event, TextMessage)
        text += event.data
        if event.message_finished:
            answer = msgspec.json.decode(text)
            assert answer["id"] == request_id
            return answer


async def open_session(socket: Socket) -> None:
    client = {"name": "c", "version": "1"}
    answer = await ask(socket, 0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
    assert answer["result"]["serverInfo"]["name"] == "sockets"


async def test_a_client_calls_a_tool_over_a_socket() -> None:
    async with server._app.make_runtime().open() as runtime, serving_endpoint(runtime) as served:
        socket = await connect(served)
        await open_session(socket)
        answer = await ask(socket, 1, "tools/call", name="add", arguments={"a": 1, "b": 2})
        assert answer["result"]["structuredContent"] == {"result": 3}
        await socket.send(CloseConnection(code=1000))
        assert await socket.closing_code() == 1000
        with trio.fail_after(20):
            while runtime.supervisor.sessions:
                await trio.sleep(0.01)


@pytest.mark.parametrize(
    ("host", "lines", "code"),
    [
        ("evil.example", ("Sec-WebSocket-Protocol: mcp",), 421),
        ("127.0.0.1", ("Sec-WebSocket-Protocol: mcp", "Origin: https://evil.example"), 403),
        ("127.0.0.1", (), 400),
    ],
    ids=["foreign host", "foreign origin", "no subprotocol"],
)
async def test_k01_a_foreign_handshake_is_refused_with_a_reason(host: str, lines: tuple[str, ...], code: int) -> None:
    async with server._app.make_runtime().open() as runtime, serving_endpoint(runtime) as served:
        answer = await served.ask(handshake(served, *lines, host=host))
        assert status(answer) == code
        assert b'"error"' in answer


async def test_k05_a_binary_message_closes_the_socket_and_not_the_server() -> None:
    async with server._app.make_runtime().open() as runtime, serving_endpoint(runtime) as served:
        first, second = await connect(served), await connect(served)
        await open_session(first)
        await open_session(second)
        await first.send(BytesMessage(data=b"{}"))
        assert await first.closing_code() == 1003
        assert (await ask(second, 1, "ping"))["result"] == {}


async def ask_and_expect_shutdown(socket: Socket) -> None:
    answer = await ask(socket, 1, "tools/call", name="wait", arguments={})
    assert "shutting down" in answer["error"]["message"]
    assert await socket.closing_code() == 1001


async def test_draining_closes_the_socket_as_going_away() -> None:
    async with server._app.make_runtime().open() as runtime, serving_endpoint(runtime) as served:
        socket = await connect(served)
        await open_session(socket)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_and_expect_shutdown, socket)
            while not any(session.peer.calls for session in runtime.supervisor):
                await trio.sleep(0.005)
            await runtime.drain(0)


async def who(head: HttpRequest) -> Principal:
    return Principal(subject=str(head.text(b"authorization")))


@pytest.mark.defect("S7")
async def test_requests_of_another_client_that_wait_do_not_lock_a_socket_out() -> None:
    """A client holds its share of the calls and has more waiting; the last quarter is for others, on a socket too."""
    async with server._app.make_runtime().open() as runtime:
        endpoint = Endpoint(runtime, HttpConfig(max_calls=8), None, who)
        async with serving(AsgiApp(endpoint), websocket_ping_interval=None) as served, trio.open_nursery() as nursery:
            socket = await connect(served, "Authorization: ann")
            await open_session(socket)
            for number in range(10):
                nursery.start_soon(hold_call, served, number)
            places = endpoint.admission.places
            while places.waiting < 4:
                await trio.sleep(0.005)
            assert places.used == 6
            for number in range(1, 4):
                answer = await ask(socket, number, "tools/call", name="add", arguments={"a": 1, "b": 2})
                assert answer["result"]["structuredContent"] == {"result": 3}
            nursery.cancel_scope.cancel()


async def hold_call(served: Served, number: int) -> None:
    """Call a tool that never ends, in a request that stands alone."""
    version = "2026-07-28"
    prefix = "io.modelcontextprotocol/"
    client = {"name": "c", "version": "1"}
    meta = {f"{prefix}protocolVersion": version, f"{prefix}clientCapabilities": {}, f"{prefix}clientInfo": client}
    params = {"name": "wait", "arguments": {}, "_meta": meta}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: bob\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {version}\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: wait\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    async with await served.connect() as stream:
        await stream.send_all(head.encode() + body)
        await trio.sleep_forever()
