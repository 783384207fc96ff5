"""A client in an asyncio program, and one in a program without an event loop."""

from __future__ import annotations

import asyncio

import mcptrio.aio
import mcptrio.blocking
from mcptrio.client.targets import Target
from mcptrio.types import ElicitParams


async def choose(params: ElicitParams) -> dict[str, str]:
    await asyncio.sleep(0.01)  # an asyncio user interface asks the user
    return {"size": "A4"}


async def print_in_asyncio(target: Target) -> str:
    async with mcptrio.aio.connect(target, elicit=choose) as client:
        async with asyncio.timeout(30):
            result = await client.call_tool("print_pages", {"pages": 2})
    return result.text


def print_plainly(target: Target) -> str:
    with mcptrio.blocking.connect(target, elicit=lambda params: {"size": input("Size? ")}) as client:
        return client.call_tool("print_pages", {"pages": 2}).text
