"""Talking to servers: one that runs inside this process here, but a URL or a command would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asking import server as travel
from library import server as library
from typed import server as shop

from mcptrio import InputRequired, Reconnect, connect, connect_all
from mcptrio.client import read_servers
from mcptrio.types import ElicitParams


async def look_around() -> list[str]:
    """`connect("https://example.org/mcp")` and `connect(["mcptrio", "run", "server.py"])` are used the same way."""
    async with connect(library) as client:
        tools = [tool.name for tool in await client.list_tools()]
        resource = await client.read_resource("library://books/emma")
        keys = await client.complete("library://books/{key}", "key", "u")
        return [*tools, resource.contents[0].uri, *keys.values]


async def show_form(params: ElicitParams) -> Mapping[str, Any]:
    """A stand-in for a form on a screen."""
    return {"nights": 3, "board": "full"}


async def book() -> str:
    """Answer questions with one callback, for servers of every protocol version."""
    async with connect(travel, elicit=show_form) as client:
        result = await client.call_tool("book_room", {"city": "Oslo"}, timeout=30)
        return result.text


async def follow() -> str:
    """Receive a change."""
    async with connect(library) as client:
        async with client.listen(resources=["library://books/emma"]) as changes:
            await client.call_tool("lend", {"key": "emma", "to": "Ada"})
            async for change in changes:
                return str(change.uri)
        return "nothing"


@dataclass
class Quote:
    total: float
    currency: str


async def price() -> Quote:
    """A typed value in place of a result."""
    async with connect(shop) as client:
        return await client.call_tool("quote", {"items": [{"sku": "mug", "quantity": 2}]}, into=Quote)


async def book_by_hand() -> str:
    """Ask, look at the questions, and ask again with the answers; minutes may pass in between."""
    async with connect(travel, elicit=show_form) as client:
        try:
            result = await client.call_tool("book_room", {"city": "Oslo"}, max_rounds=0)
        except InputRequired as wanted:
            answers = {key: {"action": "accept", "content": {"nights": 1}} for key in wanted.questions}
            result = await client.call_tool("book_room", {"city": "Oslo"}, answers=answers, state=wanted.state)
        return result.text


async def several() -> list[str]:
    """Many servers as one: their tools are called by long names."""
    async with connect_all(
        {"books": library, "travel": travel, "gone": ["no-such-program"]}, elicit=show_form
    ) as clients:
        result = await clients.call_tool("travel_book_room", {"city": "Oslo"})
        names = [tool.name for tool in await clients.list_tools()]
        return [*names, result.text, *clients.failed]


async def for_a_tenant(url: str, tenant: str) -> str:
    """One connection, and headers of one call."""
    async with connect(url, headers={"User-Agent": "shop/1.0"}) as client:
        result = await client.call_tool("whoami", headers={"X-Tenant": tenant})
        return result.text


async def from_configuration(file: Path) -> dict[str, str]:
    """The servers that a host was configured with."""
    async with connect_all(read_servers(file), timeout=10) as clients:
        return {name: clients[name].protocol_version for name in clients}


stubborn = Reconnect(tries=20, first=0.5, most=60)
fragile = Reconnect(tries=0)


async def long_lived(target: Any) -> int:
    """A client that outlives its server."""
    async with connect(target, reconnect=stubborn, timeout=10, total_timeout=60) as client:
        return len(await client.list_tools())
