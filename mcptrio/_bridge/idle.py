"""How a guest run of Trio waits while none of its tasks can run: in the asyncio loop, where that is possible.

Theory of operation. In guest mode Trio waits for its I/O and its deadlines in a thread, so that each call from asyncio
to an idle Trio costs two thread switches, about as much as half of a tool call. But Trio's I/O is one epoll object,
which the asyncio loop can watch like a socket. So this clock tells Trio that a deadline is due whenever Trio would
begin to wait. Trio then schedules its next tick instead of the thread, and `IdleWait` holds that tick until the epoll
object has an event, the real deadline is due, or asyncio code wakes Trio.

Trio has no public name for its epoll object: `_run_of` is the one place with private parts of Trio. Where they are
missing (another system, another version of Trio, a loop without `add_reader`), Trio waits in its thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any, Final

import trio
from outcome import Error

Tick = Callable[[], object]

_LONGEST: Final = 86_400.0  # seconds, as Trio itself


class IdleWait(trio.abc.Clock):
    """Trio's clock, and the wait of an idle guest run.

    Owns: a reader and a timer of the loop, and the tick that it holds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], object]) -> None:
        """`wake` schedules the tick that `release` returns."""
        self._loop = loop
        self._wake = wake
        self._run: Any = None  # of Trio, while its epoll object is watched
        self._file = -1
        self._held: Tick | None = None
        self._idle_until: float | None = None  # set when Trio would begin to wait
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def watch(self, tick: Tick) -> None:
        """Begin to wait in the loop, if that is possible here."""
        if (run := _run_of(tick)) is None:
            return
        file = run.runner.io_manager._epoll.fileno()
        try:
            self._loop.add_reader(file, self._wake)
        except NotImplementedError:
            return
        self._run, self._file = run, file

    def close(self) -> None:
        """Let Trio wait in its thread from now on. Called before Trio closes its epoll object."""
        if self._run is None or self._loop.is_closed():
            return
        self._run = None
        self._loop.remove_reader(self._file)
        if self._timer is not None:
            self._timer.cancel()

    # -- the clock: asyncio's own

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the seconds that Trio may wait. Trio calls it only if no task can run."""
        seconds = deadline - monotonic()
        if seconds <= 0 or self._run is None or self._run.runner.waiting_for_idle or self._loop.is_closed():
            return seconds
        self._idle_until = deadline
        return 0

    # -- the wait

    def hold(self, tick: Tick) -> bool:
        """Keep the tick until Trio has work. Return False if it has work now."""
        deadline, self._idle_until = self._idle_until, None
        if deadline is None:
            return False
        events = self._run.unrolled_run_next_send
        if isinstance(events, Error) or events.value:
            return False
        self._held = tick
        self._run.runner.guest_tick_scheduled = False  # so a task that becomes runnable wakes the epoll object
        if deadline < self._timer_at:  # an earlier timer is kept: a tick too many costs less than a timer for each call
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self._loop.call_later(min(deadline - monotonic(), _LONGEST), self._expire)
        return True

    def release(self) -> Tick | None:
        """Return the held tick, which the caller schedules."""
        tick, self._held = self._held, None
        if tick is not None and self._run is not None:
            self._run.runner.guest_tick_scheduled = True
        return tick

    def _expire(self) -> None:
        self._timer, self._timer_at = None, inf
        self._wake()


def _run_of(tick: Tick) -> Any:
    """Return Trio's state of the guest run to which the tick belongs; None without the parts that are used here."""
    run = getattr(tick, "__self__", None)
    runner = getattr(run, "runner", None)
    found = (
        hasattr(run, "unrolled_run_next_send")
        and hasattr(runner, "guest_tick_scheduled")
        and hasattr(runner, "waiting_for_idle")
        and hasattr(getattr(runner, "io_manager", None), "_epoll")
    )
    return run if found else None
