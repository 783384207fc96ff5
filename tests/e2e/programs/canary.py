"""A server that gives back what it is given, in every way there is: for tests that look for leaks between clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import trio

from mcptrio import Context, Server, SessionHandle, ToolError

server = Server("canary", version="1.0.0")


@dataclass
class Memory:
    """The state of a session."""

    said: list[str] = field(default_factory=list)


@dataclass
class Word:
    word: str


@server.session
async def remember(session: SessionHandle) -> AsyncIterator[Memory]:
    yield Memory()


@server.tool(read_only=True)
async def echo(text: str) -> str:
    """Says it again."""
    return text


@server.tool
async def tell(text: str, times: int, ctx: Context) -> str:
    """Says it as progress and as a log message, several times."""
    for number in range(times):
        await ctx.progress(number + 1, times, text)
        await ctx.info(text)
        await trio.lowlevel.checkpoint()
    return text


@server.tool
async def keep(text: str, ctx: Context) -> list[str]:
    """Remembers it for this session and says everything remembered."""
    memory: Memory = ctx.state
    memory.said = [*memory.said[-2:], text]
    return memory.said


@server.tool
async def wait(text: str, seconds: float = 30.0) -> str:
    """Takes its time."""
    await trio.sleep(seconds)
    return text


@server.tool
async def ask(text: str, ctx: Context) -> str:
    """Asks for a word."""
    answer = await ctx.elicit(f"{text}?", Word)
    return f"{text} {answer.value.word if answer.value else answer.action}"


@server.tool
async def fail(text: str) -> str:
    """Fails, and says why to its caller alone."""
    raise ToolError(text)


@server.tool
async def crash(text: str) -> str:
    """Fails without wanting to."""
    raise RuntimeError(text)


@server.tool
async def pour(messages: int, kib: int, ctx: Context, then: float = 0.0) -> str:
    """Logs so many messages of so many KiB, and stays for so many seconds."""
    for _ in range(messages):
        await ctx.info("x" * kib * 1024)
    await trio.sleep(then)
    return "poured"


@server.tool
async def grab(text: str, mib: int) -> str:
    """Needs so much memory for a moment."""
    return text if len(bytearray(mib * 2**20)) else ""
