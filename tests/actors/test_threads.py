"""Worker threads: the event loop pauses for those that begin or end, and only then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

from mcptrio import Server
from mcptrio._actors.places import ThreadPlace
from mcptrio._actors.threads import Pauses
from mcptrio.client import connect


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of the event loop."""
    seen: list[float] = []
    monkeypatch.setattr("mcptrio._actors.threads.time.sleep", seen.append)
    return seen


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await trio.lowlevel.checkpoint()


def make_server(work: Callable[[], object]) -> Server:
    server = Server("threads")

    @server.tool
    def tool() -> str:
        work()
        return "done"

    return server


@pytest.mark.defect("S10")
async def test_a_busy_loop_pauses_while_a_thread_begins_and_reports(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trio's threads are replaced by this one, so that the order is certain."""
    seen: list[int] = []

    async def run_sync(fn: Callable[[], Any], *, limiter: Any, **options: Any) -> Any:
        await limiter.acquire_on_behalf_of(None)
        await turns()
        seen.append(len(pauses))
        result = fn()
        await turns()
        seen.append(len(pauses))
        limiter.release_on_behalf_of(None)
        await turns()
        seen.append(len(pauses))
        return result

    async with connect(make_server(lambda: pauses.append(-1))) as client:
        monkeypatch.setattr("trio.to_thread.run_sync", run_sync)
        await client.call_tool("tool")
    before, work = seen[0], pauses.index(-1)
    assert before == work >= 19
    assert seen[1] >= work + 1 + 19
    assert seen[2] == seen[1]


@pytest.mark.defect("S10")
async def test_a_function_that_works_for_long_does_not_slow_a_busy_loop_down(pauses: list[float]) -> None:
    begun, finish = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def work() -> None:
        token.run_sync_soon(begun.set)
        finish.wait()

    async with connect(make_server(work)) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "tool")
        with trio.fail_after(10):
            await begun.wait()
        pauses.clear()
        await turns()
        assert pauses == []
        finish.set()


@pytest.mark.defect("S10")
async def test_nothing_is_left_after_an_abandoned_thread_has_ended(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over, finish = trio.Event(), trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()
    release = ThreadPlace.release_on_behalf_of

    def note(place: ThreadPlace, borrower: object) -> None:
        release(place, borrower)
        over.set()

    monkeypatch.setattr(ThreadPlace, "release_on_behalf_of", note)

    def work() -> None:
        token.run_sync_soon(begun.set)
        finish.wait()

    async with connect(make_server(work)) as client:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "tool")
                await begun.wait()
                nursery.cancel_scope.cancel()
            finish.set()
            await over.wait()
        pauses.clear()
        await turns()
        assert pauses == []


def fail() -> None:
    raise ValueError


@pytest.mark.parametrize("work", [fail, lambda: None])
async def test_nothing_is_left_after_a_call(work: Callable[[], None], pauses: list[float]) -> None:
    async with connect(make_server(work)) as client:
        try:
            await client.call_tool("tool")
        except Exception:
            assert work is fail
        pauses.clear()
        await turns()
        assert pauses == []


@pytest.mark.defect("S10")
async def test_an_idle_server_pauses_for_no_call(pauses: list[float]) -> None:
    async with connect(make_server(lambda: None)) as client:
        await client.call_tool("tool")
        pauses.clear()
        for _ in range(20):
            await client.call_tool("tool")
    assert len(pauses) < 20  # by chance a turn of the loop falls between the start of a thread and its function


def test_a_loop_that_waits_itself_does_not_pause(pauses: list[float]) -> None:
    instrument = Pauses()
    instrument.before_io_wait(0)
    assert pauses == []
    instrument.crossing.add(object())
    instrument.before_io_wait(0.1)
    assert pauses == []
    instrument.before_io_wait(0)
    assert len(pauses) == 1
