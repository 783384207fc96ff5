"""A server with every feature that a hostile peer can use up: `attacked.py PORT`.

The engine is in `MCPTRIO_ENGINE`, and `MCPTRIO_TEST_KEYS` is the URL of the issuer's keys.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

import trio

from mcptrio import Context, Server
from mcptrio.auth.server import BearerAuth
from mcptrio.extensions.tasks import Tasks

server = Server("attacked", threads=16, page_size=5)
server.add_extension(Tasks())


@dataclass
class Word:
    word: str


@server.tool(read_only=True)
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool(read_only=True)
async def give(kib: int) -> str:
    """Return a text of so many KiB."""
    return "x" * kib * 1024


@server.tool
def in_thread(text: str) -> str:
    """Return the text from a worker thread."""
    return text


@server.tool
def hold(seconds: float) -> str:
    """Hold a worker thread."""
    time.sleep(seconds)
    return "held"


@server.tool
async def wait(seconds: float) -> str:
    """Take time without a thread."""
    await trio.sleep(seconds)
    return "waited"


@server.tool
async def ask(text: str, ctx: Context) -> str:
    """Ask the user for a word."""
    answer = await ctx.elicit(f"{text}?", Word)
    return f"{text} {answer.value.word if answer.value else answer.action}"


@server.tool
def ask_in_thread(text: str, ctx: Context) -> str:
    """Ask the user for a word from a worker thread."""
    answer = trio.from_thread.run(ctx.elicit, f"{text}?", Word)
    return f"{text} {answer.action}"


@server.tool
async def tell(times: int, ctx: Context) -> str:
    """Report progress."""
    for number in range(times):
        await ctx.progress(number + 1, times)
    return "told"


@server.tool
async def pour(messages: int, kib: int, ctx: Context) -> str:
    """Log messages of so many KiB."""
    for _ in range(messages):
        await ctx.info("x" * kib * 1024)
    return "poured"


@server.tool(task=True)
async def report(text: str, seconds: float) -> str:
    """Work as a task."""
    await trio.sleep(seconds)
    return text


for number in range(10):

    @server.resource(f"files://all/{'x' * number}{{a}}/{number}", name=f"file {number}")
    async def read(a: str) -> str:
        """Return a file."""
        return a


@server.resource("notes://{name}")
async def note(name: str) -> str:
    """Return a note."""
    return name


def main() -> None:
    # Imported here: the names of the issuer are those of the tests.
    from tests.auth.server.kit import ISSUER, RESOURCE

    auth = BearerAuth(resource=RESOURCE, issuers=[ISSUER], jwks_uri=os.environ["MCPTRIO_TEST_KEYS"], dpop=True)
    server.run("http", port=int(sys.argv[1]), engine=os.environ["MCPTRIO_ENGINE"], auth=auth)


if __name__ == "__main__":
    main()
