"""The newest events of each stream, held in memory within bounds, so that live followers need no disk."""

from __future__ import annotations

from collections.abc import Iterable

from mcptrio.stores._stored import StoredStream
from mcptrio.stores._streams import Ledger
from mcptrio.stores.base import StoreLimits


class Tails:
    """Which streams of a durable store hold events in memory, and how many bytes that is."""

    def __init__(self, limits: StoreLimits, ledger: Ledger[StoredStream]) -> None:
        self.limits = limits
        self.ledger = ledger
        self.streams: dict[StoredStream, None] = {}  # oldest first
        self.total = 0

    def weigh(self, stream: StoredStream, before: int) -> None:
        """The tail of a stream, of `before` bytes until now, has grown or shrunk."""
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
        """Keep to the bounds. Unwritten events go only if `lossy`, and then the stream has lost them."""
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
            self.ledger.drop_to(stream, seq)
        else:
            stream.drop_tail_to(stream.written)
        self.weigh(stream, before)
