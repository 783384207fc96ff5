"""A server that web pages call: a short tool, one that streams, and a count of the calls."""

from __future__ import annotations

import os

import trio

from mcptrio import Context, Server
from mcptrio.auth.server import Principal, StaticTokens

server = Server("for-pages", version="1")
calls = 0


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    global calls
    calls += 1
    return a + b


@server.tool
async def count(to: int, ctx: Context) -> str:
    """Report progress a few times."""
    global calls
    calls += 1
    for number in range(to):
        await ctx.progress(number, to)
        await trio.sleep(0.1)
    return f"counted to {to}"


@server.tool
async def counted() -> int:
    """Return how many calls there were."""
    return calls


if __name__ == "__main__":
    tokens = StaticTokens({"a-token-for-pages": Principal(subject="ada")}) if os.environ.get("PAGES_AUTH") else None
    origin, engine, port = os.environ["PAGES_ORIGIN"], os.environ["PAGES_ENGINE"], int(os.environ["PAGES_PORT"])
    server.run("http", port=port, engine=engine, allowed_origins=(origin,), auth=tokens, legacy_sse=True)  # type: ignore[arg-type]
