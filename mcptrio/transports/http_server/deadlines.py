"""One timer for the reads of many connections.

Theory of operation. Whoever waits for a peer has a deadline, which moves with every request and is nearly always moved
again before it comes. Each connection therefore has at most one entry in a queue, for a moment that is not later than
its deadline. When that moment comes the connection is asked for its deadline as it is now: it is late, or the entry
goes back into the queue. So moving a deadline into the future costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

import trio


class Timed:
    """Something that waits until its `deadline` (Trio's clock); `inf` is for ever."""

    def __init__(self, deadlines: Deadlines) -> None:
        self.deadline = inf
        self.is_late = False
        self._deadlines = deadlines
        self._entry: list[Any] | None = None  # the moment, a number that no other entry has, and self

    def wait_until(self, deadline: float) -> None:
        """Set the deadline."""
        self.deadline = deadline
        self.is_late = False
        entry = self._entry
        if deadline != inf and (entry is None or deadline < entry[0]):
            self.forget_deadline()
            self._entry = self._deadlines.add(deadline, self)

    def forget_deadline(self) -> None:
        """Nothing is waited for any more."""
        if self._entry is not None:
            self._deadlines.remove(self._entry)
            self._entry = None

    def look(self, now: float) -> None:
        """The moment of the entry has come."""
        self._entry = None
        if self.deadline <= now:
            self.is_late = True
            self.late()
        else:
            self.wait_until(self.deadline)

    def late(self) -> None:
        """The deadline has passed."""
        raise NotImplementedError


class Deadlines:
    """The queue, and the task that goes through it.

    Owns: one task, while there are entries.   Lent: the nursery for it.
    """

    def __init__(self, nursery: Callable[[], trio.Nursery | None]) -> None:
        self._nursery = nursery
        self._queue: list[list[Any]] = []
        self._numbers = count()
        self._sleep: trio.CancelScope | None = None
        self._waiting = 0  # entries that were not removed

    def add(self, moment: float, timed: Timed) -> list[Any]:
        self._waiting += 1
        entry = [moment, next(self._numbers), timed]
        heappush(self._queue, entry)
        if self._sleep is None:
            nursery = self._nursery()
            assert nursery is not None  # connections live in it
            self._sleep = trio.CancelScope(deadline=moment)
            nursery.start_soon(self._run, name="deadlines")
        elif moment < self._sleep.deadline:
            self._sleep.deadline = moment
        return entry

    def remove(self, entry: list[Any]) -> None:
        """Take an entry out; it goes when its moment comes, or with the last one."""
        entry[2] = None
        self._waiting -= 1
        if not self._waiting and self._sleep is not None:
            self._sleep.cancel()

    @trio.lowlevel.enable_ki_protection
    async def _run(self) -> None:
        queue = self._queue
        try:
            while self._waiting:
                with trio.CancelScope(deadline=queue[0][0]) as self._sleep:
                    await trio.sleep_forever()
                now = trio.current_time()
                while queue and (queue[0][0] <= now or queue[0][2] is None):
                    timed = heappop(queue)[2]
                    if timed is not None:
                        self._waiting -= 1
                        timed.look(now)
        finally:
            self._sleep = None
            queue.clear()
