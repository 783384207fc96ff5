"""Observing a server from outside: its metrics, its log, and its report of a handler that blocks it."""

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

from mcptrio import Limits, Server, ToolError, telemetry
from mcptrio._eras.choose import ERAS
from tests import engines
from tests.telemetry.test_metrics import read

DATE = [era.date for era in ERAS.values() if era.stateful][-1]
HEADERS = (
    "Host: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    "Accept: application/json, text/event-stream\r\nConnection: close\r\n"
)


@asynccontextmanager
async def served(server: Server, **settings: Any) -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:
        (bound,) = await nursery.start(partial(server.serve_http, port=0, engine=engines.current(), **settings))
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
        assert page["mcptrio_calls_ended_total", "tools/call", "order", "ok"] == 2
        assert page["mcptrio_call_seconds_count", "tools/call", "order"] == 2
        assert page["mcptrio_calls_in_flight",] == 0
        assert page["mcptrio_connections_open",] == 1  # the one that asks
        assert page["mcptrio_connection_events_total", "opened"] == 4
        assert page["mcptrio_ready",] == 1
        assert page["mcptrio_store_degraded",] == 0
        await ask(port, "GET / mcp")
        assert (await metrics(port))["mcptrio_connection_events_total", "request_refused"] == 1
    assert not server._app.telemetry  # nothing is left behind when serving ends


async def test_the_metrics_of_a_mixed_load_say_which_tool_failed_how_often_and_how_long_it_took(engine: str) -> None:
    server = Server("orders", version="1")

    @server.tool
    async def quick() -> str:
        return "42"

    @server.tool
    async def broken() -> str:
        raise ToolError("no such order")

    @server.tool(timeout=0.05)
    async def slow() -> str:
        await trio.sleep(60)
        return "never"

    @server.tool(limit=1)
    async def one_at_a_time() -> str:
        await trio.sleep(1)
        return "done"

    @server.resource("orders://{order_id}")
    async def order(order_id: str) -> str:
        return order_id

    @server.prompt
    def complain() -> str:
        return "Write a complaint."

    async with served(server) as port:
        session = await open_session(port)
        number = 10

        async def call(method: str, **params: Any) -> None:
            nonlocal number
            number += 1
            await ask(port, "POST /mcp", frame(method, number, **params), mcp_session_id=session)

        async with trio.open_nursery() as nursery:
            for name, times in {"quick": 3, "broken": 2, "slow": 1, "one_at_a_time": 2}.items():
                for _ in range(times):
                    nursery.start_soon(partial(call, "tools/call", name=name, arguments={}))
        for hostile in range(100):
            await call("tools/call", name=f'evil{hostile}"}} 1\n', arguments={})
        for order_id in range(3):
            await call("resources/read", uri=f"orders://{order_id}")
        await call("resources/read", uri="evil://")
        await call("prompts/get", name="complain")
        page = await metrics(port)
    ended = {key[1:]: value for key, value in page.items() if key[0] == "mcptrio_calls_ended_total"}
    assert ended == {
        ("initialize", "ok"): 1,
        ("tools/call", "quick", "ok"): 3,
        ("tools/call", "broken", "tool_error"): 2,
        ("tools/call", "slow", "timeout"): 1,
        ("tools/call", "one_at_a_time", "ok"): 2,
        ("tools/call", "other", "error"): 100,
        ("resources/read", "orders://{order_id}", "ok"): 3,
        ("resources/read", "other", "error"): 1,
        ("prompts/get", "complain", "ok"): 1,
    }
    assert page["mcptrio_call_seconds_count", "tools/call", "slow"] == 1
    assert page["mcptrio_call_seconds_sum", "tools/call", "slow"] >= 0.05
    assert page["mcptrio_call_queue_seconds_sum", "tools/call"] > 0


