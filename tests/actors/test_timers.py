"""Timers: one task sleeps for many deadlines."""

from __future__ import annotations

from functools import partial

import trio
from trio.testing import MockClock

from mcptrio._actors.timers import Timer, Timers


def expire(name: str, expired: dict[str, float]) -> None:
    expired[name] = trio.current_time()


async def test_each_timer_expires_at_its_own_deadline(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    timers, expired = Timers(lambda: nursery), dict[str, float]()
    start = trio.current_time()
    for seconds in (3, 1, 4, 2):
        Timer(timers, partial(expire, str(seconds), expired)).set(start + seconds)
    await trio.sleep(10)
    assert expired == {"1": start + 1, "2": start + 2, "3": start + 3, "4": start + 4}


async def test_a_deadline_can_be_moved_both_ways_and_removed(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    timers, expired = Timers(lambda: nursery), dict[str, float]()
    later, sooner, never = (Timer(timers, partial(expire, name, expired)) for name in ("later", "sooner", "never"))
    start = trio.current_time()
    for timer in (later, sooner, never):
        timer.set(start + 5)
    later.set(start + 8)
    sooner.set(start + 2)
    never.stop()
    await trio.sleep(20)
    assert expired == {"later": start + 8, "sooner": start + 2}


async def test_a_timer_can_be_set_again_after_it_expired(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    expired: dict[str, float] = {}
    timer = Timer(Timers(lambda: nursery), partial(expire, "it", expired))
    timer.set(trio.current_time() + 1)
    await trio.sleep(2)
    assert timer.expired
    timer.set(trio.current_time() + 1)
    assert not timer.expired
    await trio.sleep(2)
    assert timer.expired


async def test_there_is_one_task_from_the_first_entry_on(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    timers, expired = Timers(lambda: nursery), dict[str, float]()
    assert not nursery.child_tasks
    for _ in range(2):
        for seconds in (1, 2):
            timer = Timer(timers, partial(expire, "it", expired))
            timer.set(trio.current_time() + seconds)
            timer.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1
        await trio.sleep(3)
        assert not timers._queue
        assert expired == {}
    timer.set(trio.current_time() + 1)  # in the queue of a task that waits for nothing
    await trio.sleep(2)
    assert expired == {"it": trio.current_time() - 1}
    nursery.cancel_scope.cancel()


async def test_a_stopped_timer_is_not_kept_alive_by_the_queue(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    timers = Timers(lambda: nursery)
    timer = Timer(timers, lambda: None)
    timer.set(trio.current_time() + 1)
    timer.stop()
    assert [entry[2] for entry in timers._queue] == [None]
