"""A server whose tools take their time, for tests that end the process under it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import trio

from mcptrio import Context, Server

server = Server("busy")


@dataclass
class Choice:
    go: bool


@server.tool
async def wait(seconds: float) -> str:
    """Waits, then answers."""
    await trio.sleep(seconds)
    return "waited"


@server.tool
async def count(to: int, ctx: Context, pause: float = 0.0) -> str:
    """Reports every number as progress."""
    for number in range(1, to + 1):
        await ctx.progress(number, to)
        await trio.sleep(pause)
    return f"counted to {to}"


@server.tool
async def flood(ctx: Context) -> str:
    """Sends more than any socket buffers."""
    for _ in range(400):
        await ctx.info("x" * 65536)
    return "sent"


@server.tool
async def ask(ctx: Context) -> str:
    """Asks, and waits for the answer."""
    answer = await ctx.elicit("Shall we?", Choice)
    return answer.action


@server.tool
async def stubborn() -> str:
    """Ignores that it is cancelled."""
    with trio.CancelScope(shield=True):
        await trio.sleep(3600)
    return "never"


@server.tool
def blocked(seconds: float) -> str:
    """Blocks a thread."""
    time.sleep(seconds)
    return "woke up"


@server.tool
async def leave() -> str:
    """Tries to end the process."""
    raise SystemExit(3)


@server.tool
async def fail() -> str:
    """Fails."""
    raise RuntimeError("secret details")
