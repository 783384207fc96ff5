"""Orders in a FastAPI application: an asyncio database driver, and a tool that asks the user before it refunds.

    pip install fastapi uvicorn aiosqlite
    python examples/fastapi_orders.py                        the endpoint is http://127.0.0.1:8000/ai/mcp

The tools await an asyncio library, so they are declared with `runs="asyncio"`; they run on the loop of the application
and share its database connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiosqlite
import uvicorn
from fastapi import FastAPI

from mcptrio import Context, Server, ToolError

server = Server("orders", version="1.0.0", instructions="Look up and refund orders.")
mcp = server.asgi()
database: aiosqlite.Connection


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    global database
    async with aiosqlite.connect(":memory:") as database, mcp.lifespan(app):
        await database.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL)")
        await database.execute("INSERT INTO orders VALUES ('7', 'shipped'), ('8', 'paid')")
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/ai", mcp)


@dataclass
class Confirm:
    sure: bool


@server.tool(runs="asyncio", read_only=True)
async def state(order_id: str) -> str:
    """Say in which state an order is."""
    async with database.execute("SELECT state FROM orders WHERE id = ?", (order_id,)) as rows:
        row = await rows.fetchone()
    if row is None:
        raise ToolError(f"There is no order {order_id}.")
    return str(row[0])


@server.tool(runs="asyncio", destructive=True)
async def refund(order_id: str, ctx: Context) -> str:
    """Refund an order after asking the user."""
    was = await state(order_id)
    answer = await ctx.elicit(f"Order {order_id} is {was}. Refund it?", Confirm)
    if answer.value is None or not answer.value.sure:
        raise ToolError("The user declined the refund.")
    await database.execute("UPDATE orders SET state = 'refunded' WHERE id = ?", (order_id,))
    return f"Order {order_id} is refunded."


@app.get("/orders/{order_id}")
async def order_page(order_id: str) -> dict[str, str]:
    return {"order": order_id, "state": await state(order_id)}


if __name__ == "__main__":
    uvicorn.run(app)
