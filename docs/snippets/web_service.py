"""A server in front of an HTTP API: one client for the process, progress, and errors that the model can read."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote

import httpx2

from mcptrio import Context, Server, ToolError

API = os.environ.get("ITEMS_API", "https://api.example.org")
KEY = os.environ.get("ITEMS_KEY", "demo")


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[httpx2.AsyncClient]:
    """One client for the process, so that connections stay open between calls."""
    async with httpx2.AsyncClient(base_url=API, headers={"Authorization": f"Bearer {KEY}"}, timeout=10) as http:
        yield http


server = Server("items", version="1.0.0", lifespan=lifespan)


@dataclass
class Item:
    id: str
    title: str


async def fetch(http: httpx2.AsyncClient, item_id: str) -> Item:
    try:
        response = await http.get(f"/items/{quote(item_id, safe='')}")  # the model must not choose the path
        response.raise_for_status()
        return Item(**response.json())
    except httpx2.HTTPStatusError as error:
        if error.response.status_code == 404:
            raise ToolError(f"There is no item {item_id!r}.") from None
        raise ToolError(f"The item service answered {error.response.status_code}.") from error
    except httpx2.RequestError as error:
        raise ToolError("The item service cannot be reached; try again later.") from error


@server.tool(read_only=True, scopes=["items:read"])
async def item(item_id: str, ctx: Context) -> Item:
    """Look up one item."""
    return await fetch(ctx.lifespan, item_id)


@server.tool(read_only=True, scopes=["items:report"], timeout=30)
async def report(item_ids: list[str], ctx: Context) -> list[Item]:
    """Look up many items; each report of progress gives the call another 30 seconds."""
    found: list[Item] = []
    for number, item_id in enumerate(item_ids, 1):
        found.append(await fetch(ctx.lifespan, item_id))
        await ctx.progress(number, len(item_ids), f"item {item_id}")
    return found
