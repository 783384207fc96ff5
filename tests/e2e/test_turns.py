"""Requests of one principal on many connections leave turns of the event loop to the others, on both engines."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

import pytest
import trio

from mcptrio import Server
from mcptrio.auth.server import StaticTokens
from tests.actors.test_turns import Clock
from tests.engines import both_engines, current
from tests.stateless.kit import DATE, meta

pytestmark = both_engines

MANY = 60
HOSTILE, OTHER, UNKNOWN = (f"0123456789abcdef-{name}" for name in ("hostile", "other", "unknown"))


def call(token: str) -> bytes:
    params = {"_meta": meta(), "name": "echo", "arguments": {}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    fields = (
        "POST /mcp HTTP/1.1", "Host: localhost", "Content-Type: application/json",
        "Accept: application/json, text/event-stream", f"Authorization: Bearer {token}",
        f"MCP-Protocol-Version: {DATE}", "Mcp-Method: tools/call", "Mcp-Name: echo", f"Content-Length: {len(body)}",
    )  # fmt: skip
    return "\r\n".join([*fields, "", ""]).encode() + body


@pytest.mark.parametrize(("token", "status"), [(HOSTILE, b"200"), (UNKNOWN, b"401")])
async def test_many_connections_of_one_client_do_not_fill_a_turn(token: str, status: bytes) -> None:
    """Accepted requests count for their principal, refused ones for their address."""
    server, clock, answered = Server("s"), Clock(), Counter[int]()

    @server.tool
    async def echo() -> str:
        return "x"

    async def ask(stream: trio.SocketStream, token: str, status: bytes) -> None:
        await stream.send_all(call(token))
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 " + status)
        answered[clock.turn] += 1

    auth = StaticTokens({HOSTILE: "hostile", OTHER: "other"})
    serve = partial(server.serve_http, port=0, engine=current(), auth=auth)
    trio.lowlevel.add_instrument(clock)
    async with trio.open_nursery() as nursery, AsyncExitStack() as streams:
        (bound,) = await nursery.start(serve)

        async def connect() -> trio.SocketStream:
            return await streams.enter_async_context(await trio.open_tcp_stream("127.0.0.1", bound.port))

        await ask(await connect(), OTHER, b"200")
        connected = [await connect() for _ in range(MANY)]
        async with trio.open_nursery() as asking:
            for stream in connected:
                asking.start_soon(ask, stream, token, status)
        nursery.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(clock)
    # Two begin in a turn; on the way back some may catch up with others.
    assert max(answered.values()) <= 8, answered
