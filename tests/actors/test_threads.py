"""Worker threads: the event loop pauses for those that begin or end, and only then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
import trio

from mcptrio._actors.threads import Crossing, Pauses, run_in_thread


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of the event loop."""
    seen: list[float] = []
    monkeypatch.setattr("mcptrio._actors.threads.time.sleep", seen.append)
    return seen


async def turns(count: int) -> None:
    for _ in range(count):
        await trio.lowlevel.checkpoint()


@pytest.mark.defect("S10")
async def test_a_busy_loop_pauses_until_the_thread_has_begun_and_again_when_it_ends(pauses: list[float]) -> None:
    begun, finish, at_begin, at_finish = trio.Event(), threading.Event(), 0, 0

    def work() -> str:
        trio.from_thread.run_sync(begun.set)
        finish.wait()
        return "done"

    async def measure() -> None:
        nonlocal at_begin, at_finish
        while not begun.is_set():
            await trio.lowlevel.checkpoint()
        at_begin = len(pauses)
        await turns(20)
        at_finish = len(pauses)
        finish.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(measure)
        with trio.fail_after(10):
            assert await run_in_thread(work) == "done"
    assert 0 < at_begin <= at_finish <= at_begin + 1
    await turns(5)
    settled = len(pauses)
    await turns(20)
    assert len(pauses) == settled


def test_a_loop_that_waits_itself_does_not_pause(pauses: list[float]) -> None:
    instrument = Pauses()
    instrument.before_io_wait(0)
    assert pauses == []
    instrument.crossing.add(Crossing())
    instrument.before_io_wait(0.1)
    assert pauses == []
    instrument.before_io_wait(0)
    assert len(pauses) == 1


def fail() -> None:
    raise ValueError("wrong")


@pytest.mark.parametrize("function", [fail, lambda: None])
async def test_nothing_is_left_after_a_call(function: Callable[[], None], pauses: list[float]) -> None:
    with suppress(ValueError):
        await run_in_thread(function)
    pauses.clear()
    await turns(10)
    assert pauses == []


async def test_nothing_is_left_after_an_abandoned_thread_has_ended(pauses: list[float]) -> None:
    begun, finish, ended = trio.Event(), threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def work() -> None:
        token.run_sync_soon(begun.set)
        finish.wait()

    class Place:
        """A limiter that learns when the thread has ended."""

        async def acquire_on_behalf_of(self, borrower: object) -> None:
            await trio.lowlevel.checkpoint()

        def release_on_behalf_of(self, borrower: object) -> None:
            ended.set()

    async def call() -> None:
        await run_in_thread(work, limiter=Place(), abandon_on_cancel=True)  # type: ignore[arg-type]

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await begun.wait()
            nursery.cancel_scope.cancel()
        finish.set()
        await ended.wait()
    pauses.clear()
    await turns(10)
    assert pauses == []
