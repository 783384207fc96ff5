"""The tasks that a store keeps: all of them in memory, bounded, each until its time to live is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from math import inf

import trio
from msgspec import Struct

from mcptrio.stores.base import StoreLimits


class Kept(Struct, frozen=True):
    """One record, and when it goes (in Trio's time)."""

    record: bytes
    until: float


class MemoryTasks:
    """The task store of one process."""

    def __init__(self, limits: StoreLimits) -> None:
        self._most = limits.tasks
        self._most_bytes = limits.task_bytes
        self._kept: dict[str, Kept] = {}  # the longest untouched first
        self._bytes = 0
        self._next = inf  # nothing goes before that

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, task: str, record: bytes, ttl: float | None = None) -> None:
        self._remove(task)
        until = inf if ttl is None else trio.current_time() + ttl
        if len(self._kept) >= self._most or self._bytes + len(record) > self._most_bytes:
            self.expire()
        while self._kept and (len(self._kept) >= self._most or self._bytes + len(record) > self._most_bytes):
            self.drop(next(iter(self._kept)))
        self._keep(task, Kept(record, until))
        self._note(task, ttl)

    async def get(self, task: str) -> bytes | None:
        await trio.lowlevel.checkpoint()
        kept = self._kept.get(task)
        return None if kept is None or kept.until <= trio.current_time() else kept.record

    def drop(self, task: str) -> None:
        if self._remove(task):
            self._note(task, None)

    def expire(self) -> None:
        """Removes what is past its time. Called by the store's janitor every now and then."""
        now = trio.current_time()
        if now < self._next:
            return
        for task in [task for task, kept in self._kept.items() if kept.until <= now]:
            self.drop(task)
        self._next = min((kept.until for kept in self._kept.values()), default=inf)

    def _keep(self, task: str, kept: Kept) -> None:
        self._kept[task] = kept
        self._bytes += len(kept.record)
        self._next = min(self._next, kept.until)

    def _remove(self, task: str) -> bool:
        kept = self._kept.pop(task, None)
        if kept is None:
            return False
        self._bytes -= len(kept.record)
        return True

    def _note(self, task: str, ttl: float | None) -> None:
        """A record was put or dropped."""


Row = tuple[str, bytes, float | None]
"""Task, record, when it goes: in wall-clock time, which a restart does not set back."""


class SqliteTasks(MemoryTasks):
    """The same, every change written with the next commit."""

    def __init__(self, limits: StoreLimits, changed: Callable[[], None]) -> None:
        super().__init__(limits)
        self.changes: dict[str, Row | None] = {}  # not written yet; None: to be removed
        self._changed = changed

    def load(self, rows: Iterable[Row]) -> None:
        now, wall = trio.current_time(), time.time()
        for task, record, expires in rows:
            self._keep(task, Kept(record, inf if expires is None else now + expires - wall))
        self.expire()

    def put_all_again(self) -> None:
        now = trio.current_time()
        for task, kept in self._kept.items():
            self._note(task, None if kept.until == inf else kept.until - now)

    def _note(self, task: str, ttl: float | None) -> None:
        kept = self._kept.get(task)
        expires = None if ttl is None else time.time() + ttl
        self.changes[task] = None if kept is None else (task, kept.record, expires)
        self._changed()
