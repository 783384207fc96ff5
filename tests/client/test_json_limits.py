"""`json_limits`: how large a message of the other side may be, on every transport."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from mcptrio import Context, MCPTrioError, Server, connect
from mcptrio.jsonrpc import JsonLimits
from tests.transports.test_link import InNursery

MANY = 120_000
RAISED = JsonLimits(max_nodes=2 * MANY)


def make_server() -> Server:
    server = Server("tables")

    @server.tool
    async def table(ctx: Context, progress: bool) -> list[int]:
        if progress:
            await ctx.progress(1)
        return [0] * MANY

    @server.tool
    async def count(numbers: list[int]) -> int:
        return len(numbers)

    return server


@asynccontextmanager
async def reach(
    kind: str, nursery: trio.Nursery, program: str = "make_server().run()", **settings: Any
) -> AsyncIterator[Any]:
    if kind == "memory":
        yield make_server()
    elif kind == "stdio":
        code = f"from tests.client.test_json_limits import *; {program}"
        yield [sys.executable, "-c", code]
    elif kind == "link":
        yield InNursery(partial(make_server().serve, **settings), nursery)
    else:
        (address,) = await nursery.start(partial(make_server().serve_http, port=0, legacy_sse=True, **settings))
        path = "/sse" if kind == "sse" else "/mcp"
        yield address.url.partition("/mcp")[0].replace("http", "ws" if kind == "ws" else "http") + path
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("progress", [False, True])
@pytest.mark.parametrize("kind", ["memory", "stdio", "http", "ws", "sse"])
async def test_a_client_reads_larger_tables_if_it_wants_to(kind: str, progress: bool, nursery: trio.Nursery) -> None:
    arguments = {"progress": progress}
    async with reach(kind, nursery) as target:
        options: dict[str, Any] = {"cwd": Path(__file__).parents[2]} if kind == "stdio" else {}
        async with connect(target, **options) as client:
            with pytest.raises(MCPTrioError, match="more than 100000 JSON values"):
                await client.call_tool("table", arguments)
        async with connect(target, json_limits=RAISED, **options) as client:
            result = await client.call_tool("table", arguments, on_progress=lambda *_: None)
            assert result.structured_content == {"result": [0] * MANY}


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        *((kind, "") for kind in ("http", "ws", "sse", "link")),
        ("stdio", "make_server().run(json_limits=RAISED)"),
        ("stdio", "trio.run(partial(make_server().serve_stdio, json_limits=RAISED))"),
    ],
)
async def test_a_server_reads_larger_tables_if_it_wants_to(kind: str, program: str, nursery: trio.Nursery) -> None:
    options: dict[str, Any] = {"cwd": Path(__file__).parents[2]} if kind == "stdio" else {}
    async with reach(kind, nursery, program, json_limits=RAISED) as target, connect(target, **options) as client:
        assert (await client.call_tool("count", {"numbers": [0] * MANY})).structured_content == {"result": MANY}
