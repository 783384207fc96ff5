"""Arguments and results of every kind."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from mcptrio import Image, ResourceLink, Server, ToolError

server = Server("shop")


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Item:
    sku: str
    quantity: Annotated[int, msgspec.Meta(ge=1, le=99)] = 1


@dataclass
class Quote:
    total: float
    currency: Literal["EUR", "USD"]
    lines: list[str] = field(default_factory=list)


PRICES = {"mug": 8.0, "shirt": 20.0}


@server.tool(read_only=True)
async def quote(items: list[Item], size: Size = Size.SMALL, currency: Literal["EUR", "USD"] = "EUR") -> Quote:
    """Say what an order would cost.

    Args:
        items: What to buy; `sku` is mug or shirt.
        size: The size of the parcel.
        currency: What to pay in.
    """
    unknown = [item.sku for item in items if item.sku not in PRICES]
    if unknown:
        raise ToolError(f"There is no {', '.join(unknown)}; there are {', '.join(PRICES)}.")
    total = sum(PRICES[item.sku] * item.quantity for item in items) + (4 if size is Size.LARGE else 2)
    return Quote(total, currency, [f"{item.quantity} x {item.sku}" for item in items])


DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
    "0000000049454e44ae426082"
)


@server.tool(read_only=True)
async def picture(sku: str) -> list[str | Image | ResourceLink]:
    """Show an item: some text, a picture, and a link to more."""
    return [f"This is a {sku}.", Image(DOT), ResourceLink(f"shop://items/{sku}", name=sku)]


SCHEMA = {"type": "object", "properties": {"q": {"type": "string", "minLength": 2}}, "required": ["q"]}


@server.tool(read_only=True, input_schema=SCHEMA)
async def search(arguments: dict[str, str]) -> list[str]:
    """Find items. The schema was written by hand, so the arguments come as one object."""
    return [sku for sku in PRICES if arguments["q"] in sku]
