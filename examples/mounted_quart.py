"""An MCP endpoint next to a Quart-Trio application, on Hypercorn's trio worker.

    pip install quart-trio
    hypercorn -k trio examples/mounted_quart.py:app      the endpoint is http://127.0.0.1:8000/ai/mcp

Quart mounts nothing by itself, so a few lines of ASGI send what begins with /ai to the endpoint; `while_serving` keeps
its sessions alive for as long as the application is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from quart_trio import QuartTrio

from mcptrio import Server

server = Server("next to quart", version="1.0.0")
web = QuartTrio(__name__)
mcp = server.asgi()
guests: list[str] = []


@server.tool(read_only=True)
async def guest_list() -> list[str]:
    """Say who has signed the guest book."""
    return guests


@web.get("/sign/<name>")
async def sign(name: str) -> str:
    guests.append(name)
    return f"Welcome, {name}. The MCP endpoint is at /ai/mcp.\n"


@web.while_serving
async def sessions() -> AsyncGenerator[None, None]:
    async with mcp.open():
        yield


async def app(scope: Any, receive: Callable[..., Any], send: Callable[..., Awaitable[None]]) -> None:
    if scope["type"] != "lifespan" and scope["path"].startswith("/ai/"):
        await mcp({**scope, "root_path": scope.get("root_path", "") + "/ai"}, receive, send)
    else:
        await web(scope, receive, send)
