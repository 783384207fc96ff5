"""A server that the pages of one web site may call."""

from __future__ import annotations

from mcptrio import Server

server = Server("pages", version="1.0.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run("http", allowed_origins=("https://app.example.org", "http://localhost:*"))
