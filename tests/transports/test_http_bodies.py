"""Large bodies share a bounded room; small ones never wait for it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio._actors.limits import Limits
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp

from .app_for_tests import BASE, app_of, head, initialize, open_endpoint

KIB = 1024


def large(size: int | None) -> Any:
    return head(content_length=size)


async def test_a_body_of_unknown_size_reserves_the_largest_size() -> None:
    async with open_endpoint(HttpConfig(max_body=8, max_body_memory=10)) as endpoint:
        request = large(None)
        assert await endpoint.admission.reserve_body(request)
        assert endpoint.admission.body_memory.used == 8
        endpoint.admission.release_body(request)
        endpoint.admission.release_body(request)
        assert endpoint.admission.body_memory.used == 0


async def post(app: AsgiApp, size: int, until: trio.Event | None = None, sent: int | None = None) -> int:
    """Return the status of a POST of so many bytes; the last ones come after `until`."""
    filling = b" " * ((size if sent is None else sent) - len(initialize()))
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
        assert endpoint.admission.body_memory.used == 0


async def test_a_large_body_without_memory_is_refused_with_retry_after(autojump_clock: MockClock) -> None:
    config = HttpConfig(max_body=200 * KIB, max_body_memory=200 * KIB, body_timeout=10)
    async with open_endpoint(config, limits=Limits(busy_timeout=1)) as endpoint:
        app = AsgiApp(endpoint)
        never = trio.Event()
        statuses: list[int] = []

        async def drip() -> None:
            statuses.append(await post(app, 200 * KIB, never))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip)
            await wait_all_tasks_blocked()
            await trio.lowlevel.checkpoint()
            assert await post(app, 100 * KIB) == 503
        assert statuses == [408]
        assert app_of(endpoint).counted("max_body_memory") == 1
        assert endpoint.admission.body_memory.used == 0


async def test_a_body_larger_than_the_memory_has_it_alone(autojump_clock: MockClock) -> None:
    async with open_endpoint(HttpConfig(max_body=20, max_body_memory=10, body_timeout=1)) as endpoint:
        admission, first = endpoint.admission, large(20)
        assert await admission.reserve_body(first)
        assert not await admission.reserve_body(large(1))
        admission.release_body(first)
        assert await admission.reserve_body(large(1))
        assert not await admission.reserve_body(large(20))


@pytest.mark.defect("S6")
async def test_a_body_that_holds_memory_and_stops_arriving_is_refused_soon(autojump_clock: MockClock) -> None:
    config = HttpConfig(max_body=400 * KIB, max_body_memory=400 * KIB, body_timeout=100)
    async with open_endpoint(config) as endpoint, trio.open_nursery() as nursery:
        statuses: list[int] = []

        async def stall() -> None:
            statuses.append(await post(AsgiApp(endpoint), 400 * KIB, trio.Event(), 128 * KIB))

        nursery.start_soon(stall)
        await trio.sleep(1.9)
        assert endpoint.admission.body_memory.used == 400 * KIB
        await trio.sleep(0.2)
        assert endpoint.admission.body_memory.used == 0, "64 KiB per second"
        await trio.sleep(10)
        assert statuses == [408]


@pytest.mark.defect("S6")
async def test_a_body_that_is_announced_and_not_sent_reserves_nothing(autojump_clock: MockClock) -> None:
    config = HttpConfig(max_body=200 * KIB, max_body_memory=200 * KIB)
    async with open_endpoint(config) as endpoint, trio.open_nursery() as nursery:
        app, never = AsgiApp(endpoint), trio.Event()
        for _ in range(8):
            nursery.start_soon(post, app, 200 * KIB, never, 64 * KIB)
        await wait_all_tasks_blocked()
        assert endpoint.admission.body_memory.used == 0
        began = trio.current_time()
        assert await post(app, 150 * KIB) == 200
        assert trio.current_time() == began
        nursery.cancel_scope.cancel()
