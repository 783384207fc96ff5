"""What the durable store holds in memory, and how what has changed becomes rows. Nothing here touches the disk."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping

import trio
from msgspec import field

from mcptrio.stores._file import Batch
from mcptrio.stores._streams import Stream
from mcptrio.stores._tasks import Row


class StoredStream(Stream):
    """A stream whose older events are in the file only. Events above `written` are in memory only."""

    sizes: array[int] = field(default_factory=lambda: array("I"))  # of the events floor+1 … last, while it is running
    tail_size: int = 0
    written: int = 0  # the newest event on disk
    saved_floor: int = 0  # the floor on disk
    stored: bool = False  # the file may know this stream

    def add(self, data: bytes) -> None:
        # Stream.add() spelled out: super() costs more than the rest
        self.tail.append(data)
        self.size += len(data)
        self.last += 1
        self.sizes.append(len(data))
        self.tail_size += len(data)

    def size_of(self, seq: int) -> int:
        return self.sizes[seq - self.floor - 1]

    def drop_to(self, seq: int) -> None:
        count = seq - self.floor
        self.size = 0 if seq == self.last else self.size - sum(self.sizes[:count])
        del self.sizes[:count]
        self.floor = seq
        self.drop_tail_to(seq)

    def drop_tail_to(self, seq: int) -> None:
        count = seq - self.tail_floor
        if count > 0:
            self.tail_size -= sum(map(len, self.tail[:count]))
            del self.tail[:count]
            self.tail_floor = seq


class SqliteSessions:
    """The session directory: all of it in memory, every change written with the next commit."""

    def __init__(self, limit: int, changed: Callable[[], None]) -> None:
        self.changes: dict[str, bytes | None] = {}  # not written yet; None: to be removed
        self._limit = limit
        self._changed = changed
        self._records: dict[str, bytes] = {}
        self._earlier: set[str] = set()  # of an earlier process, and not put again by this one

    def put(self, session: str, record: bytes) -> None:
        self._records.pop(session, None)
        self._earlier.discard(session)
        while len(self._records) >= self._limit:
            self.drop(next(iter(self._records)))
        self._records[session] = self.changes[session] = record
        self._changed()

    async def get(self, session: str) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return self._records.get(session)

    def drop(self, session: str) -> None:
        if self._records.pop(session, None) is not None:
            self._earlier.discard(session)
            self.changes[session] = None
            self._changed()

    def drop_earlier(self) -> None:
        for session in tuple(self._earlier):
            self.drop(session)

    def load(self, records: Iterable[tuple[str, bytes]]) -> None:
        self._records.update(records)
        self._earlier.update(self._records)

    def put_all_again(self) -> None:
        self.changes = dict(self._records)


def as_batch(
    dirty: Iterable[StoredStream],
    removed: Iterable[int],
    records: Mapping[str, bytes | None],
    tasks: Mapping[str, Row | None],
) -> Batch:
    """What has changed, as rows: the thread that writes them sees no object that a task may change meanwhile."""
    events: list[tuple[int, int, bytes]] = []
    streams = []
    trimmed = []
    for stream in dirty:
        start = max(stream.written, stream.floor)  # what is not written is in the tail, or gone
        unwritten = stream.tail[start - stream.tail_floor :]
        events += [(stream.serial, seq, data) for seq, data in enumerate(unwritten, start + 1)]
        key = stream.key
        streams.append((stream.serial, key.session, key.stream, stream.floor, stream.last, stream.size))
        if stream.floor > stream.saved_floor:
            trimmed.append((stream.serial, stream.floor))
        stream.stored = True
    return Batch(
        events=events,
        streams=streams,
        trimmed=trimmed,
        removed=[(serial,) for serial in removed],
        records=[(session, record) for session, record in records.items() if record is not None],
        dropped=[(session,) for session, record in records.items() if record is None],
        tasks=[row for row in tasks.values() if row is not None],
        dropped_tasks=[(task,) for task, row in tasks.items() if row is None],
    )
