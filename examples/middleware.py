"""Middleware around every request, state for each session, and two servers in one.

mcptrio run examples/middleware.py
mcptrio call examples/middleware.py text_words --arg text="one two"
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import trio

from mcptrio import Context, Server, SessionHandle, ToolError

logger = logging.getLogger("example")


def text_server() -> Server:
    """A small server that does not depend on the other one."""
    server = Server("text")

    @server.tool(read_only=True)
    async def words(text: str) -> int:
        """Count the words of a text."""
        return len(text.split())

    @server.tool(read_only=True)
    async def reverse(text: str) -> str:
        """Write a text backwards."""
        return text[::-1]

    return server


server = Server("middleware", version="1.0.0")
server.include(text_server(), prefix="text_")


@server.session
async def count_calls(session: SessionHandle) -> AsyncIterator[Counter[str]]:
    """One counter for each client; what is after `yield` happens when the client leaves."""
    used: Counter[str] = Counter()
    yield used
    logger.info("%s ended (%s) after %s", session, session.ended, dict(used))


@server.use
async def time_it(ctx: Context, request: Any, call_next: Any) -> Any:
    began = trio.current_time()
    try:
        return await call_next(ctx, request)
    finally:
        logger.info("%s took %.1f ms", request.method, (trio.current_time() - began) * 1000)


@server.use
async def limit(ctx: Context[None, Counter[str]], request: Any, call_next: Any) -> Any:
    if request.method == "tools/call":
        if ctx.state.total() >= 100:
            return {"content": [{"type": "text", "text": "A hundred calls are enough."}], "isError": True}
        ctx.state[request.params.name] += 1
    return await call_next(ctx, request)


@server.tool(read_only=True)
async def usage(ctx: Context[None, Counter[str]]) -> dict[str, int]:
    """Say how often this session has called each tool."""
    if ctx.state.total() < 2:
        raise ToolError("This is the first call.")
    return dict(ctx.state)


if __name__ == "__main__":
    server.run()
