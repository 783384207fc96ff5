"""One client for many servers: their tools in one list, as a host offers them to its model.

    python examples/many_servers.py                    three servers of this folder, one of which is not there
    python examples/many_servers.py mcp.json           those of a host's configuration ("mcpServers": …)

A server that cannot be reached does not delay the others, whose tools can be called by their long names.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import trio

from mcptrio import connect_all
from mcptrio.client import read_servers
from mcptrio.types import Tool

HERE = Path(__file__).parent
SERVERS: dict[str, Any] = {
    "weather": [sys.executable, HERE / "weather.py"],
    "desk": [sys.executable, HERE / "order_desk.py"],
    "gone": [sys.executable, HERE / "not_there.py"],
}


def for_the_model(tool: Tool) -> dict[str, Any]:
    """A tool in the form that many APIs of models take."""
    return {"name": tool.name, "description": tool.description or "", "input_schema": dict(tool.input_schema)}


async def main(servers: dict[str, Any]) -> None:
    async with connect_all(servers, timeout=20) as clients:
        for name, error in clients.failed.items():
            print(f"{name} cannot be reached: {error}")
        tools = [for_the_model(tool) for tool in await clients.list_tools()]
        print(f"{len(tools)} tools: {', '.join(tool['name'] for tool in tools)}")
        async with trio.open_nursery() as nursery:  # what a model wants called at the same time is called so
            for name, arguments in (
                ("weather_forecast", {"city": "Oslo", "days": 1}),
                ("desk_order", {"order_id": "7"}),
            ):
                if any(tool["name"] == name for tool in tools):
                    nursery.start_soon(call, clients, name, arguments)


async def call(clients: Any, name: str, arguments: dict[str, Any]) -> None:
    result = await clients.call_tool(name, arguments)
    print(f"{name}: {'failed' if result.is_error else result.structured_content}")


if __name__ == "__main__":
    trio.run(main, read_servers(Path(sys.argv[1])) if len(sys.argv) > 1 else SERVERS)
