"""Tools that await asyncio libraries."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mcptrio import Context, Server

server = Server("printers")


@dataclass
class Paper:
    size: str


@server.tool(runs="asyncio")
async def print_pages(pages: int, ctx: Context) -> str:
    """Print pages on paper that the user chooses."""
    answer = await ctx.elicit("Which paper?", Paper)
    for page in range(pages):
        await asyncio.sleep(0.01)  # an asyncio library prints a page
        await ctx.progress(page + 1, pages)
    return f"{pages} pages on {answer.value.size if answer.value else 'any paper'}"
