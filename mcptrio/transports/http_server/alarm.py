"""One timer for many waits of the same length.

Nearly every call is answered long before it would become a stream, so a deadline for each of them is set and taken back
in vain. Here the waits stand in one queue, in the order in which they end, and one task sleeps until the first that
still matters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio
from attrs import define, field


class Sleeper(Protocol):
    """Something that waits for something better, but not for ever."""

    @property
    def undecided(self) -> bool:
        """Whether it still waits."""
        ...

    def overdue(self) -> None:
        """The time is up. Only called while it still waits."""
        ...


@define(eq=False, repr=False)
class Alarm:
    """Wakes those who waited for `seconds`.

    Owns: one task, while anybody is in the queue.   Lent: the nursery for it.
    """

    seconds: float
    nursery: Callable[[], trio.Nursery]
    _queue: deque[tuple[float, Sleeper]] = field(factory=deque)
    _asleep: bool = False

    def set(self, sleeper: Sleeper) -> None:
        self._queue.append((trio.current_time() + self.seconds, sleeper))
        if not self._asleep:
            self._asleep = True
            self.nursery().start_soon(self._run, name="alarm")

    async def _run(self) -> None:
        queue = self._queue
        try:
            while queue:
                await trio.sleep_until(queue[0][0])
                now = trio.current_time()
                while queue and (queue[0][0] <= now or not queue[0][1].undecided):
                    _, sleeper = queue.popleft()
                    if sleeper.undecided:
                        sleeper.overdue()
        finally:
            self._asleep = False
