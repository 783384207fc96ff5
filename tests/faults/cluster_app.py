"""The server of the cluster fault tests."""

from __future__ import annotations

import os

import trio

from mcptrio import Context, Server

server = Server("orders")
RUNS = os.environ.get("RUNS_FILE")


@server.tool
async def count(to: int, every: float, name: str, ctx: Context) -> str:
    """Report progress 1 to `to`; leave a line for each run."""
    if RUNS:
        with open(RUNS, "a", encoding="utf-8") as file:  # noqa: ASYNC230 - one line, also if the process is killed
            file.write(f"{name}\n")
    for number in range(1, to + 1):
        await ctx.progress(number, to)
        await trio.sleep(every)
    return name


@server.tool
async def pid() -> int:
    """Return the process that serves the call."""
    return os.getpid()
