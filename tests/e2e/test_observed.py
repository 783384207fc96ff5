"""What can be seen of a server from outside: its metrics, its log, and that it notices a handler that blocks it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from mcptrio import Server
from mcptrio._eras.choose import ERAS
from tests import engines
from tests.telemetry.test_metrics import read

DATE = [era.date for era in ERAS.values() if era.stateful][-1]
HEADERS = (
    "Host: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    "Accept: application/json, text/event-stream\r\nConnection: close\r\n"
)


@asynccontextmanager
async def served(server: Server) -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:
        (bound,) = await nursery.start(partial(server.serve_http, port=0, engine=engines.current()))
        yield bound.port
        nursery.cancel_scope.cancel()


async def ask(port: int, line: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
    head = f"{line} HTTP/1.1\r\n" + HEADERS.format(port=port) + f"Content-Length: {len(body)}\r\n"
    head += "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    data = b""
    with trio.fail_after(20):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(head.encode() + b"\r\n" + body)
            async for piece in stream:
                data += piece
    top, _, rest = data.partition(b"\r\n\r\n")
    status, *fields = top.decode().split("\r\n")
    named = (field.split(": ", 1) for field in fields)
    return int(status.split()[1]), {name.lower(): value for name, value in named}, rest


async def metrics(port: int) -> dict[tuple[str, ...], float]:
    status, headers, body = await ask(port, "GET /metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    return read(body.decode())


def frame(method: str, request_id: int | None = None, **params: Any) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if request_id is None else {**message, "id": request_id}).encode()


async def open_session(port: int) -> str:
    client = {"name": "t", "version": "1"}
    body = frame("initialize", 1, protocolVersion=DATE, capabilities={}, clientInfo=client)
    _, headers, _ = await ask(port, "POST /mcp", body)
    return headers["mcp-session-id"]


async def test_the_metrics_page_counts_sessions_calls_and_connections(engine: str) -> None:
    server = Server("orders", version="1")

    @server.tool
    async def order() -> str:
        return "42"

    async with served(server) as port:
        session = await open_session(port)
        for number in (2, 3):
            await ask(
                port, "POST /mcp", frame("tools/call", number, name="order", arguments={}), mcp_session_id=session
            )
        page = await metrics(port)
        assert page["mcptrio_sessions_open",] == 1
        assert page["mcptrio_sessions_created_total", "http"] == 1
        assert page["mcptrio_calls_ended_total", "tools/call", "ok"] == 2
        assert page["mcptrio_call_seconds_count", "tools/call"] == 2
        assert page["mcptrio_calls_in_flight",] == 0
        assert page["mcptrio_connections_open",] == 1  # the one that asks
        assert page["mcptrio_connection_events_total", "opened"] == 4
        assert page["mcptrio_ready",] == 1
        assert page["mcptrio_store_degraded",] == 0
        await ask(port, "GET / mcp")
        assert (await metrics(port))["mcptrio_connection_events_total", "request_refused"] == 1
    assert not server._app.telemetry  # nothing is left behind when serving ends


@pytest.mark.slow
async def test_a_handler_that_blocks_the_loop_is_named_and_readiness_turns_red(
    engine: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """F11. The block is real: a thread that holds the loop cannot be simulated."""
    server = Server("orders", version="1")

    @server.tool
    async def freeze() -> str:
        threading.Event().wait(1.3)
        return "done"

    with caplog.at_level(logging.WARNING, "mcptrio"):
        async with served(server) as port:
            session = await open_session(port)
            assert (await ask(port, "GET /readyz"))[0] == 200
            await ask(port, "POST /mcp", frame("tools/call", 2, name="freeze", arguments={}), mcp_session_id=session)
            status, _, body = await ask(port, "GET /readyz")
            assert (status, body) == (503, b"the event loop was blocked\n")
            page = await metrics(port)
    assert page["mcptrio_loop_stalls_total",] >= 1
    assert page["mcptrio_ready",] == 0
    assert page["mcptrio_loop_lag_seconds_bucket", "1.0"] < page["mcptrio_loop_lag_seconds_count",]
    (record,) = [
        record for record in caplog.records if record.name == "mcptrio.watchdog" and "freeze" in record.message
    ]
    assert "tools/call: " in record.message
    assert "threading.Event().wait(1.3)" in str(record.stack_info)


FILE = """
import logging
from mcptrio import Server
from mcptrio._eras.choose import ERAS
server = Server("orders", version="1")

@server.tool
async def broken() -> str:
    logging.getLogger("mine").warning("about to fail\\nforged line")
    raise ValueError("secret detail")
"""


@pytest.mark.parametrize("style", ["text", "json"])
def test_the_command_line_logs_events_and_names_the_request_of_what_a_handler_logs(style: str, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(FILE)
    client = {"name": "t", "version": "1"}
    lines = (
        frame("initialize", 1, protocolVersion=DATE, capabilities={}, clientInfo=client),
        frame("notifications/initialized"),
        frame("tools/call", 7, name="broken", arguments={}),
    )
    done = subprocess.run(
        [sys.executable, "-m", "mcptrio", "run", str(tmp_path / "server.py"), "--log-format", style],
        input=b"\n".join(lines) + b"\n",
        capture_output=True,
        timeout=60,
        check=True,
    )
    logged = done.stderr.decode().splitlines()
    if style == "json":
        found = [json.loads(line) for line in logged]
        (own,) = [line for line in found if line["logger"] == "mine"]
        assert own["message"] == "about to fail\\nforged line"
        assert own["request"] == 7
        assert [line["message"] for line in found if line["logger"] == "mcptrio.events"] == [
            "session opened",
            "session closed",
        ]
        (failure,) = [line for line in found if "traceback" in line]
        assert (failure["request"], failure["session"]) == (7, own["session"])
        assert "secret detail" in failure["traceback"]
    else:
        assert not [line for line in logged if line.startswith("forged")]
        (own_line,) = [line for line in logged if "about to fail" in line]
        assert own_line.endswith(" request=7")
        assert any("session closed session=" in line for line in logged)
    assert b"secret detail" not in done.stdout
