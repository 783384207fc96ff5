"""One peer, or one faulty answer, ends its own connection and nothing else (P1, P2 of the pitfalls)."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcptrio import telemetry
from mcptrio.transports.http_server.hypercorn.pinned import Pinned, check_private_names
from mcptrio.transports.http_server.listener.containment import ConnectionGuard
from tests.engines import both_engines

from .raw_peer import WEBSOCKET, answer, break_protocol, echo, get, read_all, serving, status

pytestmark = both_engines


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "mcptrio.http")


@pytest.mark.parametrize(
    "fault",
    [ValueError("defect"), SystemExit(3), KeyboardInterrupt(), MemoryError(), BaseExceptionGroup("", [SystemExit()])],
)
async def test_a_fault_in_a_connections_protocol_ends_that_connection_only(
    fault: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_protocol(monkeypatch, b"/faulty", fault)
    async with serving(echo) as server:
        async with await server.connect() as bystander:
            await bystander.send_all(get("/hello"))
            assert await server.ask(get("/faulty")) == b""
            assert server.caught() == 1
            assert b"200" in await bystander.receive_some()
            assert await server.is_alive()


@pytest.mark.parametrize("fault", [SystemExit(1), KeyboardInterrupt(), RuntimeError(), ExceptionGroup("", [OSError()])])
async def test_an_app_that_raises_is_answered_with_500_and_the_next_request_is_served(fault: BaseException) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/faulty":
            raise fault
        await answer(send, 200, b"ok")

    async with serving(app) as server:
        assert status(await server.ask(get("/faulty"))) == 500
        await wait_all_tasks_blocked()
        assert server.caught() + server.caught("request") == 1
        assert await server.is_alive()


async def test_random_malformed_handshakes_never_reach_the_guard() -> None:
    """Whatever garbage a handshake holds, it is refused or served; the server behind the gate never trips over it."""
    rng = random.Random(20261116)
    names = [b"Sec-WebSocket-Protocol", b"Sec-WebSocket-Extensions", b"Sec-WebSocket-Key", b"Connection", b"Upgrade",
             b"Sec-WebSocket-Version", b"Host", b"Content-Length", b"Expect", b"X-Other"]  # fmt: skip
    async with serving(echo, keep_alive_timeout=0.05) as server:
        for _ in range(150):
            noise = bytes(rng.choice(b'abc,;= "\t\x80\xc3\xff\x01=/') for _ in range(rng.randrange(12)))
            request = WEBSOCKET + rng.choice(names) + b": " + noise + b"\r\n\r\n"
            at = rng.randrange(len(request))
            if rng.random() < 0.3:
                request = request[:at] + bytes([rng.randrange(256)]) + request[at + 1 :]
            async with await server.connect() as stream:
                await stream.send_all(request + rng.randbytes(rng.randrange(4)))
                await stream.send_eof()
                await read_all(stream)
        assert server.caught() == server.caught("request") == 0
        assert await server.is_alive()


async def test_random_bytes_are_answered_or_closed() -> None:
    rng = random.Random(7)
    async with serving(echo) as server:
        for _ in range(60):
            async with await server.connect() as stream:
                await stream.send_all(rng.randbytes(rng.randrange(1, 300)))
                await stream.send_eof()
                assert (await read_all(stream))[:5] in (b"", b"HTTP/")
        assert server.caught() == 0
        assert await server.is_alive()


async def test_the_guard_lets_cancellation_through() -> None:
    caught: list[Any] = []

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.lowlevel.checkpoint()
            raise ValueError("together with a cancellation")

    async def run_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise SystemExit(1)

    hub = telemetry.Hub([caught.append])
    with trio.CancelScope() as scope:
        scope.cancel()
        with ConnectionGuard(hub, "x"):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert caught == []
    with ConnectionGuard(hub, "x"):
        await run()
    with trio.CancelScope() as scope:
        scope.cancel()
        with ConnectionGuard(hub, "x"):
            await run_cancelled()
    assert [type(event) for event in caught] == [telemetry.GuardCaught, telemetry.GuardCaught]


def test_a_missing_private_name_of_hypercorn_is_an_import_error() -> None:
    class TCPServer:
        def __init__(self, app: Any, config: Any) -> None: ...

    check_private_names()
    with pytest.raises(ImportError, match=r"hypercorn 0\.18.*TCPServer has no protocol_send"):
        check_private_names((Pinned(TCPServer, ("protocol_send",), "it is called"),))
    with pytest.raises(ImportError, match=r"has no stream \(needed because it is passed\)"):
        check_private_names((Pinned(TCPServer.__init__, ("app", "stream"), "it is passed"),))
