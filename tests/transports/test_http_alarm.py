"""One timer for many waits."""

from __future__ import annotations

import trio
from attrs import define
from trio.testing import MockClock

from mcptrio.transports.http_server.alarm import Alarm


@define(eq=False)
class Wait:
    undecided: bool = True
    woken_at: float | None = None

    def overdue(self) -> None:
        assert self.undecided
        self.undecided = False
        self.woken_at = trio.current_time()


async def test_each_wait_ends_in_its_own_time(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    alarm = Alarm(2, lambda: nursery)
    start = trio.current_time()
    waits = [Wait() for _ in range(5)]
    for wait in waits:
        alarm.set(wait)
        await trio.sleep(0.5)
    await trio.sleep(5)
    assert [(wait.woken_at or 0) - start for wait in waits] == [2, 2.5, 3, 3.5, 4]


async def test_who_got_an_answer_is_left_in_peace(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    alarm = Alarm(2, lambda: nursery)
    answered, waiting = Wait(), Wait()
    alarm.set(answered)
    await trio.sleep(1)
    alarm.set(waiting)
    answered.undecided = False
    await trio.sleep(5)
    assert answered.woken_at is None
    assert waiting.woken_at is not None


async def test_the_timer_has_no_task_while_nobody_waits(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    alarm = Alarm(1, lambda: nursery)
    for _ in range(2):  # and it starts again
        alarm.set(Wait())
        alarm.set(Wait())
        await trio.lowlevel.checkpoint()
        assert len(nursery.child_tasks) == 1
        await trio.sleep(2)
        assert not nursery.child_tasks
