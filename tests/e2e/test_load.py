"""Many idle sessions in one process: what each costs, and that all of them can go at once.

The suite opens 500; `make load-test` opens 10,000 and holds them to the promised 12 KiB each.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import trio

from tests.transports.app_for_tests import initialize, notification

from .server_process import ServerProcess, running

FULL = "MCPTRIO_LOAD" in os.environ
SESSIONS = 10_000 if FULL else 500
WARM_UP = 2_000 if FULL else 100
PROMISED = 12 * 1024
ENGINES = 8


async def test_idle_sessions_are_cheap_and_all_go_at_once(engine: str, tmp_path: Path) -> None:
    with running("busy.py", tmp_path / "log", "--log-level", "warning", "--drain-timeout", "5") as server:
        await server.wait_ready()
        process = psutil.Process(server.process.pid)
        await open_sessions(server, WARM_UP)
        before = process.memory_info().rss
        await open_sessions(server, SESSIONS - WARM_UP)
        grown = process.memory_info().rss - before
        each = grown / (SESSIONS - WARM_UP)
        whole = process.memory_info().rss / 2**20
        print(f"\n{SESSIONS} idle sessions: {each / 1024:.1f} KiB each, {whole:.0f} MiB in all")
        if FULL:
            assert each <= PROMISED
        began = trio.current_time()
        server.signal(signal.SIGTERM)
        assert await server.wait(within=6) == 0
        print(f"torn down in {trio.current_time() - began:.2f} s")


async def open_sessions(server: ServerProcess, count: int) -> None:
    async with trio.open_nursery() as nursery:
        for engine in range(ENGINES):
            nursery.start_soon(open_some, server, count // ENGINES + (engine < count % ENGINES))


async def open_some(server: ServerProcess, count: int) -> None:
    """One keep-alive connection that opens session after session."""
    stream = await server.connect()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\n"
    )
    opening = initialize()
    confirming = notification("notifications/initialized")
    for _ in range(count):
        await stream.send_all(f"{head}Content-Length: {len(opening)}\r\n\r\n".encode() + opening)
        answer = await read_response(stream)
        session = answer.split(b"mcp-session-id: ", 1)[1].split(b"\r\n", 1)[0].decode()
        extra = f"Mcp-Session-Id: {session}\r\nContent-Length: {len(confirming)}\r\n\r\n"
        await stream.send_all(f"{head}{extra}".encode() + confirming)
        assert b" 202 " in await read_response(stream)


async def read_response(stream: trio.SocketStream) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive_some()
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0]) if b"ength: " in head else 0
    while len(body) < length:
        body += await stream.receive_some()
    return head + b"\r\n"
