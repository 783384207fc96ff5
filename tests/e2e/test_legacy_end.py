"""The end of a server while clients hold HTTP+SSE streams open."""

from __future__ import annotations

import logging
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest
import trio

from mcptrio import Client, Server, connect
from mcptrio.errors import MCPTrioError
from mcptrio.transports.legacy_sse.client import LegacySseTransport
from tests import engines
from tests.engines import both_engines

from .raw_peer import read_until

pytestmark = both_engines

server = Server("old", "1")


@server.tool
async def wait() -> str:
    """Wait for ever."""
    await trio.sleep_forever()


async def call_wait(client: Client) -> None:
    with suppress(MCPTrioError):  # the server is gone
        await client.call_tool("wait")


@pytest.mark.defect("E27")
@pytest.mark.parametrize("drain", [True, False], ids=["drained", "cancelled"])
@pytest.mark.parametrize("use", ["opened", "initialized", "calling"])
async def test_ending_with_an_open_stream_logs_no_error(
    use: str, drain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stop = trio.Event()
    options: dict[str, Any] = {
        "port": 0,
        "legacy_sse": True,
        "drain_timeout": 0.2,
        "stop": stop,
        "engine": engines.current(),
    }
    with trio.fail_after(20), ExitStack() as opened:
        async with trio.open_nursery() as clients:
            async with trio.open_nursery() as serving:
                (address,) = await serving.start(partial(server.serve_http, **options))
                if use == "opened":
                    stream = await trio.open_tcp_stream("127.0.0.1", address.port)
                    opened.callback(stream.socket.close)
                    await stream.send_all(b"GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
                    await read_until(stream, b"session_id")
                else:
                    client = await clients.start(hold, f"{address.url}/sse")
                    if use == "calling":
                        clients.start_soon(call_wait, client)
                        await trio.sleep(0.2)
                if drain:
                    stop.set()
                else:
                    serving.cancel_scope.cancel()
            clients.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.defect("E27")
async def test_a_stream_that_was_just_opened_ends_with_the_server_in_any_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Trio chooses in which order cancelled tasks run, so one ending proves little."""
    options = {"port": 0, "legacy_sse": True, "engine": engines.current()}
    for _ in range(10):
        with trio.fail_after(20):
            async with trio.open_nursery() as serving:
                (address,) = await serving.start(partial(server.serve_http, **options))
                stream = await trio.open_tcp_stream("127.0.0.1", address.port)
                await stream.send_all(b"GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
                await read_until(stream, b"session_id")
                serving.cancel_scope.cancel()
        await trio.aclose_forcefully(stream)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def hold(url: str, *, task_status: trio.TaskStatus[Client]) -> None:
    """Keep a client connected."""
    async with connect(LegacySseTransport(url=url)) as client:
        task_status.started(client)
        await trio.sleep_forever()
