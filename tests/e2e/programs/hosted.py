"""An MCP server for asyncio servers: `uvicorn hosted:app`, and `hosted:mounted` for it inside FastAPI."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

import trio
from fastapi import FastAPI

from mcptrio import Context, Server, ToolError

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


# Each of these exists twice, on Trio and on asyncio.


@server.tool
async def fail(text: str) -> str:
    await trio.lowlevel.checkpoint()
    raise ToolError(text) if text else ValueError("secret")


@server.tool(runs="asyncio")
async def aio_fail(text: str) -> str:
    await asyncio.sleep(0)
    raise ToolError(text) if text else ValueError("secret")


@server.tool(runs="asyncio")
async def aio_ask(ctx: Context) -> str:
    answer = await ctx.elicit("Which size?", Size)
    return "none" if answer.value is None else str(answer.value.size)


@server.tool
async def wait() -> str:
    print("wait has begun", flush=True)
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.01)
        print("wait has ended", flush=True)
    return ""


@server.tool(runs="asyncio")
async def aio_wait() -> str:
    print("aio_wait has begun", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)
        print("aio_wait has ended", flush=True)
    return ""


@server.tool(timeout=0.05)
async def late() -> str:
    await trio.sleep_forever()
    return ""


@server.tool(runs="asyncio", timeout=0.05)
async def aio_late() -> str:
    await asyncio.Event().wait()
    return ""


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
