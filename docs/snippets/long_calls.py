"""Long calls: timeouts, progress, cancellation, threads, and streams that the client polls."""

from __future__ import annotations

import time

import trio

from mcptrio import Context, Limits, Server

server = Server("slow", limits=Limits(call_timeout=30, call_timeout_hard=600), threads=8)


@server.tool(timeout=120)
async def index(pages: int, ctx: Context) -> str:
    """Report progress: each report lets the call go on for another `timeout` seconds, up to the hard limit."""
    for page in range(pages):
        await trio.sleep(0.5)
        await ctx.progress(page + 1, pages, f"page {page + 1}")
    return f"{pages} pages"


@server.tool
async def copy(ctx: Context) -> str:
    """Clean up when the client cancels: an ordinary `finally`, with a deadline if it waits."""
    file = trio.Path("half-copied")
    try:
        await trio.sleep(5)
        return "copied"
    finally:
        with trio.move_on_after(1, shield=True):
            await file.unlink(missing_ok=True)


@server.tool(limit=2)
def checksum(text: str) -> int:
    """Not async, so it runs in a thread and may block; `limit` lets two run at a time."""
    time.sleep(0.01)
    return sum(text.encode())


@server.tool(inline=True)
def double(number: int) -> int:
    """Not async but quick: `inline` saves the thread."""
    return 2 * number


@server.tool(serial=True)
async def one_by_one(seconds: float) -> str:
    """Calls of one session wait for each other; other sessions do not."""
    await trio.sleep(seconds)
    return "done"


@server.tool
async def overnight(ctx: Context) -> str:
    """Close the connection: over HTTP the client reconnects for the result."""
    ctx.close_stream()
    await trio.sleep(20)
    return "good morning"
