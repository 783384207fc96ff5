"""The measured tools on the official Python SDK, high-level server."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from filler import arguments, fillers
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("bench", version="1", log_level="ERROR")


class Size(BaseModel):
    size: int


# No structured output, so that every contender sends the same response.
@server.tool(structured_output=False)
async def add(a: int, b: int) -> str:
    """Add two numbers after one turn of the event loop."""
    await anyio.lowlevel.checkpoint()
    return f"{a + b}"


@server.tool(structured_output=False)
async def add_without_waiting(a: int, b: int) -> str:
    """Add two numbers without waiting."""
    return f"{a + b}"


@server.tool(structured_output=False)
def add_plain(a: int, b: int) -> str:
    """Add two numbers, in a plain function."""
    return f"{a + b}"


@server.tool(structured_output=False)
async def count(to: int, ctx: Context) -> str:
    """Report progress once per step."""
    for step in range(to):
        await ctx.report_progress(step + 1, to)
    return "done"


@server.tool(structured_output=False)
async def ask(ctx: Context) -> str:
    """Ask the user for a size."""
    answer = await ctx.elicit("Which size?", Size)
    return str(answer.action)


@server.tool(structured_output=False)
async def touch(ctx: Context) -> str:
    """Notify all listeners that a resource has changed."""
    await ctx.notify_resource_updated("bench://thing")
    return "done"


@server.resource("bench://thing")
async def thing() -> str:
    """A resource that changes."""
    return "thing"


if __name__ == "__main__":
    given = arguments()
    for filler in fillers(given.tools):
        server.add_tool(filler, structured_output=False)
    if not given.port:
        server.run()
    else:
        server.run("streamable-http", port=given.port, json_response=given.form == "json")
