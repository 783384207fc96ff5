"""The streams of a durable store, as far as memory holds them, and which of them the next commit writes.

Streams of a session that was released are not here: the backend returns them when the session is claimed.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Set

import trio

from mcptrio.stores._backend import StreamRow
from mcptrio.stores._recent_events import RecentEvents
from mcptrio.stores._stored_streams import StoredStream
from mcptrio.stores._streams import StreamIndex
from mcptrio.stores.base import StoreLimits, StreamKey

logger = logging.getLogger(__name__)

REMOVED_AT_ONCE = 256  # streams deleted in one commit, so that no commit is long


class StoredStreams:
    """The lower half of `GroupCommit`: it changes streams in memory and never waits for the backend."""

    def __init__(self, limits: StoreLimits) -> None:
        self.limits = limits
        self.on_fenced: Callable[[str], None] = lambda session: None
        self._reset()

    def _reset(self) -> None:
        self._index: StreamIndex[StoredStream] = StreamIndex(self.limits, StoredStream)
        self._recent = RecentEvents(self.limits, self._index)
        self._dirty: dict[StoredStream, None] = {}  # changed since the last commit began
        self._removed: list[tuple[StreamKey, int]] = []

    def _changed(self) -> None:
        """Have the writer look for changes."""
        raise NotImplementedError

    # -- streams of other processes, and of sessions that were released

    def _adopt(self, row: StreamRow, owner: str = "") -> StoredStream:
        """Make the stored stream of another process known, or one of a session that had left the memory."""
        # An earlier one was removed and begun again; the process died before the removal was written.
        if (earlier := self._index.find(row.key)) is not None:
            self._remove(earlier)
        stream = StoredStream(
            row.key, row.serial, row.floor, row.last, visible=row.last, size=row.size, tail_floor=row.last
        )
        stream.written, stream.saved_floor, stream.call = row.last, row.floor, row.call
        stream.sizes.extend(row.sizes)
        self._index.adopt(stream, owner)
        if row.age is not None:
            self._index.end(stream, trio.current_time() - row.age)
        return stream

    def _unload(self, session: str) -> None:
        """Drop the streams of a released session from memory; the backend keeps them."""
        for stream in self._index.of_session(session):
            self._index.remove(stream)
            self._recent.forget(stream)

    def _continue(self, stream: StoredStream) -> int:
        """Let this process append to a stream that another one began."""
        stream.stored = True
        if len(stream.sizes) < stream.last - stream.floor:  # their sizes are not known: only their number counts
            stream.sizes = array("I", [0] * (stream.last - stream.floor))
            self._index.resized(stream, -stream.size)
            stream.size = 0
        self._index.reopen(stream)
        return stream.last

    # -- in memory

    def _begin(self, key: StreamKey, owner: str = "") -> StoredStream:
        while (crowded := self._index.crowded()) is not None:
            self._remove(crowded)
        stream = self._index.begin(key, owner)
        self._dirty[stream] = None
        return stream

    def _remove(self, stream: StoredStream) -> None:
        """Remove a stream. Open followers still get its events in memory, stored or not: the session is over."""
        self._index.remove(stream)
        self._dirty.pop(stream, None)
        self._recent.forget(stream)
        if stream.stored:
            self._removed.append((stream.key, stream.serial))
        stream.floor = stream.tail_floor
        self._show(stream, stream.last)
        self._changed()

    def _lose_weight(self, growing: StoredStream) -> None:
        finished, running = self._index.overweight(growing)
        for stream in finished:
            self._remove(stream)
        for stream in running:
            before = stream.tail_size
            self._index.drop_to(stream, stream.droppable(stream.visible))
            self._recent.weigh(stream, before)
            self._dirty[stream] = None
            stream.wake()

    def _show(self, stream: StoredStream, upto: int) -> None:
        stream.visible = max(stream.visible, upto)
        stream.wake()

    # -- replies of the backend

    def _take_removed(self, written: Set[StreamKey]) -> list[tuple[StreamKey, int]]:
        """Return some of the removals, and each of a stream whose name is about to be written again."""
        some, rest = self._removed[:REMOVED_AT_ONCE], self._removed[REMOVED_AT_ONCE:]
        self._removed = [removal for removal in rest if removal[0] not in written]
        return some + [removal for removal in rest if removal[0] in written]

    def _fence(self, stream: StoredStream) -> None:
        """End a stream that another process writes now: discard what was not shown, and delete nothing."""
        logger.warning("a stream of session %s is written by another process now", stream.key.session)
        stream.fenced, stream.stored = True, False
        self._dirty.pop(stream, None)
        if self._index.find(stream.key) is stream:
            before, size = stream.tail_size, stream.size
            stream.cut(stream.visible)
            self._index.resized(stream, stream.size - size)
            self._recent.weigh(stream, before)
            self._index.end(stream, trio.current_time())
        stream.wake()

    def _rewind(self, stream: StoredStream, newest: int) -> None:
        """Write the end of a stream again that the backend has lost; a gap that memory cannot fill is cut off."""
        if self._index.find(stream.key) is not stream:
            return
        logger.error("the store has lost events of session %s; writing them again", stream.key.session)
        stream.written, stream.saved_floor = newest, min(stream.saved_floor, newest)
        if newest < stream.tail_floor:
            self._index.drop_to(stream, stream.tail_floor)
            stream.wake()
        self._dirty[stream] = None
