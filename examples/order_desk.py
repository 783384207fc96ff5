"""A server that asks before it acts: the user confirms a refund in the middle of the tool call.

    mcptrio run examples/order_desk.py

`ctx.elicit` waits for the user, whatever protocol version the client speaks; `ctx.once` keeps the money from being
paid twice; a `ToolError` is what the model reads when something cannot be done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from mcptrio import Context, Server, ToolError

server = Server("order desk", version="1.0.0", instructions="Look an order up before you refund it.")


@dataclass
class Order:
    id: str
    customer: str
    total: float
    refunded: float = 0.0


ORDERS = {order.id: order for order in (Order("7", "Ada", 120.0), Order("8", "Grace", 35.5), Order("9", "Alan", 0.99))}


@dataclass
class Decision:
    """The form that the user fills in."""

    refund: bool
    reason: Literal["damaged", "late", "changed their mind"] = "damaged"
    note: Annotated[str, msgspec.Meta(max_length=200)] = ""


@server.tool(read_only=True)
async def order(order_id: str) -> Order:
    """Look up one order.

    Args:
        order_id: The number printed on the receipt.
    """
    return find(order_id)


@server.tool(destructive=True, replay=True)
async def refund(order_id: str, ctx: Context) -> str:
    """Refund an order, after the user has agreed."""
    found = find(order_id)
    if found.refunded:
        raise ToolError(f"Order {order_id} was refunded already.")
    answer = await ctx.elicit(f"Refund {found.total:.2f} to {found.customer}?", Decision)
    if answer.value is None or not answer.value.refund:
        raise ToolError("The user does not want to refund this order. Do not try again.")
    paid = await ctx.once("pay back", pay_back, found)
    await ctx.info({"order": order_id, "reason": answer.value.reason, "note": answer.value.note})
    return f"Refunded {paid:.2f} to {found.customer} ({answer.value.reason})."


def find(order_id: str) -> Order:
    if order_id not in ORDERS:
        raise ToolError(f"There is no order {order_id!r}. Known are {', '.join(ORDERS)}.")
    return ORDERS[order_id]


async def pay_back(order: Order) -> float:
    order.refunded = order.total
    return order.refunded


if __name__ == "__main__":
    server.run()
