"""The server of the tests that kill a worker with a task or a parked call."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import trio

from mcptrio import Context, Server
from mcptrio.extensions.tasks import Tasks

FOLDER = Path(os.environ["WORK_FOLDER"])
server = Server("orders")
server.add_extension(Tasks(poll=0.05))


@dataclass
class Name:
    name: str


def note(text: str) -> str:
    """Leave a line, also if the process is killed."""
    with (FOLDER / "notes").open("a", encoding="utf-8") as file:
        file.write(f"{text} {os.getpid()}\n")
    return text


async def order(ctx: Context) -> str:
    """Ask for whom, and order."""
    note("begun")
    answer = await ctx.elicit("Who?", Name, key="name")
    return await ctx.once("order", note, f"ordered-for-{answer.value.name if answer.value else '-'}")


async def work() -> str:
    """Work until there is a file named `go`."""
    note("begun")
    while not await trio.Path(FOLDER / "go").exists():
        await trio.sleep(0.05)
    return "done"


server.add_tool(order)
server.add_tool(order, name="order_again", replay=True)
server.add_tool(work, task=True)
server.add_tool(work, name="work_again", task=True, replay=True)
