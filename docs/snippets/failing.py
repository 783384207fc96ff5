"""Errors of a handler, as the client sees them."""

from __future__ import annotations

from mcptrio import MCPError, Server, ToolError

server = Server("failing")


@server.tool
async def wrong_input(number: int) -> str:
    """The model reads the text and can do better."""
    if number < 0:
        raise ToolError("The number must not be negative; try its absolute value.")
    return "fine"


@server.tool
async def not_allowed() -> str:
    """The client gets a JSON-RPC error with this code; most hosts do not show it to the model."""
    raise MCPError(-32001, "this account may not do that", {"account": "demo"})


@server.tool
async def broken() -> str:
    """The log gets the traceback, the client a fixed text: what an exception says may be secret."""
    raise RuntimeError("the password of the database is 1234")
