"""State of the process, and state of one client's session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from mcptrio import Context, Server, SessionHandle, SessionRefused


@dataclass
class Database:
    """A stand-in for a connection pool."""

    rows: list[str] = field(default_factory=list)
    closed: bool = False


async def lifespan(server: Server) -> AsyncIterator[Database]:
    """Around the whole process: opened before the first client, closed after the last."""
    database = Database()
    try:
        yield database
    finally:
        database.closed = True


server = Server("baskets", lifespan=lifespan)


@server.session
async def basket(session: SessionHandle) -> AsyncIterator[list[str]]:
    """Around each session: what is yielded is `ctx.state` there, and nowhere else."""
    if session.client_info is not None and session.client_info.name == "a client with a known bug":
        raise SessionRefused("Please update your client.")
    items: list[str] = []
    yield items
    print(f"{session} ended with {len(items)} items")


@server.tool
async def add(item: str, ctx: Context[Database, list[str]]) -> int:
    """Put something into the basket of this session."""
    ctx.state.append(item)
    return len(ctx.state)


@server.tool
async def order(ctx: Context[Database, list[str]]) -> str:
    """Order what is in the basket."""
    database = ctx.lifespan  # a type checker knows its class
    database.rows.extend(ctx.state)
    ctx.state.clear()
    return f"{len(database.rows)} things were ordered by all clients so far."
