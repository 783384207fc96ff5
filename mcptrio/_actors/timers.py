"""Timers: one task sleeps for many deadlines that mostly move, or are dropped, before they expire.

A Trio deadline of its own would cost every timer a cancel scope. Here each timer has at most one entry in a shared
queue, for a moment that is not later than its deadline. When that moment comes, the timer has expired, or its entry
goes back into the queue. So moving a deadline into the future costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

import trio

from mcptrio._struct import Entity


class Timer(Entity):
    """A timer that calls `on_expiry` when its deadline has passed (in Trio's time); `inf` means never."""

    timers: Timers
    on_expiry: Callable[[], None]
    deadline: float = inf
    expired: bool = False
    _entry: list[Any] | None = None
    """The moment, a number that no other entry has, and the timer (None once it was removed)."""

    def set(self, deadline: float) -> None:
        """Set or move the deadline."""
        self.deadline = deadline
        self.expired = False
        entry = self._entry
        if deadline != inf and (entry is None or deadline < entry[0]):
            if entry is not None:
                self.timers.remove(entry)
            self._entry = self.timers.add(deadline, self)

    def stop(self) -> None:
        """Never expire, unless it is set again."""
        self.deadline = inf
        if self._entry is not None:
            self.timers.remove(self._entry)
            self._entry = None

    def close(self) -> None:
        """Stop for good. The callback is a method of the timer's owner: without this cycle the owner is freed at once,
        and does not wait for the garbage collector."""
        self.stop()
        self.on_expiry = _do_nothing

    def look(self, now: float) -> None:
        """Handle the moment of the entry: expire, or go back into the queue."""
        self._entry = None
        if self.deadline <= now:
            self.expired = True
            self.on_expiry()
        else:
            self.set(self.deadline)


def _do_nothing() -> None:
    pass


class Timers:
    """The queue of entries, and the task that waits for the first one.

    Owns: one task, from the first entry on; it must be cancelled with its nursery.   Borrows: the nursery.
    """

    def __init__(self, nursery: Callable[[], trio.Nursery]) -> None:
        self._nursery = nursery
        self._queue: list[list[Any]] = []
        self._numbers = count()
        self._sleep: trio.CancelScope | None = None

    def add(self, moment: float, timer: Timer) -> list[Any]:
        """Add an entry; only timers call this."""
        entry = [moment, next(self._numbers), timer]
        heappush(self._queue, entry)
        if self._sleep is None:
            self._sleep = trio.CancelScope(deadline=moment)
            self._nursery().start_soon(self._run, name="timers")
        elif moment < self._sleep.deadline:
            self._sleep.deadline = moment
        return entry

    def remove(self, entry: list[Any]) -> None:
        """Drop an entry. It leaves the queue when its moment comes."""
        entry[2] = None  # the task is not woken: there would be one task for each request

    @trio.lowlevel.enable_ki_protection
    async def _run(self) -> None:
        queue = self._queue
        try:
            while True:
                with trio.CancelScope(deadline=queue[0][0] if queue else inf) as self._sleep:
                    await trio.sleep_forever()
                now = trio.current_time()
                while queue and (queue[0][0] <= now or queue[0][2] is None):
                    timer = heappop(queue)[2]
                    if timer is not None:
                        timer.look(now)
        finally:
            self._sleep = None
            queue.clear()
