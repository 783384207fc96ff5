"""The measured tools on mcptrio."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import trio
from filler import arguments, fillers

from mcptrio import Context, Limits, Server

server = Server("bench", version="1", limits=Limits(max_sessions=20_000))


@dataclass
class Size:
    size: int


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers after one turn of the event loop."""
    await trio.lowlevel.checkpoint()
    return f"{a + b}"


@server.tool
async def add_without_waiting(a: int, b: int) -> str:
    """Add two numbers without waiting."""
    return f"{a + b}"


@server.tool
def add_plain(a: int, b: int) -> str:
    """Add two numbers, in a plain function."""
    return f"{a + b}"


@server.tool
async def count(to: int, ctx: Context) -> str:
    """Report progress once per step."""
    for step in range(to):
        await ctx.progress(step + 1, to)
    return "done"


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the user for a size."""
    answer = await ctx.elicit("Which size?", Size)
    return str(answer.action)


@server.tool
async def touch() -> str:
    """Notify all listeners that a resource has changed."""
    server.notify_resource_updated("bench://thing")
    return "done"


@server.resource("bench://thing")
async def thing() -> str:
    """A resource that changes."""
    return "thing"


if __name__ != "__main__":
    app = server.asgi()  # for servers that import this file; a start over stdio must not load HTTP
else:
    logging.basicConfig(level="ERROR")  # like the other servers; the default is a line for each call
    given = arguments()
    for filler in fillers(given.tools):
        server.add_tool(filler)
    if not given.port:
        server.run()
    else:
        store = {} if given.store == "memory" else {"store": given.store}
        server.run("http", port=given.port, sse_only=given.form == "sse", engine=given.engine, **store)
