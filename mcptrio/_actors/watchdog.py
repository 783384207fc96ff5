"""The watchdog: a thread that asks the event loop for a sign of life, and tells who keeps it from giving one.

Theory of operation. The thread posts a tiny callback into the loop ten times a second and takes the time until it runs:
that is the loop's lag. When it has not run after `PATIENCE` the loop is blocked by something that does not wait the way
tasks do (`time.sleep`, a long computation), and since nothing in the loop can say so, the thread reads the stack of the
loop's own thread and logs it. No task and no timer of Trio's is involved, so a test's clock is not disturbed.

A block is named within a quarter of a second of its beginning: 0.1 s until the next question, 0.15 s without an answer.
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
from attrs import define, field

from mcptrio import telemetry

logger = logging.getLogger("mcptrio.watchdog")

EVERY: Final = 0.1
PATIENCE: Final = 0.15
UNREADY_ABOVE: Final = 1.0
_UNREADY_FOR: Final = 2.0  # after such a stall: a probe can only be answered once the loop turns again
_HANDLING: Final = "mcptrio._actors.handling"
_QUIET_FOR: Final = 10.0  # between two stacks of the same culprit
_STACK_DEPTH: Final = 12
_OURS: Final = ("mcptrio", "trio", "outcome")


@define(eq=False, repr=False)
class Watchdog:
    """Owns: its thread.   Lent: the telemetry hub; `on_lag`, which is called in the loop with every lag, in seconds."""

    hub: telemetry.Hub
    on_lag: Callable[[float], None] | None = None
    every: float = EVERY
    patience: float = PATIENCE
    _stop: threading.Event = field(factory=threading.Event, init=False)
    _answered: threading.Event = field(factory=threading.Event, init=False)
    _asked_at: float = field(default=0.0, init=False)
    _stalled_until: float = field(default=0.0, init=False)
    _culprit: str | None = field(default=None, init=False)
    _told: dict[str | None, float] = field(factory=dict, init=False)

    @property
    def stalled(self) -> bool:
        """Whether the loop was blocked for so long, a moment ago, that work should go elsewhere."""
        return perf_counter() < self._stalled_until

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the loop that this is called in."""
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
            if self._stop.is_set():  # asked now, nobody would answer: the loop waits for this thread
                return
            self._culprit = None
            self._asked_at = perf_counter()
            try:
                token.run_sync_soon(self._answer)
            except trio.RunFinishedError:
                return
            if not self._answered.wait(self.patience):
                self._look(loop)
                self._answered.wait()

    def _look(self, loop: int) -> None:
        """The loop is blocked: find out by whom, and say so while it lasts."""
        frame = sys._current_frames().get(loop)
        culprit = None if frame is None else name_culprit(frame)
        if frame is None or culprit is None or self._answered.is_set():
            return
        self._culprit = culprit
        now = perf_counter()
        if now - self._told.get(culprit, -_QUIET_FOR) < _QUIET_FOR or not logger.isEnabledFor(logging.WARNING):
            return
        if len(self._told) >= 100:
            self._told.clear()
        self._told[culprit] = now
        where = (frame.f_code.co_filename, frame.f_lineno)
        stack = "".join(traceback.format_stack(frame, _STACK_DEPTH)).rstrip()
        text = "the event loop is blocked by %s; no other request is served meanwhile"
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
        if lag < self.patience:
            return
        if lag > UNREADY_ABOVE:
            self._stalled_until = now + _UNREADY_FOR
        if self.hub:
            self.hub.emit(telemetry.LoopStalled(seconds=lag, culprit=culprit))


def name_culprit(innermost: FrameType) -> str | None:
    """Who runs at this frame: the task, and the function that a user wrote. None if the loop waits for something to do.

    The function is the one that our code, or Trio's, called: a handler rather than the library it blocks in.
    """
    if _package(innermost) == "trio" and "._io_" in innermost.f_globals.get("__name__", ""):
        return None
    task: str | None = None
    found: FrameType | None = None
    done = False
    frame: FrameType | None = innermost
    while frame is not None:
        if frame.f_code.co_name == "unrolled_run" and _package(frame) == "trio":
            # Trio keeps the task that runs in the loop's thread alone; its loop's own variable says the same.
            task = getattr(frame.f_locals.get("task"), "name", None)
            break
        if frame.f_code.co_name == "_work" and frame.f_globals.get("__name__") == _HANDLING:
            # It may run in the task of whoever carried the request, which is called otherwise.
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
