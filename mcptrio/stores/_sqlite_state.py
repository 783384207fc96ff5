"""The in-memory state of the durable store, and the conversion of changes to rows. It does not touch the disk."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from msgspec import field

from mcptrio.stores._records import Row
from mcptrio.stores._sqlite_file import Batch
from mcptrio.stores._streams import MemoryStream


class StoredStream(MemoryStream):
    """A stream whose older events are in the file only. Events above `written` are in memory only."""

    sizes: array[int] = field(default_factory=lambda: array("I"))  # of the events floor+1 … last, while it is running
    tail_size: int = 0
    written: int = 0  # the newest event on disk
    saved_floor: int = 0  # the floor on disk
    stored: bool = False  # the file may know this stream

    def add(self, data: bytes) -> None:
        # MemoryStream.add() inlined: super() costs more than the rest
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


def as_batch(
    dirty: Iterable[StoredStream],
    removed: Iterable[int],
    sessions: Mapping[str, Row | None],
    tasks: Mapping[str, Row | None],
    marks: Mapping[str, Row | None],
) -> Batch:
    """Convert changes to rows, so that the thread that writes them sees no object that a task may change."""
    events: list[tuple[int, int, bytes]] = []
    streams = []
    trimmed = []
    for stream in dirty:
        start = max(stream.written, stream.floor)  # unwritten events are in the tail, or were dropped
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
        sessions=[(id, record, owner) for id, record, _, owner in filter(None, sessions.values())],
        dropped_sessions=[(session,) for session, row in sessions.items() if row is None],
        tasks=[row for row in tasks.values() if row is not None],
        dropped_tasks=[(task,) for task, row in tasks.items() if row is None],
        marks=[row for row in marks.values() if row is not None],
        dropped_marks=[(mark,) for mark, row in marks.items() if row is None],
    )
