"""The server that the tests with workers run."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import trio

from mcptrio import Context, Server

if "START_FILE" in os.environ:  # a start that can be broken and repaired while the parent runs
    with open(os.environ["START_FILE"], encoding="utf-8") as start:
        exec(start.read())

server = Server("orders", protocols=os.environ.get("DATES", "2026-07-28").split(","))


@dataclass
class Answer:
    word: str


@server.tool
async def pid() -> int:
    """Return the process that serves the call."""
    return os.getpid()


@server.tool
async def slow(seconds: float) -> int:
    """Wait."""
    await trio.sleep(seconds)
    return os.getpid()


@server.tool
async def block(seconds: float) -> None:
    """Block the event loop."""
    time.sleep(seconds)  # noqa: ASYNC251 - what a stuck worker does


@server.tool
async def plain(ctx: Context) -> str:
    """Ask; may not be run again."""
    answer = await ctx.elicit("Which word?", Answer)
    return f"{os.getpid()} {answer.value}"


@server.tool(replay=True)
async def replayed(ctx: Context) -> str:
    """Ask; may be run again."""
    answer = await ctx.elicit("Which word?", Answer)
    return f"{os.getpid()} {answer.value}"
