"""An MCP endpoint mounted in a FastAPI application, which runs on asyncio.

    pip install fastapi uvicorn
    python examples/mounted_fastapi.py                       the endpoint is http://127.0.0.1:8000/ai/mcp

FastAPI does not run the lifespan of what is mounted, so it is passed on.
"""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI

from mcptrio import Server

server = Server("mounted", version="1.0.0")
visits = 0


@server.tool(read_only=True)
async def visitors() -> int:
    """Say how often the front page was looked at."""
    return visits


mcp = server.asgi()
app = FastAPI(lifespan=mcp.lifespan)
app.mount("/ai", mcp)


@app.get("/")
async def front_page() -> dict[str, str]:
    global visits
    visits += 1
    return {"mcp": "/ai/mcp"}


if __name__ == "__main__":
    uvicorn.run(app)
