"""Pauses of the event loop, so that worker threads begin and end in time while it is busy.

CPython runs one thread at a time. A thread that waits for its turn demands it only after 5 ms in which the running one
has not paused. A busy event loop pauses at every system call, but too shortly for the other thread to wake up. So the
thread waited 15 ms to begin at a server under load, and 60 ms at times.
"""

from __future__ import annotations

import time
from typing import Final

import trio

_PAUSE: Final = 0.00005
"""Seconds that suffice for a waiting thread to wake up."""


class Pauses(trio.abc.Instrument):
    """Pauses the event loop for a moment in each turn in which a thread is about to begin or to end."""

    def __init__(self) -> None:
        self.crossing: set[object] = set()
        """The calls whose thread has not begun their function yet, or has not reported its end."""

    def before_io_wait(self, timeout: float) -> None:
        """Pause if the loop itself would not wait. Trio calls this once in each turn."""
        if self.crossing and not timeout:
            time.sleep(_PAUSE)


_current: Final[trio.lowlevel.RunVar[Pauses]] = trio.lowlevel.RunVar("mcptrio pauses for threads")


def pauses_for_threads() -> Pauses:
    """Return the pauses of this event loop."""
    try:
        return _current.get()
    except LookupError:
        pauses = Pauses()
        trio.lowlevel.add_instrument(pauses)
        _current.set(pauses)
        return pauses
