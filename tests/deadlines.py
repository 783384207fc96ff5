"""Measure promised deadlines so that a busy machine does not decide: time without a processor is not counted.

Linux counts for each thread how long it was ready to run and waited for a processor. Elsewhere nothing is subtracted.
"""

from __future__ import annotations

import time
from pathlib import Path

import trio
from attrs import define, field


@define(eq=False)
class RunQueue:
    """The time that processes were ready to run and waited for a processor: the machine's part of a response time."""

    files: tuple[Path, ...]

    @classmethod
    def of(cls, *others: int) -> RunQueue:
        """Watch this process and others, each by its first thread, which runs the event loop."""
        named = (Path(f"/proc/{pid}/schedstat") for pid in (*others, "self"))
        return cls(tuple(path for path in named if path.exists()))

    def waited(self) -> list[float]:
        """Return the seconds so far, of each process."""
        return [_read(path) for path in self.files]

    def since(self, before: list[float]) -> float:
        """Return the longest of the waits: they may have been at the same time."""
        return max((now - then for now, then in zip(self.waited(), before, strict=True)), default=0.0)


def _read(path: Path) -> float:
    try:
        return int(path.read_text().split()[1]) / 1e9
    except (OSError, IndexError):  # the process has ended
        return 0.0


@define(eq=False)
class Stopwatch:
    """Seconds since it was made, without those in which this process or another one waited for a processor.

    Both waits are subtracted in full: one process may wait for a processor after the other.
    """

    _queue: RunQueue
    _began: float = field(factory=time.perf_counter)
    _before: list[float] = field(init=False)
    _lost: list[float] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._before = self._queue.waited()
        self._lost = [0.0] * len(self._before)

    @classmethod
    def of(cls, *others: int) -> Stopwatch:
        return cls(RunQueue.of(*others))

    def read(self) -> float:
        """Return the seconds. Call it again and again: what a process has waited is unknown when it has ended."""
        lost = (now - then for now, then in zip(self._queue.waited(), self._before, strict=True))
        self._lost = [max(pair) for pair in zip(self._lost, lost, strict=True)]
        return time.perf_counter() - self._began - sum(self._lost)


@define(eq=False)
class FairClock(trio.abc.Clock):
    """The real time without that in which this process waited for a processor, for a test with a promised deadline."""

    _queue: RunQueue = field(factory=RunQueue.of)
    _latest: float = 0.0

    def start_clock(self) -> None:
        self.current_time()

    def current_time(self) -> float:
        now = time.perf_counter() - sum(self._queue.waited())
        self._latest = max(self._latest, now)  # a wait between the two readings must not turn it back
        return self._latest

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()
