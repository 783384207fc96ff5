"""Records (sessions, tasks and marks): all in memory, bounded; changes are collected for a durable store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, TypeVar

import trio
from msgspec import Struct

from mcptrio._actors.shares import Shares
from mcptrio._wire.jsonrpc import exact
from mcptrio.stores.base import ClaimedTask, MarkKind, StoreLimits

Row = tuple[str, bytes, float | None, str]
"""Id, record, expiry in wall-clock time, which holds across a restart, and owner."""


R = TypeVar("R")


class ExpiringRecord(Struct, frozen=True):
    """One record, when it expires (in Trio's time), and its owner."""

    data: bytes
    until: float
    owner: str


class RecordChanges(Generic[R]):
    """Rows that the next commit writes or removes."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._rows: dict[str, R | None] = {}  # None: to be removed
        self._changed = changed

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, id: str) -> bool:
        return id in self._rows

    def __getitem__(self, id: str) -> R | None:
        return self._rows[id]

    def note(self, id: str, row: R | None) -> None:
        self._rows[id] = row
        self._changed()

    def undo(self, id: str) -> None:
        self._rows.pop(id, None)

    def take(self) -> Mapping[str, R | None]:
        """Return what is to be written and start an empty collection."""
        rows, self._rows = self._rows, {}
        return rows

    def give_back(self, rows: Mapping[str, R | None]) -> None:
        """Take back rows that could not be written; later changes win."""
        self._rows = {**rows, **self._rows}


class Records:
    """Records by id. When there is no room, expired ones go first, then the longest untouched of the largest owner.

    With `expire_there` the storage behind `changes` removes expired records itself.
    """

    def __init__(
        self,
        most: int,
        most_bytes: float = inf,
        changes: RecordChanges[Row] | None = None,
        *,
        expire_there: bool = False,
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._changes = changes
        self._expire_there = expire_there
        self._kept: dict[str, ExpiringRecord] = {}
        self._shares = Shares(most)
        self._bytes = 0
        self._expiries: list[tuple[float, str]] = []  # a heap; entries of records that were replaced are skipped

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, id: str, data: bytes, /, ttl: float | None = None, *, owner: str = "") -> None:
        self.hold(id, data, ttl, owner)
        self._note(id)

    def hold(self, id: str, data: bytes, ttl: float | None, owner: str) -> None:
        """Keep a record that is stored already."""
        self._remove(id)
        until = inf if ttl is None else trio.current_time() + ttl
        if self._is_full(data):
            self.expire()
        while self._kept and self._is_full(data):
            self.drop(str(self._shares.first_to_go(owner, self._amount(data))))
        self._keep(id, ExpiringRecord(exact(data), until, owner))

    def find(self, id: str) -> bytes | None:
        """Return a record unless it is unknown or expired."""
        kept = self._kept.get(id)
        return None if kept is None or kept.until <= trio.current_time() else kept.data

    async def get(self, id: str, /) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return self.find(id)

    def drop(self, id: str, /) -> None:
        if self._remove(id):
            self._note(id)

    def let_go(self, id: str, /) -> None:
        """Forget a record that belongs to another process now."""
        self._remove(id)
        if self._changes is not None:
            self._changes.undo(id)

    def expire(self) -> None:
        """Remove expired records. The store's janitor calls it at intervals."""
        now, expiries = trio.current_time(), self._expiries
        while expiries and expiries[0][0] <= now:
            until, id = heappop(expiries)
            if id in self._kept and self._kept[id].until == until:
                if self._expire_there:  # another process may have set it again
                    self._remove(id)
                else:
                    self.drop(id)

    def load(self, rows: Iterable[Row]) -> None:
        """Take over the rows of a file."""
        now, wall = trio.current_time(), time.time()
        for id, data, expires, owner in rows:
            self._remove(id)
            self._keep(id, ExpiringRecord(data, inf if expires is None else now + expires - wall, owner))
        self.expire()

    def put_all_again(self) -> None:
        """Have every record written again, into a new file."""
        for id in self._kept:
            self._note(id)

    def _is_full(self, data: bytes) -> bool:
        return len(self._kept) >= self._most or self._bytes + len(data) > self._most_bytes

    def _amount(self, data: bytes) -> int:
        # An owner is large by many records or by large ones: each counts as one, and once more for each average
        # record that would fit into its bytes.
        return 1 + int(len(data) * self._most / self._most_bytes)

    def _keep(self, id: str, kept: ExpiringRecord) -> None:
        self._kept[id] = kept
        self._bytes += len(kept.data)
        gone = self._shares.add(kept.owner, id, self._amount(kept.data))
        if gone is not None:  # a file may hold more than the bound that is set now
            self.drop(str(gone))
        if kept.until == inf:
            return
        heappush(self._expiries, (kept.until, id))
        if len(self._expiries) > 2 * len(self._kept) + 64:
            self._expiries = [(kept.until, id) for id, kept in self._kept.items() if kept.until < inf]
            heapify(self._expiries)

    def _remove(self, id: str) -> bool:
        kept = self._kept.pop(id, None)
        if kept is None:
            return False
        self._shares.remove(id)
        self._bytes -= len(kept.data)
        return True

    def _note(self, id: str) -> None:
        if self._changes is None:
            return
        kept = self._kept.get(id)
        if kept is None:
            self._changes.note(id, None)
        else:
            expires = None if kept.until == inf else time.time() + kept.until - trio.current_time()
            self._changes.note(id, (id, kept.data, expires, kept.owner))


class TaskRecords(Records):
    """The tasks of a store that one process uses: a task that does not run in it has lost its process."""

    def when_lost(self, callback: Callable[[str], None], /) -> None:
        """Ignore the callback: no other process takes a task over."""

    def put(
        self, id: str, data: bytes, /, ttl: float | None = None, *, owner: str = "", note: bytes | None = None
    ) -> None:
        super().put(id, data, ttl, owner=owner)

    async def claim(self, id: str, /) -> ClaimedTask | None:
        record = await self.get(id)
        return None if record is None else ClaimedTask(record, b"")

    async def home(self, id: str, /) -> str | None:
        await trio.lowlevel.checkpoint()
        return None

    async def orphans(self) -> Sequence[str]:
        await trio.lowlevel.checkpoint()
        return ()


class MarkTable:
    """The marks of a store: one table of records for each kind, with bounds of its own."""

    def __init__(
        self, limits: StoreLimits, changes: RecordChanges[Row] | None = None, *, expire_there: bool = False
    ) -> None:
        sizes = {"state": limits.mark_bytes, "once": limits.mark_bytes, "dpop": limits.mark_bytes}
        self._kinds: dict[str, Records] = {
            kind: Records(limits.marks, size, changes, expire_there=expire_there)
            for kind, size in {**sizes, "result": limits.result_bytes}.items()
        }

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    async def use(self, kind: MarkKind, mark: str, value: bytes, ttl: float, *, owner: str = "") -> bytes | None:
        await trio.lowlevel.checkpoint()
        found = self._kinds[kind].find(mark_id(kind, mark))
        if found is None:  # no checkpoint since the look: of two users, one is the first
            self.done(kind, mark, value, ttl, owner=owner)
        return found

    def done(self, kind: MarkKind, mark: str, value: bytes, ttl: float, *, owner: str = "") -> None:
        self._kinds[kind].put(mark_id(kind, mark), value, ttl, owner=owner)

    def hold(self, kind: MarkKind, mark: str, value: bytes, ttl: float, *, owner: str) -> None:
        """Keep a mark that is stored already."""
        self._kinds[kind].hold(mark_id(kind, mark), value, ttl, owner)

    def drop(self, kind: MarkKind, mark: str) -> None:
        self._kinds[kind].drop(mark_id(kind, mark))

    async def get(self, kind: MarkKind, mark: str) -> bytes | None:
        return await self._kinds[kind].get(mark_id(kind, mark))

    def expire(self) -> None:
        for records in self._kinds.values():
            records.expire()

    def load(self, rows: Iterable[Row]) -> None:
        found = tuple(rows)
        for kind, records in self._kinds.items():
            records.load(row for row in found if row[0].startswith(f"{kind} "))

    def put_all_again(self) -> None:
        for records in self._kinds.values():
            records.put_all_again()


class Tables:
    """The tasks and marks of a durable store, and their changes that the next commit writes."""

    def __init__(self, limits: StoreLimits, changed: Callable[[], None], *, expire_there: bool) -> None:
        self.changes: tuple[RecordChanges[Row], RecordChanges[Row]] = RecordChanges(changed), RecordChanges(changed)
        self.tasks = TaskRecords(limits.tasks, limits.task_bytes, self.changes[0], expire_there=expire_there)
        self.marks = MarkTable(limits, self.changes[1], expire_there=expire_there)

    @property
    def changed(self) -> bool:
        return any(self.changes)

    def take(self) -> Sequence[Mapping[str, Row | None]]:
        """Return the changes of tasks and marks, and start empty collections."""
        return [changes.take() for changes in self.changes]

    def give_back(self, taken: Sequence[Mapping[str, Row | None]]) -> None:
        """Take back changes that could not be written; later changes win."""
        for changes, rows in zip(self.changes, taken, strict=True):
            changes.give_back(rows)

    def expire(self) -> None:
        self.tasks.expire()
        self.marks.expire()

    def put_all_again(self) -> None:
        """Have every record written again, into an empty storage."""
        self.tasks.put_all_again()
        self.marks.put_all_again()


def mark_id(kind: str, mark: str) -> str:
    return f"{kind} {mark}"
