"""A server that does everything the command line can show: `mcptrio run tests/cli/talkative.py`."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import trio

from mcptrio import Context, Image, MCPError, Message, Server, ToolError, user

server = Server("talkative", version="2.0", instructions="Try everything.", page_size=3)
NUMBERS = itertools.count(1)
VISITS: list[str] = []
PIXEL = b"\x89PNG\r\n\x1a\n not much of a picture"


@dataclass
class Shirt:
    size: Literal["s", "m", "l"]
    number: Annotated[int, msgspec.Meta(ge=1, le=99)]
    gift: bool = False
    text: str | None = None


@server.tool(read_only=True)
async def add(a: int, b: float = 1.0) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool
async def echo(value: Any = None) -> str:
    """Say what was said."""
    return str(value)


@server.tool
async def fail(lines: int = 1) -> str:
    """Fail."""
    raise ToolError("\n".join(f"reason {n}" for n in range(1, lines + 1)))


@server.tool
async def steps(ctx: Context) -> str:
    """Report progress and write to the log."""
    for n in range(1, 4):
        await ctx.progress(n, 3, f"step {n}")
    await ctx.info("the steps are done")
    return "walked"


@server.tool
async def picture() -> list[str | Image]:
    """Draw."""
    return ["two pictures:", Image(PIXEL, mime_type="image/png"), Image(PIXEL * 2, mime_type="image/png")]


@server.tool
async def shirt(ctx: Context) -> str:
    """Ask for a shirt."""
    answer = await ctx.elicit("Which shirt?\x1b[2J", Shirt)
    return f"{answer.action}: {answer.value}"


@server.tool
async def visit(ctx: Context) -> str:
    """Send the person to a page."""
    answer = await ctx.elicit_url("Pay here.", os.environ.get("PAGE", "https://example.org/pay"))
    return str(answer.action)


@server.tool
async def members_only(ctx: Context) -> str:
    """Refuse until a page was visited; to be called twice counts as that."""
    if not VISITS:
        VISITS.append("e1")
        page = {"mode": "url", "elicitationId": "e1", "url": "https://example.org/join", "message": "Join the club."}
        raise MCPError(-32042, "members only", {"elicitations": [page]})
    return "welcome"


@server.tool
async def think(ctx: Context) -> str:
    """Ask the model."""
    result = await ctx.sample("What is six times seven?", max_tokens=10)
    return str(result.content[0].text)


@server.tool
async def places(ctx: Context) -> str:
    """List the roots."""
    return ", ".join(root.uri for root in await ctx.list_roots())


@server.tool
async def wait(file: str) -> str:
    """Wait until the call is cancelled, and leave a note of that."""
    note = Path(file).write_text
    note("waiting")
    try:
        await trio.sleep_forever()
    finally:
        note("cancelled")


@server.tool
async def grow() -> str:
    """Add a tool, and change a resource."""

    async def grown() -> str:
        """A new one."""
        return "grown"

    server.add_tool(grown, name=f"grown_{next(NUMBERS)}")
    server.notify_resource_updated("talk://text")
    return "grew"


@server.tool
async def die() -> str:
    """End the process."""
    await trio.to_thread.run_sync(os._exit, 7)  # in a thread: coverage saves its data first, which takes a while
    return "unreached"


@server.resource("talk://text", mime_type="text/plain")
def text() -> str:
    """A text without an end of line."""
    return "some text \u00e9"


@server.resource("talk://blob", mime_type="image/png")
def blob() -> bytes:
    """Some bytes."""
    return PIXEL


@server.resource("talk://number/{n}", mime_type="text/plain")
def number(n: int) -> str:
    """A number in words."""
    return f"number {n}"


@server.prompt
def greet(name: str, tone: str = "warm") -> list[Message]:
    """Greet somebody."""
    return [user(f"Greet {name} in a {tone} way.")]


if __name__ == "__main__":
    server.run()
