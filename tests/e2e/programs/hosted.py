"""An MCP server for asyncio servers: `uvicorn hosted:app`, and `hosted:mounted` for it inside FastAPI."""

from __future__ import annotations

import os
from dataclasses import dataclass

import trio
from fastapi import FastAPI

from mcptrio import Context, Server

server = Server("hosted", version="1")


@dataclass
class Size:
    size: int


@server.tool
async def echo(text: str) -> str:
    await trio.lowlevel.checkpoint()
    return text


@server.tool
async def count(to: int, ctx: Context) -> str:
    for step in range(to):
        await ctx.progress(step + 1, to)
        await trio.sleep(0.01)
    return "counted"


@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Which size?", Size)
    return "none" if answer.value is None else str(answer.value.size)


@server.tool
async def work(seconds: float) -> str:
    print("working", flush=True)
    await trio.sleep(seconds)
    return "worked"


@server.tool
def plain(text: str) -> str:
    return text.upper()


@server.resource("hosted://thing")
async def thing() -> str:
    return "thing"


settings = {"drain_timeout": float(os.environ.get("DRAIN_TIMEOUT", "5"))}
app = server.asgi(**settings)
inner = server.asgi(**settings)
mounted = FastAPI(lifespan=inner.lifespan)
mounted.mount("/ai", inner)
forgotten = FastAPI()
forgotten.mount("/ai", server.asgi())


@mounted.get("/touch")
async def touch() -> dict[str, str]:
    """Called in asyncio, outside of Trio."""
    server.notify_resource_updated("hosted://thing")
    return {"touched": "hosted://thing"}
