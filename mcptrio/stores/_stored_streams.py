"""A stream of a durable store, as far as memory holds it."""

from __future__ import annotations

from array import array

from msgspec import field

from mcptrio.stores._backend import StreamChange
from mcptrio.stores._streams import MemoryStream


class StoredStream(MemoryStream):
    """A stream whose older events are in the backend only. Events above `written` are in memory only."""

    sizes: array[int] = field(default_factory=lambda: array("I"))  # of the events floor+1 … last, while it is running
    tail_size: int = 0
    written: int = 0  # the newest event that is stored
    saved_floor: int = 0  # the floor in the backend
    stored: bool = False  # the backend may know this stream
    call: bytes | None = None  # see `EventStore.begin`
    epoch: int = 0  # the fencing epoch of its session

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

    def take_change(self) -> StreamChange:
        """Return what is to be written."""
        self.stored = True
        start = max(self.written, self.floor)  # unwritten events are in the tail, or were dropped
        events = self.tail[start - self.tail_floor :]
        trims = self.floor > self.saved_floor
        return StreamChange(
            self.key,
            self.serial,
            self.floor,
            trims,
            start,
            events,
            self.size,
            self.written == 0,
            self.ended is not None,
            None if self.ended is not None else self.call,
            self.epoch,
        )

    def cut(self, seq: int) -> None:
        """Discard every event after number `seq`."""
        lost = sum(map(len, self.tail[seq - self.tail_floor :]))
        del self.tail[seq - self.tail_floor :]
        del self.sizes[seq - self.floor :]
        self.size -= lost
        self.tail_size -= lost
        self.last = seq
