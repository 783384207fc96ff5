"""Talking to servers: one that runs inside this process here, but a URL or a command would do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asking import server as travel
from library import server as library

from mcptrio import connect
from mcptrio.types import ElicitParams


async def look_around() -> list[str]:
    """`connect("https://example.org/mcp")` and `connect(["mcptrio", "run", "server.py"])` are used the same way."""
    async with connect(library) as client:
        tools = [tool.name for tool in await client.list_tools()]
        resource = await client.read_resource("library://books/emma")
        keys = await client.complete("library://books/{key}", "key", "u")
        return [*tools, resource.contents[0].uri, *keys.values]


async def person(params: ElicitParams) -> Mapping[str, Any]:
    """Stands for a form on a screen."""
    return {"nights": 3, "board": "full"}


async def book() -> str:
    """The callback answers whatever revision the server speaks."""
    async with connect(travel, elicit=person) as client:
        result = await client.call_tool("book_room", {"city": "Oslo"}, timeout=30)
        return result.content[0].text


async def follow() -> str:
    """Hear of a change."""
    async with connect(library) as client:
        async with client.listen(resources=["library://books/emma"]) as changes:
            await client.call_tool("lend", {"key": "emma", "to": "Ada"})
            async for change in changes:
                return str(change.uri)
        return "nothing"
