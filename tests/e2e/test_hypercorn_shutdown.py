"""The order in which serving ends (P13, F16 to F18), and the events of it."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from tests.deadlines import FairClock
from tests.engines import both_engines

from .raw_peer import Streaming, answer, echo, get, post, read_all, read_body, read_until, serving, status

pytestmark = both_engines


async def cannot_connect(server: Any) -> bool:
    try:
        await (await server.connect()).aclose()
    except OSError:
        return True
    return False


async def test_the_listener_closes_at_once_and_calls_in_flight_are_answered() -> None:
    release = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        await release.wait()
        await answer(send, 200, b"done")

    async with serving(app) as server:
        async with await server.connect() as busy:
            await busy.send_all(post("/", b"{}"))
            await wait_all_tasks_blocked(0.02)
            server.listener.stop_accepting()
            assert await cannot_connect(server)
            release.set()
            response = await read_all(busy)
        assert response.endswith(b"done")
        assert b"connection: close" in response
        await wait_all_tasks_blocked()
        assert server.listener.connections == 0


async def test_idle_connections_end_when_the_listener_closes() -> None:
    async with serving(echo) as server:
        async with await server.connect() as idle:
            await idle.send_all(get("/"))
            await read_until(idle, b"}")
            server.listener.stop_accepting()
            with trio.fail_after(20):
                assert await idle.receive_some() == b""


async def test_a_request_half_sent_when_the_listener_closes_is_still_served() -> None:
    async with serving(echo) as server:
        async with await server.connect() as stream:
            request = get("/late")
            await stream.send_all(request[:10])
            await wait_all_tasks_blocked(0.02)
            server.listener.stop_accepting()
            await stream.send_all(request[10:])
            response = await read_all(stream)
        assert status(response) == 200
        assert b"connection: close" in response


async def test_the_first_request_of_a_connection_just_opened_is_still_served() -> None:
    async with serving(echo) as server:
        async with await server.connect() as fresh, await server.connect() as silent:
            await wait_all_tasks_blocked(0.02)
            server.listener.stop_accepting()
            await fresh.send_all(get("/"))
            assert status(await read_all(fresh)) == 200
            with trio.fail_after(20):
                assert await silent.receive_some() == b""


async def test_p13_open_streams_end_properly_before_their_connections() -> None:
    """Hypercorn tells the app of a shutdown only after every connection has ended."""
    app = Streaming()
    order: list[str] = []

    async def drain(deadline: float) -> None:
        order.append("drain")
        assert server.listener.connections == 1
        app.stop.set()
        await app.ended.wait()
        order.append("drained")

    async with serving(app) as server:
        async with await server.connect() as stream, trio.open_nursery() as nursery:
            await stream.send_all(get("/"))
            await app.opened.wait()
            nursery.start_soon(lambda: server.listener.shut_down(drain, timeout=5))
            data = await read_until(stream, b"0\r\n\r\n")
            assert b": bye" in data
            assert await stream.receive_some() == b""
        assert order == ["drain", "drained"]


async def test_connections_that_do_not_end_by_the_deadline_are_cut_and_cancelled(fair_clock: FairClock) -> None:
    app = Streaming()

    async def drain(deadline: float) -> None:
        await trio.sleep_forever()

    async with serving(app) as server:
        async with await server.connect() as stream:
            await stream.send_all(get("/"))
            await app.opened.wait()
            started = trio.current_time()
            await server.listener.shut_down(drain, timeout=0.2)
            assert trio.current_time() - started < 1
            assert app.ended.is_set()
            assert not (await read_all(stream)).endswith(b"0\r\n\r\n")


async def test_f18_a_second_signal_shortens_the_wait() -> None:
    app = Streaming()
    async with serving(app) as server:
        async with await server.connect() as stream, trio.open_nursery() as nursery:
            await stream.send_all(get("/"))
            await app.opened.wait()
            nursery.start_soon(server.listener.close, trio.current_time() + 60)
            await wait_all_tasks_blocked(0.02)
            with trio.fail_after(20):
                await server.listener.close(trio.current_time())


async def test_an_app_that_shields_itself_cannot_hold_up_close(fair_clock: FairClock) -> None:
    opened, release = trio.Event(), trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with trio.CancelScope(shield=True):
            opened.set()
            await release.wait()

    async with serving(app) as server:
        async with await server.connect() as stream:
            await stream.send_all(get("/"))
            await opened.wait()
            started = trio.current_time()
            await server.listener.close(started)
            assert trio.current_time() - started < 2
            release.set()


async def test_closing_an_idle_listener_takes_no_time(fair_clock: FairClock) -> None:
    async with serving(echo) as server:
        started = trio.current_time()
        await server.listener.close(started + 60)
        assert trio.current_time() - started < 1
        assert await cannot_connect(server)


async def test_p15_a_body_that_stalls_is_the_apps_to_time_out() -> None:
    """The listener bounds heads, not bodies: the app knows what it waits for, and its 408 must arrive."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with trio.move_on_after(0.1):
            await read_body(receive)
            return
        await answer(send, 408, b"too slow")

    async with serving(app) as server:
        async with await server.connect() as stream:
            await stream.send_all(post("/", b"x" * 10)[:-5])
            assert status(await read_all(stream)) == 408
        await wait_all_tasks_blocked()
        assert server.listener.connections == 0
