"""Long-lived answers and peers that misbehave while they run (P5 to P7, P9 to P12, P14)."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.deadlines import FairClock
from tests.engines import both_engines

from .raw_peer import Streaming, answer, get, listening, post, read_all, read_body, read_until, serving, status

pytestmark = both_engines


def small_window(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)


class Flood:
    """An app that writes without end, to find out what stops it."""

    def __init__(self) -> None:
        self.started = trio.Event()
        self.ended = trio.Event()
        self.sent = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        self.started.set()
        gone = False

        async def watch() -> None:
            nonlocal gone
            while (await receive())["type"] != "http.disconnect":
                pass
            gone = True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            while not gone:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                self.sent += 65536
        self.ended.set()


async def test_p5_a_peer_that_stops_reading_is_cut_at_the_write_deadline() -> None:
    app = Flood()
    async with serving(app, write_timeout=0.3) as server:
        async with await server.connect() as stalled:
            small_window(stalled)
            await stalled.send_all(get("/"))
            with trio.fail_after(20):
                await app.ended.wait()
        await wait_all_tasks_blocked()
        assert server.count("write_timeout") == 1
        assert server.listener.connections == 0


async def test_p5_shutdown_ends_on_time_with_a_peer_that_does_not_read(fair_clock: FairClock) -> None:
    app = Flood()
    async with serving(app) as server:
        async with await server.connect() as stalled:
            small_window(stalled)
            await stalled.send_all(get("/"))
            await app.started.wait()
            before = -1
            while app.sent != before:  # until the write is stuck
                before = app.sent
                await wait_all_tasks_blocked(0.05)
            started = trio.current_time()
            await server.listener.close(started + 0.2)
            assert trio.current_time() - started < 1.5
            assert server.listener.connections == 0


async def test_p5_cancelling_serve_from_outside_does_not_wait_for_a_stalled_peer() -> None:
    app = Flood()
    listener = listening(app, port=0)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            bound = await nursery.start(listener.serve)
            stalled = await trio.open_tcp_stream(bound[0].host, bound[0].port)
            small_window(stalled)
            await stalled.send_all(get("/"))
            await app.started.wait()
            await wait_all_tasks_blocked(0.05)
            nursery.cancel_scope.cancel()
    await stalled.aclose()


@pytest.mark.parametrize("early", [True, False])
async def test_p6_an_answer_before_the_body_is_read_reaches_the_client_and_frees_the_connection(early: bool) -> None:
    """Hypercorn waits for ever in the last send(): its queue is full of body that the client does not read."""
    done = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if not early:
            await wait_all_tasks_blocked(0.05)  # a token check: the queue fills up meanwhile
        await answer(send, 413, b"too large")
        done.set()

    async with serving(app) as server:
        async with await server.connect() as stream:
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def upload() -> None:
                    with suppress(trio.BrokenResourceError):
                        await stream.send_all(post("/", b"x" * 4_000_000))

                response = await read_all(stream)
                assert status(response) == 413
                assert response.endswith(b"too large")
            await done.wait()
        await wait_all_tasks_blocked()
        assert server.listener.connections == 0


OFFER = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAA")


@pytest.mark.parametrize(
    "request_bytes",
    [
        get("/"),
        post("/", b"{}"),
        get("/") + b"G",
        post("/", b"{}") + get("/"),
        get("/", *OFFER),
        post("/", b"{}", *OFFER),
    ],
    ids=["GET", "POST", "one byte pipelined", "a request pipelined", "h2c offered", "h2c offered, body"],
)
@pytest.mark.parametrize("how", ["FIN", "RST", "half-close"])
async def test_p7_p12_a_peer_that_goes_away_is_seen_at_once(request_bytes: bytes, how: str) -> None:
    """Hypercorn alone stops reading when a byte was pipelined or an upgrade offered, and never sees it (P7)."""
    app = Streaming()
    async with serving(app) as server:
        stream = await server.connect()
        await stream.send_all(request_bytes)
        await app.opened.wait()
        match how:
            case "RST":
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                await stream.aclose()
            case "FIN":
                await stream.aclose()
            case "half-close":
                await stream.send_eof()
        with trio.fail_after(20):
            await app.disconnected.wait()
            await app.ended.wait()
        if how == "half-close":
            await stream.aclose()
        assert server.caught() == 0


async def test_p9_sending_after_the_disconnect_raises_nothing() -> None:
    """So a send() that returned proves nothing; what must arrive is stored first."""
    finished = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert (await receive())["type"] == "http.disconnect"
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"lost", "more_body": True})
        finished.set()

    async with serving(app) as server:
        stream = await server.connect()
        await stream.send_all(get("/"))
        await stream.aclose()
        await finished.wait()
        await wait_all_tasks_blocked()
        assert server.caught() == server.caught("request") == 0


async def test_p10_the_app_is_not_cancelled_when_the_peer_goes_away() -> None:
    release, finished = trio.Event(), trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        await release.wait()
        finished.set()

    async with serving(app) as server:
        stream = await server.connect()
        await stream.send_all(get("/"))
        await wait_all_tasks_blocked(0.02)
        await stream.aclose()
        await wait_all_tasks_blocked(0.02)
        assert server.listener.connections == 1
        release.set()
        await finished.wait()
        await wait_all_tasks_blocked()
        assert server.listener.connections == 0


async def test_p11_every_later_receive_returns_the_disconnect() -> None:
    asked: list[str] = []
    finished = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        with trio.fail_after(20):
            asked.extend([(await receive())["type"] for _ in range(3)])
        finished.set()

    async with serving(app) as server:
        stream = await server.connect()
        await stream.send_all(get("/"))
        await stream.aclose()
        await finished.wait()
    assert asked == ["http.disconnect"] * 3


async def test_p14_a_quiet_client_of_an_open_stream_is_left_alone() -> None:
    """No read timeout: neither the head's nor the idle connection's deadline counts while a request is served."""
    app = Streaming()
    async with serving(app, header_timeout=0.05, keep_alive_timeout=0.05) as server:
        async with await server.connect() as stream:
            await stream.send_all(get("/"))
            await app.opened.wait()
            with trio.move_on_after(0.3):
                await app.disconnected.wait()
            assert not app.disconnected.is_set()
            app.stop.set()
            assert b": bye\n\n" in await read_until(stream, b"0\r\n\r\n")


async def test_an_open_stream_sends_its_head_before_anything_else() -> None:
    release = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await release.wait()
        await send({"type": "http.response.body", "body": b"later"})

    async with serving(app) as server:
        async with await server.connect() as stream:
            await stream.send_all(get("/"))
            assert (await read_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            release.set()
            assert b"later" in await read_until(stream, b"0\r\n\r\n")


async def test_a_large_answer_to_a_slow_reader_that_makes_progress_is_not_cut() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, 200, b"x" * 8_000_000)

    async with serving(app, write_timeout=0.4) as server:
        async with await server.connect() as stream:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
            await stream.send_all(get("/", close=True))
            started = trio.current_time()
            size = 0
            while piece := await stream.receive_some(65536):
                size += len(piece)
                if trio.current_time() - started < 0.8:  # slow for longer than one write may take
                    await trio.sleep(0.02)
            assert size > 8_000_000
        assert server.count("write_timeout") == 0


async def test_w11_connections_that_come_and_go_leave_nothing_behind() -> None:
    app = Streaming()
    async with serving(app) as server:
        await wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(3):
            streams = [await server.connect() for _ in range(20)]
            for stream in streams:
                await stream.send_all(get("/"))
                await read_until(stream, b"hello")
            for stream in streams:
                await stream.aclose()
            app.disconnected = trio.Event()
            await wait_all_tasks_blocked(0.05)
            assert server.listener.connections == 0
            assert trio.lowlevel.current_statistics().tasks_living <= before + 1  # the task of the timers
            app.stop, app.disconnected = trio.Event(), trio.Event()
