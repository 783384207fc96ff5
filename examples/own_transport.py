"""A transport of your own: JSON-RPC messages over TCP, each after its length in four bytes.

Start the server with `python examples/own_transport.py serve 8765`, then call its tool from another terminal with
`python examples/own_transport.py call 8765 Ada`.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import trio

from mcptrio import Link, Server, connect

HOST = "127.0.0.1"
MAX_MESSAGE = 4 * 1024 * 1024

server = Server("greeter", version="1.0.0")


@server.tool(read_only=True)
async def greet(name: str) -> str:
    """Greet the user by name."""
    return f"Hello, {name}!"


class FramedLink:
    """Carries whole messages over a byte stream. `server.serve` needs only `send` and `receive`."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def send(self, message: bytes) -> None:
        await self._stream.send_all(len(message).to_bytes(4, "big") + message)

    async def receive(self) -> bytes:
        size = int.from_bytes(await self._take(4), "big")
        if size > MAX_MESSAGE:  # a link bounds its messages itself
            raise trio.BrokenResourceError(f"a message of {size} bytes exceeds {MAX_MESSAGE}")
        return await self._take(size)

    async def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = await self._stream.receive_some()
            if not data:
                raise trio.EndOfChannel
            self._buffer += data
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


@dataclass
class FramedTcp:
    """Reaches a server at a port of this machine. `connect` needs only `open_link`."""

    port: int

    @asynccontextmanager
    async def open_link(self) -> AsyncIterator[Link]:
        async with await trio.open_tcp_stream(HOST, self.port) as stream:
            yield FramedLink(stream)


async def call(port: int, name: str) -> None:
    async with connect(FramedTcp(port)) as client:
        print((await client.call_tool("greet", {"name": name})).text)


if __name__ == "__main__":
    command, port, *names = sys.argv[1:]
    if command == "serve":
        trio.run(partial(trio.serve_tcp, lambda stream: server.serve(FramedLink(stream)), int(port), host=HOST))
    else:
        trio.run(call, int(port), names[0])
