"""Hosts and models: lenient arguments, forms of results, large results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from mcptrio import Server

server = Server("shop", max_result_bytes=50_000)


@dataclass
class Line:
    sku: str
    qty: Annotated[int, msgspec.Meta(gt=0)] = 1


@server.tool
async def order(lines: list[Line], size: Literal["s", "m", "l"] | None = None, express: bool = False) -> str:
    """Place an order."""
    return f"{sum(line.qty for line in lines)} things{', express' if express else ''}"


@server.tool(arguments="strict")
async def refund(order_id: int) -> str:
    """Refund an order: `"7"` is refused here, and so is an argument that does not exist."""
    return f"refunded {order_id}"


@server.tool(result="text")
async def totals() -> dict[str, int]:
    """Return a table as text only: no output schema is listed, and no structured content is sent."""
    return {"s": 3, "m": 5}


@server.tool
async def log(lines: int) -> str:
    """Return more than a model should read: larger results are sent as a preview and a link."""
    return "\n".join(f"line {n}" for n in range(lines))
