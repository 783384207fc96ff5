"""No sequence of small frames keeps the event loop busy for long: lines on a pipe, frames of a WebSocket, requests."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import pytest
import trio

from mcptrio import Server
from mcptrio._wire.lines import LineReader
from mcptrio.transports.pipe.server import PipeLimits, serve_pipe
from mcptrio.transports.stdio.server import LinePipe
from tests.engines import ENGINES
from tests.tiers import sample

from .loop_probe import at_most, open_probe
from .test_loop import LIMIT

PIECE: Final = 65_536
HELLO: Final = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},'
    b'"clientInfo":{"name":"probe","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)
PING: Final = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
CALL: Final = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}'
CANCEL: Final = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}'
ANSWER: Final = b'{"jsonrpc":"2.0","id":7,"result":{}}'

LINES: Final[dict[str, Callable[[], bytes]]] = {
    "pings": lambda: (PING + b"\n") * 20_000,
    "calls": lambda: (CALL + b"\n") * 5000,
    "cancels": lambda: (CANCEL + b"\n") * 20_000,
    "answers": lambda: (ANSWER + b"\n") * 20_000,
    "batches": lambda: (b"[" + b",".join([CANCEL] * 100) + b"]\n") * 200,
    "empty lines": lambda: b"\n" * 1_000_000,
    "no messages": lambda: b"x\n" * 50_000,
    "large lines": lambda: (PING + b" " * 2_000_000 + b"\n") * 8,
    "one long line": lambda: b"x" * 20_000_000 + b"\n",
}


def make_server() -> Server:
    server = Server("frames")

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


@pytest.mark.defect("S4")
@pytest.mark.parametrize("name", sample(LINES, *list(LINES)[::3]))
@at_most(LIMIT)
async def test_many_lines_do_not_block_the_loop(name: str) -> float:
    data = LINES[name]()
    pieces = [HELLO, *(data[at : at + PIECE] for at in range(0, len(data), PIECE))]

    async def read() -> bytes:
        await trio.lowlevel.checkpoint()
        return pieces.pop(0) if pieces else b""

    async def write(data: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async with make_server()._app.make_runtime().open() as runtime, open_probe() as probe:
        pipe = LinePipe(read, write, LineReader(10_000_000))
        with trio.fail_after(100):
            await serve_pipe(runtime, pipe, transport="stdio", limits=PipeLimits(linger=5))
    return probe.longest


def masked(opcode: int, payload: bytes = b"") -> bytes:
    """One frame of a client, with a mask of zeros."""
    return bytes([opcode, 0x80 | len(payload)]) + b"\0\0\0\0" + payload


UPGRADE: Final = (
    b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: mcp\r\n\r\n"
)
HEAD: Final = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\n"
SENT: Final[dict[str, Callable[[], bytes]]] = {
    "pings": lambda: UPGRADE + masked(0x89) * 20_000,
    "pongs": lambda: UPGRADE + masked(0x8A) * 20_000,
    "empty fragments": lambda: UPGRADE + masked(0x01) + masked(0x00) * 20_000,
    "tiny fragments": lambda: UPGRADE + masked(0x01, b"{") + masked(0x00, b"x") * 20_000,
    "messages": lambda: UPGRADE + masked(0x81, CANCEL) * 5000,
    "no messages": lambda: UPGRADE + masked(0x81, b"x") * 5000,
    "pipelined requests": lambda: (HEAD + b"Content-Length: 2\r\n\r\n{}") * 1000,
    "tiny chunks": lambda: HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 200_000,
    "many headers": lambda: HEAD + b"".join(b"X-%d: y\r\n" % number for number in range(50_000)),
    "blank lines": lambda: b"\r\n" * 500_000,
}


def send(port: int, data: bytes) -> None:
    """Send everything, and read what comes until the server is done with it."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=3) as sock:
        with suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        while sock.recv(PIECE):
            pass


@pytest.mark.defect("S4")
@pytest.mark.parametrize("engine", sample(ENGINES, ENGINES[0]))
@pytest.mark.parametrize("name", sample(SENT, *list(SENT)[::3]))
@at_most(LIMIT)
async def test_many_frames_do_not_block_the_loop(name: str, engine: str) -> float:
    data = SENT[name]()
    async with trio.open_nursery() as nursery:
        (address,) = await nursery.start(partial(make_server().serve_http, port=0, engine=engine))
        await trio.to_thread.run_sync(send, address.port, UPGRADE + masked(0x88))  # what is imported late
        await trio.to_thread.run_sync(send, address.port, HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")
        async with open_probe() as probe:
            await trio.to_thread.run_sync(send, address.port, data)
        nursery.cancel_scope.cancel()
    return probe.longest
