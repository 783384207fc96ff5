"""Lists that change while the server runs, that differ between clients, and a custom method."""

from __future__ import annotations

from typing import Any

from mcptrio import Context, MCPError, Server
from mcptrio.errors import INVALID_PARAMS

server = Server("plugins")


def shout(text: str) -> str:
    """Write a text in capitals."""
    return text.upper()


@server.tool
async def enable(plugin: str) -> str:
    """Turn a plugin on: clients are notified of the new tool."""
    if plugin != "shout":
        raise MCPError(INVALID_PARAMS, f"there is no plugin {plugin!r}")
    server.add_tool(shout, read_only=True)
    return "on"


@server.tool
async def disable(plugin: str) -> str:
    """Turn a plugin off again."""
    server.remove_tool(plugin)
    return "off"


def from_a_robot(ctx: Context) -> bool:
    return ctx.client_info is not None and ctx.client_info.name == "robot"


@server.tool(visible=from_a_robot)
async def self_test() -> str:
    """Only some clients see this, and only they can call it."""
    return "all is well"


@server.route("acme/version")
async def version(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
    """A method that no revision of the protocol knows."""
    return {"version": "7", "asked_by": ctx.session.id[:4]}
