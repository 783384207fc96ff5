"""The server that faults happen to."""

from __future__ import annotations

from typing import Any

import trio

from mcptrio import Context, Server
from mcptrio._actors.limits import Limits
from tests.e2e.programs.canary import Word


class Trail:
    """The record of what handlers did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __call__(self, what: str) -> None:
        self.done.append(what)


def make_server(trail: Trail | None = None, **options: Any) -> Server:
    trail = trail or Trail()
    limits = {name: options.pop(name) for name in Limits.__struct_fields__ if name in options}
    server = Server("faulty", limits=Limits(**limits), **options)

    @server.tool(read_only=True)
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait(text: str, seconds: float = 1.0) -> str:
        trail("begun")
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            trail("cancelled")
            raise
        trail("finished")
        return text

    @server.tool
    async def tell(text: str, ctx: Context, times: int = 3, pause: float = 0.1, kib: int = 0) -> str:
        for number in range(times):
            await ctx.progress(number + 1, times, text + "x" * kib * 1024)
            await trio.sleep(pause)
        return text

    @server.tool
    async def chat(text: str, ctx: Context, times: int = 3, pause: float = 0.0) -> str:
        for number in range(times):
            await ctx.info(f"{text} {number + 1}")
            await trio.sleep(pause)
        return text

    @server.tool
    async def ask(text: str, ctx: Context, model: bool = False, catch: bool = False) -> str:
        """Ask the user or the model; a handler that can do without an answer catches the error."""
        try:
            if model:
                return str(await ctx.sample(text))
            answer = await ctx.elicit(f"{text}?", Word)
        except Exception as error:
            trail(type(error).__name__)
            if catch:
                return f"{text} without an answer"
            raise
        return f"{text} {answer.value.word if answer.value else answer.action}"

    return server
