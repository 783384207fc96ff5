"""Ways to call a tool of a server in this process: over memory, over a pair of pipes, over sockets."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import trio

from mcptrio import Client, MCPError, Server, connect
from mcptrio.transports.stdio.server import serve_stdio
from tests.engines import ENGINES
from tests.stateless.kit import DATE, meta

STATEFUL = "2025-11-25"
DATES = {"stateful": STATEFUL, "stateless": DATE}

Answer = tuple[str, str]
"""The kind of an answer ("result", "tool error" or "error"), and the text of a result."""
Calling = Callable[[str], Awaitable[Answer]]
Caller = Callable[[Server, str], AbstractAsyncContextManager[Calling]]


async def _call(client: Client, tool: str) -> Answer:
    try:
        result = await client.call_tool(tool)
    except MCPError:
        return "error", ""
    return ("tool error", "") if result.is_error else ("result", result.text)


@asynccontextmanager
async def over_memory(server: Server, date: str) -> AsyncIterator[Calling]:
    async with connect(server, protocol=date) as client:
        yield partial(_call, client)


@asynccontextmanager
async def over_stdio(server: Server, date: str) -> AsyncIterator[Calling]:
    (wire_in, to_server), (from_server, wire_out) = os.pipe(), os.pipe()
    ids = count(1)
    async with (
        trio.lowlevel.FdStream(to_server) as send,
        trio.lowlevel.FdStream(from_server) as receive,
        server._app.make_runtime().open() as runtime,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(partial(serve_stdio, runtime, stdin_fd=wire_in, stdout_fd=wire_out))

        async def ask(method: str, params: dict[str, Any]) -> Any:
            message = {"jsonrpc": "2.0", "id": next(ids), "method": method, "params": params}
            await send.send_all(json.dumps(message).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                part = await receive.receive_some()
                assert part, "the server closed its output"
                answer += part
            return json.loads(answer)

        async def call(tool: str) -> Answer:
            extra: dict[str, Any] = {"_meta": meta()} if date == DATE else {}
            answer = await ask("tools/call", {"name": tool, "arguments": {}, **extra})
            if "error" in answer:
                return "error", ""
            result = answer["result"]
            return ("tool error", "") if result.get("isError") else ("result", result["content"][0]["text"])

        if date != DATE:
            client = {"name": "test", "version": "0"}
            await ask("initialize", {"protocolVersion": date, "capabilities": {}, "clientInfo": client})
            await send.send_all(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        yield call
        nursery.cancel_scope.cancel()
    os.close(wire_in)
    os.close(wire_out)


@asynccontextmanager
async def over_http(server: Server, date: str, *, engine: str, scheme: str = "http") -> AsyncIterator[Calling]:
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(partial(server.serve_http, port=0, engine=engine))
        async with connect(f"{scheme}://{bound[0].url.partition('://')[2]}/mcp", protocol=date) as client:
            yield partial(_call, client)
        nursery.cancel_scope.cancel()


CALLERS: dict[str, Caller] = {
    "memory": over_memory,
    "stdio": over_stdio,
    **{f"http {engine}": partial(over_http, engine=engine) for engine in ENGINES},
    **{f"websocket {engine}": partial(over_http, engine=engine, scheme="ws") for engine in ENGINES},
}
