"""An idle guest run of Trio: it waits in the asyncio loop, and wakes for everything that wakes Trio."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import trio
import trio.testing
import uvloop

from mcptrio._bridge import idle
from mcptrio._bridge.guest import Guest, open_guest
from mcptrio._bridge.to_trio import TrioCall

linux = pytest.mark.skipif(sys.platform != "linux", reason="Trio uses epoll on Linux only")


@pytest.fixture(params=["asyncio", "uvloop", "thread"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a test on both kinds of loop, and with Trio's own wait in a thread."""
    if request.param == "thread":
        monkeypatch.setattr(idle, "_run_of", lambda tick: None)
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main, 20))
        assert not trio.lowlevel.in_trio_run()

    return run


async def in_trio(guest: Guest, fn: Callable[..., Any], *args: Any) -> Any:
    return await TrioCall(guest.way, guest.nursery, fn, *args).wait()


async def until_idle(guest: Guest) -> None:
    while guest._idle._held is None:
        await asyncio.sleep(0.001)


@linux
def test_calls_of_an_idle_trio_use_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[object] = []
    start = trio._core._run.start_thread_soon  # type: ignore[attr-defined]

    def count(*args: Any, **kwargs: Any) -> None:
        threads.append(args)
        start(*args, **kwargs)

    monkeypatch.setattr(trio._core._run, "start_thread_soon", count)

    async def main() -> None:
        async with open_guest() as guest:
            for _ in range(20):
                await until_idle(guest)
                await in_trio(guest, trio.lowlevel.checkpoint)
                await in_trio(guest, trio.sleep, 0.001)
            assert threads == []

    asyncio.run(main())


def test_deadlines_wake_trio_in_their_order(run: Callable[..., None]) -> None:
    async def main() -> None:
        woken: list[float] = []

        async def sleep(seconds: float) -> None:
            await trio.sleep(seconds)
            woken.append(seconds)

        async with open_guest() as guest:
            start = asyncio.get_running_loop().time()
            await asyncio.gather(*(in_trio(guest, sleep, seconds) for seconds in (0.3, 0.1, 0.2)))
            assert woken == [0.1, 0.2, 0.3]
            assert asyncio.get_running_loop().time() - start >= 0.3

    run(main())


def test_a_thread_and_a_socket_wake_trio(run: Callable[..., None]) -> None:
    async def echo() -> bytes:
        one, two = trio.socket.socketpair()
        with one, two:
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def _() -> None:
                    await trio.sleep(0.02)
                    await one.send(b"hello")

                return await two.recv(5)

    async def main() -> None:
        async with open_guest() as guest:
            for _ in range(20):
                assert await in_trio(guest, trio.to_thread.run_sync, threading.get_ident) != threading.get_ident()
            assert await in_trio(guest, echo) == b"hello"

    run(main())


def test_asyncio_code_that_does_not_wake_trio_still_reaches_it(run: Callable[..., None]) -> None:
    async def main() -> None:
        done = asyncio.Event()

        async def task() -> None:
            done.set()

        async with open_guest() as guest:
            for _ in range(5):
                await asyncio.sleep(0.01)
                done.clear()
                guest.nursery.start_soon(task)
                await done.wait()

    run(main())


def test_a_deadline_that_asyncio_code_sets_is_kept(run: Callable[..., None]) -> None:
    async def main() -> None:
        scope = trio.CancelScope()

        async def wait() -> str:
            with scope:
                await trio.sleep_forever()
            return "cancelled"

        async with open_guest() as guest:
            waiting = asyncio.ensure_future(in_trio(guest, wait))
            await asyncio.sleep(0.05)
            scope.deadline = await in_trio(guest, now) + 0.05
            assert await waiting == "cancelled"

    async def now() -> float:
        return trio.current_time()

    run(main())


def test_waiting_for_all_tasks_to_block_works(run: Callable[..., None]) -> None:
    async def main() -> None:
        async with open_guest() as guest:
            await in_trio(guest, trio.testing.wait_all_tasks_blocked)

    run(main())


def test_a_loop_without_readers_leaves_the_wait_to_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    def add_reader(*args: Any) -> None:
        raise NotImplementedError

    async def main() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", add_reader)
        async with open_guest() as guest:
            await in_trio(guest, trio.sleep, 0.01)
            assert guest._idle._held is None

    asyncio.run(main())


def test_a_closed_loop_gives_the_wait_back_to_trio() -> None:
    """`finish_abandoned` runs the rest of it, here a cleanup that takes a while."""
    ended: list[str] = []

    async def slow_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.2)
                ended.append("slow")

    loop = asyncio.new_event_loop()
    left = open_guest()
    guest = loop.run_until_complete(left.__aenter__())
    guest.nursery.start_soon(slow_end)
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
    guest.finish_abandoned()
    assert ended == ["slow"]
    assert not trio.lowlevel.in_trio_run()
