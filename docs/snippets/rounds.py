"""Elicitation: several questions at once, in loops, and work that must happen once."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from mcptrio import Context, Server, ToolError

server = Server("rounds")
paid: list[str] = []


@dataclass
class Name:
    name: str


@dataclass
class Agreed:
    agreed: bool


@server.tool(read_only=True)
async def pair(ctx: Context) -> str:
    """Ask two things at once: in 2026-07-28 both questions leave in one result."""
    names: dict[str, str] = {}

    async def ask(who: str) -> None:
        answer = await ctx.elicit(f"Who is the {who} player?", Name, key=who)
        names[who] = answer.value.name if answer.value else "unknown"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "first")
        nursery.start_soon(ask, "second")
    return f"{names['first']} plays {names['second']}."


async def send_money(order_id: str) -> str:
    paid.append(order_id)
    return f"receipt {len(paid)}"


@server.tool(destructive=True, replay=True)
async def refund(order_id: str, ctx: Context) -> str:
    """Send the money once, even if the call is replayed between the questions."""
    first = await ctx.elicit(f"Refund {order_id}?", Agreed, key="refund")
    if first.value is None or not first.value.agreed:
        raise ToolError("The user declined.")
    receipt = await ctx.once("money", send_money, order_id)
    second = await ctx.elicit("Send the receipt by mail?", Agreed, key="mail")
    return f"{receipt}, {'mailed' if second.value and second.value.agreed else 'not mailed'}"
