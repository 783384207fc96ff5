"""Every limit: it has a setting, it is reached here, and /metrics counts that it was."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from attrs import field, frozen

from mcptrio import telemetry
from mcptrio._actors.limits import Limits
from mcptrio._wire.jsonrpc import JsonLimits
from mcptrio.auth.server import StaticTokens
from mcptrio.stores import MemoryStore, StoreLimits
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.stdio.server import serve_stdio

from .program import make_server, token_of
from .sockets import Socket, frame
from .speaker import Speaker
from .wire import Connection, Reply

MODERN, STATEFUL = "2026-07-28", "2025-11-25"


def begin(speaker: Speaker, tool: str, request_id: Any, *, small: bool = False, **arguments: Any) -> Connection:
    """A call under way on a connection of its own."""
    connection = Connection(speaker.port, receive_buffer=4096 if small else None)
    meta = {
        "_meta": {"progressToken": "p", **({"io.modelcontextprotocol/logLevel": "debug"} if speaker.modern else {})}
    }
    body = speaker.message("tools/call", {"name": tool, "arguments": arguments, **meta}, request_id)
    connection.send(speaker.head("POST", body) + body)
    return connection


def send(speaker: Speaker, data: bytes) -> Reply:
    with Connection(speaker.port) as connection:
        connection.send(data)
        return connection.read()


# -- ways to reach a limit


def large_body(speaker: Speaker) -> None:
    assert send(speaker, speaker.head("POST", b"x" * 3000) + b"x" * 3000).status == 413


def large_chunks(speaker: Speaker) -> None:
    head = speaker.head("POST", headers={"content-length": None, "transfer-encoding": "chunked"})
    assert send(speaker, head + b"bb8\r\n" + b"x" * 3000 + b"\r\n0\r\n\r\n").status == 413


def slow_body(speaker: Speaker) -> None:
    assert send(speaker, speaker.head("POST", b"x" * 100) + b"x").status == 408


def stalled_body(speaker: Speaker) -> None:
    assert send(speaker, speaker.head("POST", b"x" * 200_000) + b"x" * 100_000).status == 408


def slow_head(speaker: Speaker) -> None:
    assert send(speaker, b"POST /mcp HTTP/1.1\r\nHost: x").status == 408


def large_head(speaker: Speaker) -> None:
    assert send(speaker, speaker.head("POST", headers={"x-large": "x" * 3000})).status == 431


def many_headers(speaker: Speaker) -> None:
    assert send(speaker, speaker.head("POST", lines=(b"x: y",) * 30)).status == 431


def deep(speaker: Speaker) -> None:
    body = speaker.message("tools/list", {"x": [[[[[[[[[[]]]]]]]]]]})
    assert speaker.exchange(body).answer["error"]["code"] == -32700


def many_values(speaker: Speaker) -> None:
    assert speaker.exchange(speaker.message("tools/list", {"x": [0] * 200})).status == 413


def large_batch(speaker: Speaker) -> None:
    speaker.open_session()
    body = b"[" + b",".join(speaker.message("ping", None, number) for number in range(5)) + b"]"
    assert speaker.exchange(body).status == 400


def second_session(speaker: Speaker) -> None:
    speaker.open_session()
    again = Speaker(speaker.port, speaker.date)
    again.authorization = speaker.authorization
    refused = again.exchange(again.initialize())
    assert refused.status == 503
    assert int(refused.headers["retry-after"]) > 0
    again.close()


def idle_session(speaker: Speaker) -> None:
    speaker.open_session()
    end = time.monotonic() + 30
    while speaker.call("echo", text="x").status == 200:  # being asked is being used
        assert time.monotonic() < end
        time.sleep(0.5)


def unconfirmed_session(speaker: Speaker) -> None:
    """Only looks at a session that is gone: looking at it would be using it."""
    opened = speaker.exchange(speaker.initialize())
    time.sleep(1.0)
    speaker.session = opened.headers["mcp-session-id"]
    assert speaker.call("echo", text="x").status == 404


def second_call(speaker: Speaker) -> None:
    with begin(speaker, "wait", 1, seconds=10) as first:
        first.read_start()
        assert speaker.call("echo", 2, text="x").status == 503


def third_call(speaker: Speaker) -> None:
    speaker.open_session()
    calls = [begin(speaker, "wait", number, seconds=10) for number in range(3)]
    time.sleep(0.2)
    statuses = [speaker.call("echo", 8, text="x").status]
    for call in calls:
        statuses.append(call.read_start().status)
        call.socket.close()
    assert 503 in statuses


def full_stream(speaker: Speaker) -> None:
    with begin(speaker, "flood", 1, small=True, pieces=400) as connection:
        connection.read_start()
        wait_for_metric(speaker.port, 'mcptrio_limits_hit_total{name="outbox"}')


def stalled(speaker: Speaker) -> None:
    with begin(speaker, "flood", 1, small=True, pieces=400) as connection:
        connection.read_start()
        wait_for_metric(speaker.port, 'mcptrio_limits_hit_total{name="write_timeout"}')


def long_call(speaker: Speaker) -> None:
    answer = speaker.call("wait", seconds=30).answer
    assert answer["result"]["isError"] is True


def busy_call(speaker: Speaker) -> None:
    with begin(speaker, "report", 1, seconds=30) as connection:
        assert connection.read().answer["result"]["isError"] is True


def much_progress(speaker: Speaker) -> None:
    with begin(speaker, "count", 1, to=30) as connection:
        received = connection.read().body.decode().count("notifications/progress")
    assert 3 <= received < 30


def old_cursor(speaker: Speaker) -> None:
    speaker.open_session()
    with begin(speaker, "count", 1, to=30) as connection:
        body = connection.read().body.decode()
    first = body.partition("id: ")[2].partition("\n")[0]
    head = speaker.head("GET", headers={"content-length": None, "last-event-id": first})
    assert send(speaker, head).status == 400


def large_message(speaker: Speaker) -> None:
    with Connection(speaker.port) as connection:
        socket = Socket(speaker, connection)
        connection.send(frame(b"x" * 3000))
        assert socket.closing_code() == 1009


def third_connection(speaker: Speaker) -> None:
    with Connection(speaker.port), Connection(speaker.port):
        time.sleep(0.1)
        with Connection(speaker.port) as third:
            assert third.read("GET").status == 503
    time.sleep(0.1)


def many_requests(speaker: Speaker) -> None:
    statuses = [speaker.call("echo", number, text="x").status for number in range(6)]
    assert 429 in statuses


def many_parked(speaker: Speaker) -> None:
    for number in range(3):
        assert speaker.call("ask", number).answer["result"]["resultType"] == "input_required"


@frozen(kw_only=True)
class Limit:
    """A bound: where it is set, what it is by default, and how it is reached when it is small."""

    name: str
    setting: str
    default: Any
    reach: Callable[[Speaker], None]
    date: str = MODERN
    http: dict[str, Any] = field(factory=dict)
    server: dict[str, Any] = field(factory=dict)
    store: dict[str, Any] = field(factory=dict)
    metric: str = 'mcptrio_limits_hit_total{name="%s"}'


MIB = 1024 * 1024
TOKENS = StaticTokens({token_of("ann"): "ann"})
LIMITS = [
    Limit(name="max_body", setting="HttpConfig.max_body", default=4 * MIB, reach=large_body, http={"max_body": 2000}),
    Limit(name="max_body", setting="HttpConfig.max_body", default=4 * MIB, reach=large_chunks, http={"max_body": 2000}),
    Limit(
        name="body_timeout", setting="HttpConfig.body_timeout", default=10, reach=slow_body, http={"body_timeout": 0.2}
    ),
    Limit(
        name="body_timeout",
        setting="HttpConfig.min_body_rate",
        default=64 * 1024,
        reach=stalled_body,
        http={"min_body_rate": 1_000_000},
    ),
    Limit(
        name="header_timeout",
        setting="HttpConfig.header_timeout",
        default=5,
        reach=slow_head,
        http={"header_timeout": 0.2},
    ),
    Limit(
        name="write_timeout",
        setting="HttpConfig.write_timeout",
        default=30,
        reach=stalled,
        http={"write_timeout": 0.3},
    ),
    Limit(
        name="headers",
        setting="HttpConfig.max_header_bytes",
        default=16 * 1024,
        reach=large_head,
        http={"max_header_bytes": 2048},
    ),
    Limit(name="headers", setting="HttpConfig.max_headers", default=100, reach=many_headers, http={"max_headers": 20}),
    Limit(
        name="json_depth",
        setting="JsonLimits.max_depth",
        default=64,
        reach=deep,
        http={"json_limits": JsonLimits(max_depth=8)},
    ),
    Limit(
        name="json_nodes",
        setting="JsonLimits.max_nodes",
        default=100_000,
        reach=many_values,
        http={"json_limits": JsonLimits(max_nodes=100)},
    ),
    Limit(
        name="batch",
        setting="JsonLimits.max_batch",
        default=100,
        reach=large_batch,
        date="2025-03-26",
        http={"json_limits": JsonLimits(max_batch=4)},
    ),
    Limit(
        name="sessions",
        setting="Limits.max_sessions",
        default=10_000,
        reach=second_session,
        date=STATEFUL,
        server={"limits": Limits(max_sessions=1)},
    ),
    Limit(
        name="sessions_per_principal",
        setting="HttpConfig.max_sessions_per_principal",
        default=200,
        reach=second_session,
        date=STATEFUL,
        http={"max_sessions_per_principal": 1, "auth": TOKENS},
    ),
    Limit(
        name="idle",
        setting="Limits.idle_timeout",
        default=1800.0,
        reach=idle_session,
        date=STATEFUL,
        server={"limits": Limits(idle_timeout=0.1)},
        metric='mcptrio_sessions_closed_total{cause="idle"}',
    ),
    Limit(
        name="confirm_timeout",
        setting="Limits.confirm_timeout",
        default=60.0,
        reach=unconfirmed_session,
        date=STATEFUL,
        server={"limits": Limits(confirm_timeout=0.1, check_every=0.05)},
    ),
    Limit(
        name="max_calls",
        setting="HttpConfig.max_calls",
        default=1024,
        reach=second_call,
        server={"limits": Limits(busy_timeout=0.1)},
        http={"max_calls": 1},
    ),
    Limit(
        name="waiting",
        setting="Limits.waiting",
        default=64,
        reach=third_call,
        date=STATEFUL,
        server={"limits": Limits(running=1, waiting=1, busy_timeout=0.1)},
    ),
    Limit(
        name="waiting",
        setting="Limits.running",
        default=32,
        reach=third_call,
        date=STATEFUL,
        server={"limits": Limits(running=1, waiting=1, busy_timeout=0.1)},
        http={"sse_only": True},
    ),
    Limit(
        name="outbox",
        setting="HttpConfig.outbox_events",
        default=256,
        reach=full_stream,
        http={"outbox_events": 4},
    ),
    Limit(
        name="outbox",
        setting="HttpConfig.outbox_bytes",
        default=MIB,
        reach=full_stream,
        http={"outbox_bytes": 100_000},
    ),
    Limit(
        name="call_timeout",
        setting="Limits.call_timeout",
        default=60.0,
        reach=long_call,
        server={"limits": Limits(call_timeout=0.1)},
    ),
    Limit(
        name="call_timeout_hard",
        setting="Limits.call_timeout_hard",
        default=900.0,
        reach=busy_call,
        server={"limits": Limits(call_timeout=0.2, call_timeout_hard=0.4)},
    ),
    Limit(
        name="progress_rate",
        setting="Limits.notify_burst",
        default=500,
        reach=much_progress,
        server={"limits": Limits(notify_burst=3)},
        metric='mcptrio_dropped_total{kind="%s"}',
    ),
    Limit(
        name="progress_rate",
        setting="Limits.notify_rate",
        default=50.0,
        reach=much_progress,
        server={"limits": Limits(notify_burst=3, notify_rate=0.1)},
        metric='mcptrio_dropped_total{kind="%s"}',
    ),
    Limit(
        name="replay_store",
        setting="StoreLimits.stream_events",
        default=1000,
        reach=old_cursor,
        date=STATEFUL,
        http={"outbox_events": 2},
        store={"stream_events": 3},
    ),
    Limit(
        name="replay_store",
        setting="StoreLimits.stream_bytes",
        default=4 * MIB,
        reach=old_cursor,
        date=STATEFUL,
        http={"outbox_bytes": 200},
        store={"stream_bytes": 500},
    ),
    Limit(
        name="websocket_message",
        setting="HttpConfig.websocket_max_message",
        default=4 * MIB,
        reach=large_message,
        http={"websocket_max_message": 2000},
    ),
    Limit(
        name="connections",
        setting="HttpConfig.max_connections",
        default=10_000,
        reach=third_connection,
        http={"max_connections": 2},
    ),
    Limit(
        name="parked",
        setting="Limits.parked_max",
        default=1000,
        reach=many_parked,
        server={"limits": Limits(parked_max=2)},
    ),
    Limit(
        name="rate", setting="HttpConfig.rate", default=None, reach=many_requests, http={"rate": 0.5, "rate_burst": 2}
    ),
]
SETTINGS = {cls.__name__: cls for cls in (HttpConfig, JsonLimits, Limits, StoreLimits)}


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.setting)
def test_a_limit_has_a_setting_with_the_default_that_is_documented(limit: Limit) -> None:
    where, _, name = limit.setting.partition(".")
    assert getattr(SETTINGS[where](), name) == limit.default


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.setting)
async def test_a_limit_that_is_reached_does_its_work_and_is_counted(limit: Limit, engine: str) -> None:
    server = make_server(**limit.server)
    store = MemoryStore(StoreLimits(**limit.store))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serve = partial(server.serve_http, port=0, engine=engine, store=store, open_metrics=True, **limit.http)
            bound = await nursery.start(serve)
            speaker = Speaker(bound[0].port, limit.date)
            if "auth" in limit.http:
                speaker.authorization = f"Bearer {token_of('ann')}"
            await trio.to_thread.run_sync(limit.reach, speaker)
            await trio.to_thread.run_sync(wait_for_metric, speaker.port, limit.metric.replace("%s", limit.name))
            speaker.close()
            nursery.cancel_scope.cancel()


def wait_for_metric(port: int, wanted: str) -> None:
    end = time.monotonic() + 30
    while True:
        with Connection(port) as connection:
            connection.send(f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            page = connection.read("GET").body.decode()
        if f"{wanted} " in page:
            return
        lines = [line for line in page.splitlines() if "limits_hit" in line or "sessions_closed" in line]
        assert time.monotonic() < end, lines
        time.sleep(0.05)


async def test_a_line_that_is_too_long_is_thrown_away_and_counted() -> None:
    server = make_server()
    heard: list[telemetry.Event] = []
    server.on_event(heard.append)
    ours, theirs = os.pipe(), os.pipe()
    with trio.fail_after(30):
        async with server._app.make_runtime().open() as runtime, trio.open_nursery() as nursery:
            serve = partial(serve_stdio, runtime, stdin_fd=ours[0], stdout_fd=theirs[1], max_line=1000)
            nursery.start_soon(serve)
            os.write(ours[1], b"x" * 2000 + b"\n")
            answer = await trio.to_thread.run_sync(os.read, theirs[0], 4096)
            os.close(ours[1])
    for fd in (ours[0], *theirs):
        os.close(fd)
    assert b"-32600" in answer
    assert [event.name for event in heard if isinstance(event, telemetry.LimitHit)] == ["line"]


def test_every_number_of_a_configuration_that_bounds_something_is_positive_by_default() -> None:
    for cls in (HttpConfig, Limits, StoreLimits):
        for name, value in inspect.getmembers(cls()):
            if isinstance(value, int | float) and not isinstance(value, bool) and name not in ("port", "retry_ms"):
                assert value > 0, f"{cls.__name__}.{name}"
