"""The measured tools on FastMCP."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import anyio.lowlevel
from fastmcp import Context, FastMCP
from fastmcp.tools import Tool
from filler import arguments, fillers

server = FastMCP("bench", version="1")


@dataclass
class Size:
    size: int


@server.tool(output_schema=None)
async def add(a: int, b: int) -> str:
    """Add two numbers after one turn of the event loop."""
    await anyio.lowlevel.checkpoint()
    return f"{a + b}"


@server.tool(output_schema=None)
async def add_without_waiting(a: int, b: int) -> str:
    """Add two numbers without waiting."""
    return f"{a + b}"


@server.tool(output_schema=None)
def add_plain(a: int, b: int) -> str:
    """Add two numbers, in a plain function."""
    return f"{a + b}"


@server.tool(output_schema=None)
async def count(to: int, ctx: Context) -> str:
    """Report progress once per step."""
    for step in range(to):
        await ctx.report_progress(step + 1, to)
    return "done"


@server.tool(output_schema=None)
async def ask(ctx: Context) -> str:
    """Ask the user for a size."""
    answer = await ctx.elicit("Which size?", Size)
    return answer.action


if __name__ == "__main__":
    given = arguments()
    for filler in fillers(given.tools):
        server.add_tool(Tool.from_function(filler, output_schema=None))
    quiet = {"show_banner": False, "log_level": "ERROR"}
    if not given.port:
        server.run(**quiet)
    else:
        server.run("http", port=given.port, path="/mcp", json_response=given.form == "json", **quiet)
