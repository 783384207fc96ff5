"""Worker threads that begin and end in time also while the event loop is busy.

CPython runs one thread at a time. A thread that waits for its turn demands it only after 5 ms in which the running one
has not paused. A busy event loop pauses at every system call, but too shortly for the other thread to wake up. So the
thread waited 15 ms to begin at a server under load, and 60 ms at times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import trio

from mcptrio._struct import Entity

T = TypeVar("T")

_PAUSE: Final = 0.00005
"""Seconds that suffice for a waiting thread to wake up."""


class Crossing(Entity):
    """One call of a function in a thread, on its way to the thread or back."""

    over: bool = False


class Pauses(trio.abc.Instrument):
    """Pauses the event loop for a moment in each turn, as long as a thread is about to begin or to end."""

    def __init__(self) -> None:
        self.crossing: set[Crossing] = set()

    def before_io_wait(self, timeout: float) -> None:
        """Pause if the loop itself would not wait. Trio calls this once in each turn."""
        if self.crossing and not timeout:
            time.sleep(_PAUSE)


_current: Final[trio.lowlevel.RunVar[Pauses]] = trio.lowlevel.RunVar("mcptrio pauses for threads")


def _pauses() -> Pauses:
    try:
        return _current.get()
    except LookupError:
        pauses = Pauses()
        trio.lowlevel.add_instrument(pauses)
        _current.set(pauses)
        return pauses


async def run_in_thread(
    fn: Callable[[], T],
    *,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
    thread_name: str | None = None,
) -> T:
    """Run a function in a worker thread, as `trio.to_thread.run_sync` does."""
    crossing, this = _pauses().crossing, Crossing()

    def run() -> T:
        crossing.discard(this)
        try:
            return fn()
        finally:
            crossing.add(this)
            if this.over:  # the call was abandoned: no task waits for the thread
                crossing.discard(this)

    crossing.add(this)
    try:
        return await trio.to_thread.run_sync(
            run, limiter=limiter, abandon_on_cancel=abandon_on_cancel, thread_name=thread_name
        )
    finally:
        this.over = True
        crossing.discard(this)
