"""A server that does something between two questions, and writes down in a file whenever it does."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mcptrio import Context, Server

server = Server("refunds")
DONE = Path(os.environ["REFUNDS_FILE"])


@dataclass
class Confirm:
    sure: bool


def write(what: str) -> str:
    with DONE.open("a") as lines:
        lines.write(what + "\n")
    return what


def lives() -> int:
    return DONE.read_text().count("begun")


def refund(order_id: str, crash: str) -> str:
    write(f"refunded {order_id}")
    if crash == "inside":
        os.kill(os.getpid(), signal.SIGKILL)
    return "refunded"


async def steps(order_id: str, ctx: Context, crash: Literal["", "inside", "afterwards"] = "") -> str:
    write("begun")
    await ctx.elicit(f"Refund {order_id}?", Confirm, key="refund")
    await ctx.once("refund", refund, order_id, crash)
    if crash == "afterwards" and lives() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = await ctx.elicit("Send a letter?", Confirm, key="letter")
    return f"refunded, letter {answer.value.sure if answer.value else '-'}"


server.add_tool(steps, name="replayed", replay=True)
server.add_tool(steps, name="idempotent", idempotent=True)
server.add_tool(steps, name="plain")
