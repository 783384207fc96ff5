"""One timer for the reads of many connections."""

from __future__ import annotations

from math import inf

import trio
from trio.testing import MockClock

from mcptrio.transports.http_server.deadlines import Deadlines, Timed


class Wait(Timed):
    late_at: float | None = None

    def late(self) -> None:
        assert self.is_late
        self.late_at = trio.current_time()


async def test_each_one_is_late_when_its_own_time_comes(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    deadlines = Deadlines(lambda: nursery)
    waits = [Wait(deadlines) for _ in range(4)]
    for wait, seconds in zip(waits, (3, 1, 4, 2), strict=True):
        wait.wait_until(trio.current_time() + seconds)
    start = trio.current_time()
    await trio.sleep(10)
    assert [(wait.late_at or 0) - start for wait in waits] == [3, 1, 4, 2]


async def test_a_deadline_can_be_moved_both_ways_and_taken_back(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    deadlines = Deadlines(lambda: nursery)
    later, sooner, never = (Wait(deadlines) for _ in range(3))
    start = trio.current_time()
    for wait in (later, sooner, never):
        wait.wait_until(start + 5)
    later.wait_until(start + 8)
    sooner.wait_until(start + 2)
    never.deadline = inf
    await trio.sleep(20)
    assert (later.late_at, sooner.late_at, never.late_at) == (start + 8, start + 2, None)


async def test_being_late_once_does_not_count_for_the_next_wait(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    wait = Wait(Deadlines(lambda: nursery))
    wait.wait_until(trio.current_time() + 1)
    await trio.sleep(2)
    assert wait.is_late
    wait.wait_until(trio.current_time() + 1)
    assert not wait.is_late
    await trio.sleep(2)
    assert wait.is_late


async def test_there_is_a_task_only_while_somebody_may_be_late(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    deadlines = Deadlines(lambda: nursery)
    for _ in range(2):  # and it starts again
        first, second = Wait(deadlines), Wait(deadlines)
        first.wait_until(trio.current_time() + 5)
        second.wait_until(trio.current_time() + 50)
        await trio.sleep(1)
        assert len(nursery.child_tasks) == 1
        first.forget_deadline()
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1
        second.forget_deadline()
        await trio.testing.wait_all_tasks_blocked()
        assert not nursery.child_tasks
        assert first.late_at is None
