"""Talking to the user and to the client's model in the middle of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from mcptrio import CapabilityMissing, Context, Server, ToolError

server = Server("travel")


@dataclass
class Trip:
    """The form that the user sees: flat fields of plain types."""

    nights: Annotated[int, msgspec.Meta(ge=1, le=30)]
    board: Literal["none", "breakfast", "full"] = "breakfast"
    late_arrival: bool = False


@server.tool
async def book_room(city: str, ctx: Context) -> str:
    """Book a room, after the user has said what they want."""
    answer = await ctx.elicit(f"How long will you stay in {city}?", Trip)
    if answer.value is None:  # declined, or the window was closed
        raise ToolError("The user does not want to book a room. Do not ask again.")
    trip = answer.value
    return f"{trip.nights} nights in {city}, board: {trip.board}."


@server.tool(read_only=True)
async def describe(city: str, ctx: Context) -> str:
    """Describe a city in one sentence."""
    try:
        reply = await ctx.sample(f"Describe {city} in one sentence.", max_tokens=60)
    except CapabilityMissing:
        return f"{city} is a city."  # this client does not support sampling
    return reply.text


@server.tool
async def pay(amount: float, ctx: Context) -> str:
    """Take a payment on a page of our own, so that no card number passes through the client."""
    answer = await ctx.elicit_url("Please pay on our page.", f"https://pay.example.org/?amount={amount}")
    return "The user went to the page." if answer.accepted else "The user does not want to pay."


@server.tool(read_only=True)
async def workspace(ctx: Context) -> list[str]:
    """Say which directories the client lets us work in."""
    return [root.uri for root in await ctx.list_roots()]
