"""A server written with the official Python SDK, 2.x or 1.x, whichever is installed: `serve_mcp.py stdio|http PORT`."""

from __future__ import annotations

import sys
from typing import Any

from pydantic import BaseModel

try:
    from mcp.server import MCPServer as Maker
    from mcp.server.mcpserver import Context
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as Maker

NEW = Maker.__name__ == "MCPServer"
ADDRESS: dict[str, Any] = {"host": "127.0.0.1", "port": int(sys.argv[2]) if len(sys.argv) > 2 else 0}
server = Maker("peer", **({} if NEW else ADDRESS))


class Size(BaseModel):
    size: str = "m"


class Sum(BaseModel):
    total: int


@server.tool()
def add(a: int, b: int) -> Sum:
    """Add."""
    return Sum(total=a + b)


@server.tool()
async def steps(ctx: Context) -> str:
    """Report progress."""
    for step in range(1, 4):
        await ctx.report_progress(step, 3)
    return "done"


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask the person."""
    answer = await ctx.elicit("Which?", Size)
    return f"{answer.action} {answer.data.size if answer.action == 'accept' else ''}"


@server.resource("notes://{name}")
def note(name: str) -> str:
    """A note."""
    return f"note {name}"


@server.resource("notes://first")
def first() -> str:
    """The first note."""
    return "the first"


@server.prompt()
def greet(name: str) -> str:
    """Greet."""
    return f"Greet {name}"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", **(ADDRESS if NEW else {}))
