"""An MCP endpoint mounted in a Starlette application, on Trio or on asyncio.

    pip install starlette
    hypercorn -k trio examples/mounted_starlette.py:app      the endpoint is http://127.0.0.1:8000/ai/mcp

The MCP application has a lifespan of its own, where its sessions live. Starlette does not run the lifespan of what is
mounted, so it is passed on.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from mcptrio import Server

server = Server("mounted", version="1.0.0")
visits = 0


@server.tool(read_only=True)
async def visitors() -> int:
    """Say how often the front page was looked at."""
    return visits


async def front_page(request: Request) -> PlainTextResponse:
    global visits
    visits += 1
    return PlainTextResponse("Hello. The MCP endpoint is at /ai/mcp.\n")


mcp = server.asgi()
app = Starlette(routes=[Route("/", front_page), Mount("/ai", app=mcp)], lifespan=mcp.lifespan)
