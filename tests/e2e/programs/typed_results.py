"""A server whose results have every shape that a FastMCP client unwraps, and whose tools report progress."""

from __future__ import annotations

from dataclasses import dataclass

from mcptrio import Context, Server

server = Server("typed results")


@dataclass
class Point:
    x: int
    y: int


@server.tool
async def number() -> int:
    return 3


@server.tool
async def numbers() -> list[int]:
    return [1, 2]


@server.tool
async def maybe() -> int | None:
    return None


@server.tool
async def point() -> Point:
    return Point(1, 2)


@server.tool
async def points() -> list[Point]:
    return [Point(1, 2)]


@server.tool
async def text() -> str:
    return "hello"


@server.tool
async def lenient(n: int, tags: list[str]) -> str:
    return f"{n} {tags}"


@server.tool(max_result_bytes=100)
async def large() -> str:
    return "x" * 1000


@server.tool
async def hurried(ctx: Context) -> str:
    """Report progress directly before the result."""
    for step in range(3):
        await ctx.progress(step + 1, 3)
    return "done"


if __name__ == "__main__":
    server.run()
