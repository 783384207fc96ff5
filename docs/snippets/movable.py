"""A session function that continues a stored session (docs/howto/sessions.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from mcptrio import Context, Server, SessionHandle

server = Server("baskets")


@server.session(movable=True)
async def basket(session: SessionHandle) -> AsyncIterator[list[str]]:
    """Around each session, again whenever a stored one comes back."""
    items: list[str] = session.saved or []
    yield items


@server.tool
async def add(item: str, ctx: Context[None, list[str]]) -> int:
    """Put something into the basket of this session."""
    ctx.state.append(item)
    ctx.session.save(ctx.state)  # at once: a process that is killed runs nothing after the yield
    return len(ctx.state)
