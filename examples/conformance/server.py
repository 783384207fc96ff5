"""The fixture that the conformance suite, and clients of other makers, are run against.

    mcptrio run examples/conformance/server.py --transport http --host 127.0.0.1 --port 3001

What only answers is in `content.py`, what asks the client in `asking.py` and, under keys of its own, in `rounds.py`,
resources and prompts in `library.py`. Here is what changes while the server runs: lists, a watched resource, cancelled
calls.
"""

from __future__ import annotations

import asking
import content
import extensions
import library
import rounds
import trio
from attrs import define

from mcptrio import Context, Server

server = Server(
    "mcptrio-conformance",
    version="1.0.0",
    title="Conformance fixture",
    instructions="Every feature of the protocol, for programs that test clients.",
    page_size={"resources": 10},
)
server.include(content.server)
server.include(asking.server)
server.include(rounds.server)
server.include(library.server)
server.include(extensions.server)


# -- calls that take long


@define
class Seen:
    cancelled: int = 0
    watched: str = "Nothing has happened yet."


seen = Seen()


@server.tool(timeout=3600)
async def test_cancellation(seconds: float) -> str:
    """Sleeps; a call that is cancelled meanwhile is counted."""
    try:
        await trio.sleep(seconds)
    except trio.Cancelled:
        seen.cancelled += 1
        raise
    return "finished"


@server.tool
async def test_cancellation_count() -> str:
    """Says how many calls of test_cancellation were cancelled since the server started."""
    return f"cancelled: {seen.cancelled}"


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Closes the stream of its own call, so that the client has to come back for the answer."""
    ctx.close_stream()
    await trio.sleep(0.2)
    return "Reconnection test completed"


# -- a resource that changes


@server.resource("test://watched-resource", mime_type="text/plain")
async def watched_resource() -> str:
    """A text that test_update_watched_resource replaces."""
    return seen.watched


@server.tool
async def test_update_watched_resource(text: str) -> str:
    """Replace the watched resource and notify its subscribers."""
    seen.watched = text
    server.notify_resource_updated("test://watched-resource")
    return "updated"


# -- lists that change


async def temporary() -> str:
    """Here for a moment only."""
    return "gone soon"


@server.tool
async def test_trigger_tool_change() -> str:
    """Adds a tool and removes it again; clients hear that the list has changed."""
    server.add_tool(temporary, name="test_temporary_tool")
    server.remove_tool("test_temporary_tool")
    return "The list of tools has changed."


@server.tool
async def test_trigger_prompt_change() -> str:
    """Adds a prompt and removes it again; clients hear that the list has changed."""
    server.add_prompt(temporary, name="test_temporary_prompt")
    server.remove_prompt("test_temporary_prompt")
    return "The list of prompts has changed."


@server.tool
async def test_trigger_resource_change() -> str:
    """Adds a resource and removes it again; clients hear that the list has changed."""
    server.add_resource("test://temporary", temporary)
    server.remove_resource("test://temporary")
    return "The list of resources has changed."


if __name__ == "__main__":
    server.run()
