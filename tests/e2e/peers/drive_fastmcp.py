"""A FastMCP client: calls every tool of `typed_results.py` and prints what its user sees, as one line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport


def seen(value: Any) -> Any:
    """The value that the client made of a result, with its class where that is a made one."""
    if isinstance(value, list):
        return [seen(item) for item in value]
    return value if isinstance(value, str | int | float | type(None)) else vars(value)


async def main(*target: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with Client(target[0] if len(target) == 1 else StdioTransport(target[0], list(target[1:]))) as client:
        for name in ("number", "numbers", "maybe", "point", "points", "text"):
            found[name] = seen((await client.call_tool(name, {})).data)
        found["lenient"] = (await client.call_tool("lenient", {"n": "5", "tags": '["a"]', "more": 1})).content[0].text
        *_, link = (await client.call_tool("large", {})).content
        found["large"] = len((await client.read_resource(link.uri))[0].text)
    return found


print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