async def test_names_that_a_hostile_client_invents_add_no_rows_to_the_metrics(engine: str) -> None:
    server = Server("orders", version="1")

    @server.tool
    async def order() -> str:
        return "42"

    @server.prompt
    def complain() -> str:
        return "Write a complaint."

    @server.resource("orders://{order_id}")
    async def read_order(order_id: str) -> str:
        return order_id

    async def attack(port: int, word: str) -> None:
        session = await open_session(port)
        for number in range(8):
            name = f'{word} {number}"}} 1\n{{'
            for body in (
                frame("tools/call", 1, name="order", arguments={}),
                frame("tools/call", 2, name=name, arguments={}),
                frame("tools/call", 3, name="order", arguments={}, _meta={"progressToken": name, name: name}),
                frame("prompts/get", 4, name=name),
                frame("resources/read", 5, uri=f"{word}{number}://x"),
                frame("resources/read", 6, uri=f"orders://{word}{number}"),
                frame("resources/subscribe", 7, uri=f"{word}{number}://x"),
                frame("completion/complete", 8, ref={"type": "ref/prompt", "name": name}, argument={"name": name}),
                frame("logging/setLevel", 9, level=name),
                frame(f"{word}/{number}", 10),
                frame(f"notifications/{word}{number}"),
                frame("notifications/cancelled", requestId=name, reason=name),
            ):
                await ask(port, "POST /mcp", body, mcp_session_id=session)
            body = frame("tools/call", 1, name=name, arguments={})
            await ask(port, "POST /mcp", body, mcp_protocol_version=f"{word}{number}")
            await ask(port, "POST /mcp", body, mcp_session_id=f"{word}{number}")
            await ask(port, "POST /mcp", body, origin=f"https://{word}{number}.example")
            await ask(port, f"GET /{word}{number}")
            await ask(port, f"{word.upper()}{number} /mcp")

    async with served(server) as port:
        await attack(port, "evil")
        before = await metrics(port)
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(attack, port, f"wicked{number}x")
        after = await metrics(port)
    assert not [key for key in after if "evil" in str(key).lower() or "wicked" in str(key).lower()]
    calls = ("mcptrio_calls_ended_total", "mcptrio_call_seconds_count")
    assert {key for key in after if key[0] in calls} == {key for key in before if key[0] in calls}
    assert after["mcptrio_calls_ended_total", "tools/call", "order", "ok"] == 5 * 8 * 2
    assert after["mcptrio_calls_ended_total", "tools/call", "other", "error"] >= 5 * 8
    assert after["mcptrio_calls_ended_total", "resources/read", "orders://{order_id}", "ok"] == 5 * 8
    assert len(after) < len(before) + 20  # kinds of events, which are fixed


async def test_the_access_log_has_a_line_for_each_request_with_its_status(engine: str) -> None:
    server, seen = Server("orders", version="1"), list[telemetry.RequestServed]()

    @server.tool
    async def wait() -> str:
        await trio.sleep(0.1)
        return "waited"

    @server.on_event
    def keep(event: Any) -> None:
        if isinstance(event, telemetry.RequestServed):
            seen.append(event)

    async with served(server, access_log=True, stream_after=0.01) as port:
        session = await open_session(port)
        await ask(port, "POST /mcp", frame("tools/call", 1, name="wait", arguments={}), mcp_session_id=session)
        await ask(port, "POST /mcp", b"{", mcp_session_id=session)
        await ask(port, "POST /mcp", mcp_session_id="unknown")
        await ask(port, "GET /livez")
        with trio.fail_after(30):
            while len(seen) < 5:
                await trio.sleep(0.01)
    assert sorted((event.method, event.path, event.status) for event in seen) == [
        ("GET", "/livez", 200),
        ("POST", "/mcp", 200),
        ("POST", "/mcp", 200),
        ("POST", "/mcp", 400),
        ("POST", "/mcp", 404),
    ]
    assert max(event.seconds for event in seen) >= 0.1, "a stream takes until its end"
    assert all(event.client.startswith("127.0.0.1:") for event in seen)
    seen.clear()
    async with served(server) as port:
        await open_session(port)
    assert seen == [], "it is off by default"


async def test_a_call_that_is_not_admitted_is_counted_as_overloaded(engine: str) -> None:
    server = Server("orders", version="1", limits=Limits(busy_timeout=0.05))
    started, release = trio.Event(), trio.Event()

    @server.tool
    async def wait() -> str:
        started.set()
        await release.wait()
        return "waited"

    async with served(server, max_calls=1) as port:
        session = await open_session(port)
        body = frame("tools/call", 1, name="wait", arguments={})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(ask, port, "POST /mcp", body, mcp_session_id=session))
            await started.wait()
            other = frame("tools/call", 2, name="wait", arguments={})
            status, _, _ = await ask(port, "POST /mcp", other, mcp_session_id=session)
            assert status == 503
            release.set()
        page = await metrics(port)
        assert page["mcptrio_calls_ended_total", "tools/call", "wait", "overloaded"] == 1
        assert page["mcptrio_call_queue_seconds_sum", "tools/call"] >= 0.05


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
        lines = [line["message"] for line in found if line["logger"] == "mcptrio.events"]
        busy = "event loop turns again"  # a machine that is busy for a moment
        assert [message for message in lines if message != busy] == [
            "session opened",
            "call ended",
            "session closed",
        ]
        (call,) = [line for line in found if line["message"] == "call ended"]
        assert (call["name"], call["outcome"], call["request"]) == ("broken", "tool_error", 7)
        (failure,) = [line for line in found if "traceback" in line]
        assert (failure["request"], failure["session"]) == (7, own["session"])
        assert "secret detail" in failure["traceback"]
    else:
        assert not [line for line in logged if line.startswith("forged")]
        (own_line,) = [line for line in logged if "about to fail" in line]
        assert own_line.endswith(" request=7")
        assert any("session closed session=" in line for line in logged)
    assert b"secret detail" not in done.stdout
