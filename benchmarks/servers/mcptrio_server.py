"""mcptrio: the tools that are measured."""

from __future__ import annotations

from dataclasses import dataclass

from filler import arguments, fillers

from mcptrio import Context, Server
from mcptrio._actors.supervisor import SupervisorLimits

server = Server("bench", version="1", session_limits=SupervisorLimits(max_sessions=20_000))


@dataclass
class Size:
    size: int


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"{a + b}"


@server.tool
def add_plain(a: int, b: int) -> str:
    """Add two numbers, in a plain function."""
    return f"{a + b}"


@server.tool
async def count(to: int, ctx: Context) -> str:
    """Report progress, step by step."""
    for step in range(to):
        await ctx.progress(step + 1, to)
    return "done"


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the person for a size."""
    answer = await ctx.elicit("Which size?", Size)
    return str(answer.action)


@server.tool
async def touch() -> str:
    """Tell everybody who listens that a resource has changed."""
    server.publish("bench://thing")
    return "done"


@server.resource("bench://thing")
async def thing() -> str:
    """Something that changes."""
    return "thing"


if __name__ == "__main__":
    given = arguments()
    for filler in fillers(given.tools):
        server.add_tool(filler)
    if not given.port:
        server.run()
    else:
        store = {} if given.store == "memory" else {"store": given.store}
        server.run("http", port=given.port, sse_only=given.form == "sse", lane=given.lane, **store)
