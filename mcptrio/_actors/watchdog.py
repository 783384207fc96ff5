"""The watchdog: a thread that detects a blocked event loop and logs the task that blocks it.

Theory of operation. The thread posts a small callback into the loop ten times a second and measures the time until it
runs: the loop's lag. If it has not run after `STALL_AFTER`, something blocks the loop's thread (`time.sleep`, a long
computation); since no task can report that, the thread reads the stack of the loop's thread and logs it. It uses no
task and no timer of Trio, so a test's clock is not disturbed.

A block is reported within a quarter of a second: 0.1 s until the next callback, 0.15 s without a response.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from types import FrameType
from typing import Final

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._struct import Entity

logger = logging.getLogger("mcptrio.watchdog")

EVERY: Final = 0.1
STALL_AFTER: Final = 0.15
UNREADY_ABOVE: Final = 1.0
_UNREADY_FOR: Final = 2.0  # seconds after such a stall: a probe is only answered once the loop runs again
_HANDLERS: Final = "mcptrio._actors.handlers"
_QUIET_FOR: Final = 10.0  # seconds between two stacks of the same function
_STACK_DEPTH: Final = 12
_OURS: Final = ("mcptrio", "trio", "outcome")


class Watchdog(Entity):
    """A watchdog for one event loop. `on_lag` is called in the loop with every lag, in seconds.

    Owns: its thread.   Borrows: the telemetry hub, `on_lag`.
    """

    hub: telemetry.Hub
    on_lag: Callable[[float], None] | None = None
    every: float = EVERY
    stall_after: float = STALL_AFTER
    _stop: threading.Event = field(default_factory=threading.Event)
    _answered: threading.Event = field(default_factory=threading.Event)
    _asked_at: float = 0.0
    _stalled_until: float = 0.0
    _culprit: str | None = None
    _logged_at: dict[str | None, float] = field(default_factory=dict)

    @property
    def stalled(self) -> bool:
        """Whether the loop was blocked recently for so long that work should go elsewhere."""
        return perf_counter() < self._stalled_until

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the event loop of the current task."""
        token = trio.lowlevel.current_trio_token()
        thread = threading.Thread(
            target=self._watch, args=(token, threading.get_ident()), name="mcptrio watchdog", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._answered.set()
            thread.join(1.0)

    # -- in the thread

    def _watch(self, token: trio.lowlevel.TrioToken, loop: int) -> None:
        while not self._stop.wait(self.every):
            self._answered.clear()
            if self._stop.is_set():  # stop first: the loop waits for this thread and could not respond
                return
            self._culprit = None
            self._asked_at = perf_counter()
            try:
                token.run_sync_soon(self._answer)
            except trio.RunFinishedError:
                return
            if not self._answered.wait(self.stall_after):
                self._look(loop)
                self._answered.wait()

    def _look(self, loop: int) -> None:
        """Log the task that blocks the loop, while the block lasts."""
        frame = sys._current_frames().get(loop)
        culprit = None if frame is None else name_culprit(frame)
        if frame is None or culprit is None or self._answered.is_set():
            return
        self._culprit = culprit
        now = perf_counter()
        if now - self._logged_at.get(culprit, -_QUIET_FOR) < _QUIET_FOR or not logger.isEnabledFor(logging.WARNING):
            return
        if len(self._logged_at) >= 100:
            self._logged_at.clear()
        self._logged_at[culprit] = now
        where = (frame.f_code.co_filename, frame.f_lineno)
        stack = "".join(traceback.format_stack(frame, _STACK_DEPTH)).rstrip()
        text = (
            "the event loop is blocked by %s; no other request is served meanwhile. "
            "Code that blocks belongs in a plain `def` function, which runs in a thread"
        )
        logger.handle(logger.makeRecord(logger.name, logging.WARNING, *where, text, (culprit,), None, sinfo=stack))

    # -- in the loop

    def _answer(self) -> None:
        if self._stop.is_set():
            return
        now = perf_counter()
        lag = now - self._asked_at
        culprit = self._culprit
        self._answered.set()
        if self.on_lag is not None:
            self.on_lag(lag)
        if lag < self.stall_after:
            return
        if lag > UNREADY_ABOVE:
            self._stalled_until = now + _UNREADY_FOR
        if self.hub:
            self.hub.emit(telemetry.LoopStalled(seconds=lag, culprit=culprit))


def name_culprit(innermost: FrameType) -> str | None:
    """Return the task and the user's function at this frame; None if the loop is idle.

    The function is the one that mcptrio or Trio called: a handler rather than the library in which it blocks.
    """
    if _package(innermost) == "trio" and "._io_" in innermost.f_globals.get("__name__", ""):
        return None
    task: str | None = None
    found: FrameType | None = None
    done = False
    frame: FrameType | None = innermost
    while frame is not None:
        if frame.f_code.co_name == "unrolled_run" and _package(frame) == "trio":
            # Trio keeps the running task in a thread-local; a variable of its run loop holds the same task.
            task = getattr(frame.f_locals.get("task"), "name", None)
            break
        if frame.f_code.co_name == "run" and frame.f_globals.get("__name__") == _HANDLERS:
            # The handler may run in the task of a reader (`lending`), whose name says nothing about the call.
            task = getattr(frame.f_locals.get("start"), "method", None)
            break
        if not done and _package(frame) not in _OURS:
            found = frame
        elif found is not None:
            done = True
        frame = frame.f_back
    code = (found or innermost).f_code
    place = f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{(found or innermost).f_lineno})"
    return place if task is None else f"{task}: {place}"


def _package(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]
