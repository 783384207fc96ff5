"""A small server with what most servers have: a tool with progress and errors, a resource, a prompt, shared state."""

from __future__ import annotations

from collections.abc import AsyncIterator

import trio

from mcptrio import Context, Server, ToolError


async def lifespan(server: Server) -> AsyncIterator[dict[str, int]]:
    yield {"apples": 3}  # open a database here, and close it after the yield


server = Server("shop", version="1.0.0", lifespan=lifespan)


@server.tool(read_only=True)
async def stock(item: str, ctx: Context) -> int:
    """Count an item in the shop."""
    if item not in ctx.lifespan:
        raise ToolError(f"There is no {item!r} in this shop.")
    await ctx.progress(1, 2, "counting")
    await trio.sleep(0.01)  # Trio in place of asyncio
    await ctx.info(f"counted {item}")
    count: int = ctx.lifespan[item]
    return count


@server.resource("shop://hours", mime_type="text/plain")
def hours() -> str:
    """When the shop is open."""
    return "9 to 17"


@server.prompt
def complain(item: str) -> str:
    """Complain about an item."""
    return f"Write a polite complaint about {item}."


if __name__ == "__main__":
    server.run()  # stdio; server.run("http", port=8000) serves many clients
