"""Large bodies share a bounded room; small ones never wait for it."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio.transports.http_server.app import AsgiApp
from mcptrio.transports.http_server.bodies import Bodies
from mcptrio.transports.http_server.config import HttpConfig

from .app_for_tests import BASE, app_of, head, initialize, open_endpoint

KIB = 1024


def large(size: int | None) -> Any:
    return head(content_length=size)


async def test_whoever_came_first_is_let_in_first(autojump_clock: MockClock) -> None:
    bodies = Bodies(room=10, largest=8, patience=10)
    order: list[int] = []
    first = large(8)
    assert await bodies.enter(first)

    async def wait(size: int) -> None:
        mine = large(size)
        assert await bodies.enter(mine)
        order.append(size)
        await trio.sleep(1)
        bodies.leave(mine)

    async with trio.open_nursery() as nursery:
        for size in (6, 5, 9):
            nursery.start_soon(wait, size)
            await wait_all_tasks_blocked()
        assert order == [], "a small one does not overtake a large one for ever"
        bodies.leave(first)
    assert order == [6, 5, 9]
    assert bodies.used == 0


async def test_a_body_of_unknown_size_needs_room_for_the_largest(autojump_clock: MockClock) -> None:
    bodies = Bodies(room=10, largest=8, patience=10)
    assert await bodies.enter(large(None))
    assert bodies.used == 8


async def test_waiting_ends_in_time_and_lets_those_behind_pass(autojump_clock: MockClock) -> None:
    bodies = Bodies(room=10, largest=8, patience=10)
    first, second, third = large(8), large(6), large(2)
    assert await bodies.enter(first)
    entered: list[str] = []

    async def behind() -> None:
        await trio.sleep(1)
        entered.append("third" if await bodies.enter(third) else "nobody")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(behind)
        assert not await bodies.enter(second)
        bodies.leave(second)
    assert entered == ["third"]
    assert bodies.used == 10


async def test_whoever_is_cancelled_in_line_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    bodies = Bodies(room=10, largest=8, patience=10)
    first, second = large(8), large(6)
    assert await bodies.enter(first)
    with trio.move_on_after(1):
        try:
            await bodies.enter(second)
        finally:
            bodies.leave(second)
    bodies.leave(first)
    assert bodies.used == 0
    assert await bodies.enter(large(8))


async def post(app: AsgiApp, size: int, until: trio.Event | None = None) -> int:
    """The status of a POST of so many bytes; the last one comes when it is time."""
    filling = b" " * (size - len(initialize()))
    pieces = [filling[at : at + 16 * KIB] for at in range(0, len(filling), 16 * KIB)]
    status = 0

    async def receive() -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        if pieces:
            return {"type": "http.request", "body": pieces.pop(), "more_body": True}
        if until is not None:
            await until.wait()
        return {"type": "http.request", "body": initialize(), "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    fields = [*BASE.items(), ("content-length", str(size))]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.encode(), value.encode()) for name, value in fields],
    }
    await app(scope, receive, send)
    return status


async def test_a_large_body_waits_unread_and_a_small_one_does_not(autojump_clock: MockClock) -> None:
    config = HttpConfig(max_body=200 * KIB, max_body_memory=200 * KIB)
    async with open_endpoint(config) as endpoint:
        app = AsgiApp(endpoint)
        complete = trio.Event()
        statuses: list[int] = []

        async def first() -> None:
            statuses.append(await post(app, 200 * KIB, complete))

        async def second() -> None:
            statuses.append(await post(app, 100 * KIB))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await wait_all_tasks_blocked()
            nursery.start_soon(second)
            assert await post(app, KIB) == 200
            await wait_all_tasks_blocked()
            assert statuses == []
            complete.set()
        assert statuses == [200, 200]
        assert endpoint.bodies.used == 0


async def test_a_large_body_that_finds_no_room_is_told_to_come_back(autojump_clock: MockClock) -> None:
    config = HttpConfig(max_body=200 * KIB, max_body_memory=200 * KIB, body_timeout=10)
    async with open_endpoint(config) as endpoint:
        app = AsgiApp(endpoint)
        never = trio.Event()
        statuses: list[int] = []

        async def drip() -> None:
            statuses.append(await post(app, 200 * KIB, never))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip)
            await wait_all_tasks_blocked()
            endpoint.bodies.patience = 5
            assert await post(app, 100 * KIB) == 503
        assert statuses == [408]
        assert app_of(endpoint).counted("max_body_memory") == 1
        assert endpoint.bodies.used == 0


async def test_a_body_larger_than_the_room_has_it_alone(autojump_clock: MockClock) -> None:
    bodies = Bodies(room=10, largest=20, patience=1)
    first = large(20)
    assert await bodies.enter(first)
    assert not await bodies.enter(large(1))
    bodies.leave(first)
    assert await bodies.enter(large(1))
    assert not await bodies.enter(large(20))
