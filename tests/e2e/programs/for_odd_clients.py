"""A small server for clients that are odd."""

from __future__ import annotations

from dataclasses import dataclass

from mcptrio import Context, Server

server = Server("plain", version="1")


@dataclass
class Word:
    word: str


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def hello() -> str:
    """Say hello."""
    return "hello"


@server.tool
async def ask(text: str, ctx: Context) -> str:
    """Ask the user for a word."""
    answer = await ctx.elicit(f"{text}?", Word)
    return f"{text} {answer.value.word if answer.value else answer.action}"
