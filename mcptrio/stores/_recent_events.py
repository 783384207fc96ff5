"""The newest events of each stream, kept in memory within bounds, so that live followers do not read the disk."""

from __future__ import annotations

from collections.abc import Iterable

from mcptrio.stores._stored_streams import StoredStream
from mcptrio.stores._streams import StreamIndex
from mcptrio.stores.base import StoreLimits


class RecentEvents:
    """The streams of a durable store that have events in memory, and the total size of these events."""

    def __init__(self, limits: StoreLimits, index: StreamIndex[StoredStream]) -> None:
        self.limits = limits
        self.index = index
        self.streams: dict[StoredStream, None] = {}  # oldest first
        self.total = 0

    def weigh(self, stream: StoredStream, before: int) -> None:
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
        self.weigh(stream, before)
