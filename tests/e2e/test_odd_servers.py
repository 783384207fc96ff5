"""A table of servers that others wrote, by what is odd about them. Each can be used all the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from mcptrio import Reconnect, connect

PROGRAM = str(Path(__file__).parent / "programs" / "odd_server.py")
PIPES = ["exits on discover", "empty cursor", "id as text", "other member null", "array", "array with a notification"]
STATUSES = ["429", "502", "503", "504"]
ROWS = [
    *(("stdio", oddity) for oddity in ["none", *PIPES]),
    *(("http", oddity) for oddity in ["none", *PIPES[1:], *STATUSES, "ids beyond ASCII"]),
]


@asynccontextmanager
async def target_of(transport: str, oddity: str) -> AsyncIterator[Any]:
    command = [sys.executable, "-S", "-E", PROGRAM, transport, oddity]
    if transport == "stdio":
        yield command
        return
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, command, stdout=subprocess.PIPE, check=False)
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        port = (await process.stdout.receive_some(100)).decode().strip()
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            nursery.cancel_scope.cancel()


@pytest.mark.defect("E18", "E22", "E25", "E26")
@pytest.mark.parametrize(("transport", "oddity"), ROWS)
async def test_an_odd_server_can_be_used(transport: str, oddity: str) -> None:
    received: list[str] = []
    with trio.fail_after(20):
        async with target_of(transport, oddity) as target:
            options: dict[str, Any] = {"reconnect": Reconnect(first=0.05), "timeout": 5.0}
            async with connect(target, on_notification=lambda method, _: received.append(method), **options) as client:
                assert client.protocol_version == "2025-11-25"
                assert [tool.name for tool in await client.list_tools()] == ["say", "other"]
                assert (await client.call_tool("say")).text == "hello"
    assert bool(received) == (oddity == "array with a notification")
