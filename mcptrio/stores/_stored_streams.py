"""The streams of a durable store, as far as memory holds them, and which of them the next commit writes.

Streams of a session that was released are not here: the backend returns them when the session is claimed.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Collection, Iterable

import trio
from msgspec import field

from mcptrio.stores._backend import StreamChange, StreamRow
from mcptrio.stores._streams import MemoryStream, StreamIndex
from mcptrio.stores.base import StoreLimits, StreamKey

logger = logging.getLogger(__name__)

REMOVED_AT_ONCE = 256  # streams deleted in one commit, so that no commit is long


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


class RecentEvents:
    """The newest events of each stream, kept in memory within bounds, so that live followers do not read the disk."""

    def __init__(self, limits: StoreLimits, index: StreamIndex[StoredStream]) -> None:
        self.limits = limits
        self.index = index
        self.streams: dict[StoredStream, None] = {}  # oldest first
        self.total = 0

    def resized(self, stream: StoredStream, before: int) -> None:
        """Account for a change of a stream's tail, which had `before` bytes."""
        self.total += stream.tail_size - before
        if stream.tail:
            self.streams[stream] = None
        else:
            self.streams.pop(stream, None)

    def forget(self, stream: StoredStream) -> None:
        if stream in self.streams:
            del self.streams[stream]
            self.total -= stream.tail_size

    def trim(self, streams: Iterable[StoredStream], *, lossy: bool) -> None:
        """Drop events from memory until the bounds hold. With `lossy`, unwritten events are dropped too, and lost."""
        limits = self.limits
        for stream in streams:
            floor, size = stream.tail_floor, stream.tail_size
            while stream.last - floor > limits.tail_events or (size > limits.tail_bytes and stream.last - floor > 1):
                size -= len(stream.tail[floor - stream.tail_floor])
                floor += 1
            self._drop(stream, floor, lossy)
        if self.total > limits.tail_total:
            for stream in list(self.streams):
                self._drop(stream, stream.visible, lossy)
                if self.total <= limits.tail_total * 7 // 8:
                    break

    def _drop(self, stream: StoredStream, seq: int, lossy: bool) -> None:
        if stream not in self.streams:
            return
        before = stream.tail_size
        if seq <= stream.written:
            stream.drop_tail_to(seq)
        elif lossy:
            self.index.drop_to(stream, stream.droppable(seq))
        else:
            stream.drop_tail_to(stream.written)
        self.resized(stream, before)


class StoredStreams:
    """The streams of a durable store. It changes them in memory and never waits for the backend.

    `take`, `give_back` and `put_all_again` are for the writer, as those of `Tables` and `HomeSessions`.
    """

    def __init__(self, limits: StoreLimits, changed: Callable[[], None]) -> None:
        self._limits = limits
        self._changed = changed
        """Has the writer look for changes."""
        self.epoch_of: Callable[[str], int] = lambda session: 0
        """Returns the fencing epoch of a session."""
        self.may_show: Callable[[StoredStream, int], bool] = lambda stream, upto: True
        """Returns whether followers may see the events up to a number, which may not be stored yet."""
        self.reset()

    def reset(self) -> None:
        self.index: StreamIndex[StoredStream] = StreamIndex(self._limits, StoredStream)
        self.recent = RecentEvents(self._limits, self.index)
        self.dirty: dict[StoredStream, None] = {}  # changed since the last commit began
        self._removed: list[tuple[StreamKey, int]] = []

    # -- changes in memory

    def begin(self, key: StreamKey, owner: str = "", call: bytes | None = None) -> StoredStream:
        while (evicted := self.index.next_eviction()) is not None:
            self.remove(evicted)
        stream = self.index.begin(key, owner)
        stream.epoch, stream.call = self.epoch_of(key.session), call
        self.dirty[stream] = None
        return stream

    def append(self, stream: StoredStream, data: bytes, *, last: bool, keep_after: int | None) -> None:
        before = stream.tail_size
        self.index.add(stream, data, keep_after)
        self.recent.resized(stream, before)
        self.dirty[stream] = None
        if last:
            self.index.end(stream, trio.current_time())
        if self.index.size > self._limits.total_bytes:
            self._free_memory(stream)

    def finish(self, stream: StoredStream) -> None:
        """End a stream that gets no further events."""
        self.index.end(stream, trio.current_time())
        self.dirty[stream] = None
        self._changed()
        stream.wake()

    def forget(self, session: str) -> None:
        """Remove the streams of a session that is over."""
        for stream in self.index.of_session(session):
            self.index.end(stream, trio.current_time())
            self.remove(stream)

    def remove(self, stream: StoredStream) -> None:
        """Remove a stream. Open followers still get its events in memory, stored or not: the session is over."""
        self.index.remove(stream)
        self.dirty.pop(stream, None)
        self.recent.forget(stream)
        if stream.stored:
            self._removed.append((stream.key, stream.serial))
        stream.floor = stream.tail_floor
        self.show(stream, stream.last)
        self._changed()

    def _free_memory(self, growing: StoredStream) -> None:
        finished, running = self.index.choose_evictions(growing)
        for stream in finished:
            self.remove(stream)
        for stream in running:
            before = stream.tail_size
            self.index.drop_to(stream, stream.droppable(stream.visible))
            self.recent.resized(stream, before)
            self.dirty[stream] = None
            stream.wake()

    def show(self, stream: StoredStream, upto: int) -> None:
        """Let followers see the events up to a number."""
        if self.may_show(stream, upto):
            stream.visible = max(stream.visible, upto)
            stream.wake()

    def show_unstored(self, streams: Collection[StoredStream]) -> None:
        """Let followers see events that are not stored. What memory cannot hold of them is lost."""
        for stream in streams:
            self.show(stream, stream.last)
        self.recent.trim(streams, lossy=True)

    # -- streams of other processes, and of sessions that were released

    def adopt(self, row: StreamRow, owner: str = "") -> StoredStream:
        """Make the stored stream of another process known, or one of a session that had left the memory."""
        # An earlier one was removed and begun again; the process died before the removal was written.
        if (earlier := self.index.find(row.key)) is not None:
            self.remove(earlier)
        stream = StoredStream(
            row.key, row.serial, row.floor, row.last, visible=row.last, size=row.size, tail_floor=row.last
        )
        stream.written, stream.saved_floor, stream.call, stream.stored = row.last, row.floor, row.call, True
        stream.sizes.extend(row.sizes)
        self.index.adopt(stream, owner)
        if row.age is not None:
            self.index.end(stream, trio.current_time() - row.age)
        return stream

    def reopen(self, stream: StoredStream) -> int:
        """Let this process append to a stream that another one began."""
        stream.stored, stream.epoch = True, self.epoch_of(stream.key.session)
        if len(stream.sizes) < stream.last - stream.floor:  # their sizes are not known: only their number counts
            stream.sizes = array("I", [0] * (stream.last - stream.floor))
            self.index.resized(stream, -stream.size)
            stream.size = 0
        self.index.reopen(stream)
        return stream.last

    def unload(self, session: str) -> None:
        """Drop the streams of a released session from memory; the backend keeps them."""
        for stream in self.index.of_session(session):
            self.index.remove(stream)
            self.recent.forget(stream)

    def fence(self, stream: StoredStream) -> None:
        """End a stream that another process writes now: discard what was not shown, and delete nothing."""
        logger.warning("a stream of session %s is written by another process now", stream.key.session)
        stream.fenced, stream.stored = True, False
        self.dirty.pop(stream, None)
        if self.index.find(stream.key) is stream:
            before, size = stream.tail_size, stream.size
            stream.cut(stream.visible)
            self.index.resized(stream, stream.size - size)
            self.recent.resized(stream, before)
            self.index.end(stream, trio.current_time())
        stream.wake()

    # -- for the writer

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        return bool(self.dirty or self._removed)

    def take(self) -> tuple[list[StoredStream], list[tuple[StreamKey, int]]]:
        """Return the streams to write and those to remove: some, and each whose name is about to be written again."""
        dirty, self.dirty = list(self.dirty), {}
        written = {stream.key for stream in dirty}
        some, rest = self._removed[:REMOVED_AT_ONCE], self._removed[REMOVED_AT_ONCE:]
        self._removed = [removal for removal in rest if removal[0] not in written]
        return dirty, some + [removal for removal in rest if removal[0] in written]

    def give_back(self, dirty: list[StoredStream], removed: list[tuple[StreamKey, int]]) -> None:
        """Take back what could not be written."""
        self.dirty = {stream: None for stream in dirty if self.index.find(stream.key) is stream} | self.dirty
        self._removed = removed + self._removed

    def rewind(self, stream: StoredStream, newest: int) -> None:
        """Write the end of a stream again that the backend has lost; a gap that memory cannot fill is cut off."""
        if self.index.find(stream.key) is not stream:
            return
        logger.error("the store has lost events of session %s; writing them again", stream.key.session)
        stream.written, stream.saved_floor = newest, min(stream.saved_floor, newest)
        if newest < stream.tail_floor:
            self.index.drop_to(stream, stream.tail_floor)
            stream.wake()
        self.dirty[stream] = None

    def put_all_again(self) -> None:
        """Write everything that memory holds into a storage that has lost it."""
        self._removed.clear()
        for stream in list(self.index):
            stream.written = stream.saved_floor = 0
            stream.stored = False
            if stream.ended is not None and not stream.tail:
                self.remove(stream)
            else:
                self.index.drop_to(stream, stream.tail_floor)
                self.dirty[stream] = None
                stream.wake()
