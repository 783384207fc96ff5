"""The parts that stores share: a stream, a cursor on it, the index of all streams, and a nursery for their tasks.

A stream is a window on a sequence of numbers:

    1 … floor │ floor+1 … tail_floor │ tail_floor+1 … visible │ visible+1 … last
    removed   │ in the file only     │ in memory too          │ accepted, not stored yet: hidden

In a memory store the part in the file is empty and every event is visible at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from sys import maxsize
from typing import Any, Generic, TypeVar, cast

import trio
from msgspec import field

from mcptrio._actors.shares import Shares
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import exact
from mcptrio.errors import LocalProtocolError, Overloaded
from mcptrio.stores.base import LaggedBehind, StoredEvent, StoreLimits, StreamKey, UnknownCursor


class MemoryStream(Entity):
    """One stream, all of it in memory. Ten thousand idle streams are common, so empty parts cost almost nothing."""

    key: StreamKey
    serial: int
    floor: int = 0
    last: int = 0
    visible: int = 0
    size: int = 0  # bytes of the events floor+1 … last
    ended: float | None = None  # the time of its end
    tail: list[bytes] = field(default_factory=list)
    tail_floor: int = 0
    fenced: bool = False  # another process writes it now
    keep_after: int | None = None  # later events were not read by the connected client: they are not dropped
    _waiting: trio.lowlevel.ParkingLot | None = None

    def add(self, data: bytes) -> None:
        self.tail.append(data)
        self.size += len(data)
        self.last += 1

    def size_of(self, seq: int) -> int:
        return len(self.tail[seq - self.floor - 1])

    def drop_to(self, seq: int) -> None:
        """Drop every event up to number `seq`."""
        count = seq - self.floor
        self.size -= sum(map(len, self.tail[:count]))
        del self.tail[:count]
        self.floor = self.tail_floor = seq

    def trim(self, limits: StoreLimits) -> None:
        """Drop the oldest events until the stream is within its bounds; the newest one always stays."""
        floor, size = self.floor, self.size
        if self.last - floor <= limits.stream_events and size <= limits.stream_bytes:
            return
        end = self.droppable(self.last)
        while floor < end and (
            self.last - floor > limits.stream_events or (size > limits.stream_bytes and self.last - floor > 1)
        ):
            floor += 1
            size -= self.size_of(floor)
        if floor > self.floor:
            self.drop_to(floor)

    def droppable(self, upto: int) -> int:
        """Return the number of the newest event, `upto` at most, that may be dropped."""
        return max(self.floor, upto if self.keep_after is None else min(upto, self.keep_after))

    def wake(self) -> None:
        if self._waiting:
            self._waiting.unpark_all()

    async def changed(self) -> None:
        """Wait for `wake`. There is no checkpoint between checking the stream and waiting, so no change is missed."""
        if self._waiting is None:
            self._waiting = trio.lowlevel.ParkingLot()
        await self._waiting.park()


Fetch = Callable[[MemoryStream, int], Awaitable[list[bytes]]]
"""Reads the events after a cursor from disk: at least one, or it raises LaggedBehind."""


class StreamFollower(Entity):
    """A cursor on one stream, see `Follower`. It refers to the stream; the stream does not refer to it."""

    _stream: MemoryStream
    cursor: int
    _fetch: Fetch | None = None
    _fetched: deque[bytes] | None = None  # read from the file: the events right after the cursor
    _closed: bool = False

    def receive_nowait(self) -> StoredEvent:
        stream, cursor = self._stream, self.cursor
        if self._closed:
            raise trio.ClosedResourceError
        if self._fetched:
            data = self._fetched.popleft()
        elif cursor < stream.floor:
            raise LaggedBehind(f"event {cursor + 1} of a stream is no longer kept; the oldest is {stream.floor + 1}")
        elif cursor < stream.visible:
            if cursor < stream.tail_floor:
                raise trio.WouldBlock
            data = stream.tail[cursor - stream.tail_floor]
        elif stream.ended is not None and cursor >= stream.last:
            raise trio.ClosedResourceError if stream.fenced else trio.EndOfChannel
        else:
            raise trio.WouldBlock
        self.cursor = cursor + 1
        return StoredEvent(cursor + 1, data)

    async def receive(self) -> StoredEvent:
        await trio.lowlevel.checkpoint_if_cancelled()
        waited = False
        while True:
            try:
                event = self.receive_nowait()
            except trio.WouldBlock:
                if self._fetch is not None and self.cursor < min(self._stream.visible, self._stream.tail_floor):
                    self._fetched = deque(await self._fetch(self._stream, self.cursor))
                else:
                    await self._stream.changed()
                    waited = True
            else:
                if not waited:  # the event is consumed, so a cancellation waits for the next call
                    await trio.lowlevel.cancel_shielded_checkpoint()
                return event

    def close(self) -> None:
        self._closed = True
        self._fetched = None
        self._stream.wake()

    def __aiter__(self) -> StreamFollower:
        return self

    async def __anext__(self) -> StoredEvent:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None


S = TypeVar("S", bound=MemoryStream)


class StreamIndex(Entity, Generic[S]):
    """The streams of a store, their total size, and the order in which they are evicted. It has no clock.

    The owner that has most makes room. An owner is large by many streams or by large ones: a stream counts as its bytes
    and an average stream.
    """

    limits: StoreLimits
    _make: Callable[[StreamKey, int], S]
    size: int = 0
    count: int = 0
    serial: int = 0
    """The largest serial of a stream."""
    _sessions: dict[str, dict[str, S]] = field(default_factory=dict)
    _ended: dict[S, None] = field(default_factory=dict)  # in the order in which they ended
    _shares: Shares = field(default_factory=lambda: Shares(maxsize))  # by bytes; `limits` says when there is no room

    def __iter__(self) -> Iterator[S]:
        for streams in self._sessions.values():
            yield from streams.values()

    def find(self, key: StreamKey) -> S | None:
        streams = self._sessions.get(key.session)
        return None if streams is None else streams.get(key.stream)

    def of_session(self, session: str) -> list[S]:
        return list(self._sessions.get(session, {}).values())

    def writable(self, key: StreamKey) -> S | None:
        """Return the stream to append to; `None` if it does not exist yet."""
        stream = self.find(key)
        if stream is not None and stream.ended is not None:
            raise LocalProtocolError(f"stream {key.stream} is finished: nothing can be added to it")
        return stream

    def begin(self, key: StreamKey, owner: str = "") -> S:
        """Create a stream. The caller has made room for it, see `next_eviction`."""
        if self.count >= self.limits.streams:
            raise Overloaded(f"{self.count} streams are running, which is the limit (StoreLimits.streams)")
        self.serial += 1
        return self.adopt(self._make(key, self.serial), owner)

    def adopt(self, stream: S, owner: str = "") -> S:
        self.serial = max(self.serial, stream.serial)
        self._sessions.setdefault(stream.key.session, {})[stream.key.stream] = stream
        self.count += 1
        self.size += stream.size
        average = self.limits.total_bytes // self.limits.streams
        self._shares.add(owner or stream.key.session, stream, stream.size + average)
        return stream

    def add(self, stream: S, data: bytes, keep_after: int | None = None) -> None:
        before = stream.size
        stream.keep_after = keep_after
        stream.add(exact(data))
        stream.trim(self.limits)
        self.resized(stream, stream.size - before)

    def drop_to(self, stream: S, seq: int) -> None:
        before = stream.size
        stream.drop_to(seq)
        self.resized(stream, stream.size - before)

    def resized(self, stream: S, change: int) -> None:
        """Account for a change of a stream's size."""
        self.size += change
        self._shares.resize(stream, change)

    def end(self, stream: S, now: float) -> None:
        if stream.ended is None:
            stream.ended = now
            self._ended[stream] = None

    def reopen(self, stream: S) -> None:
        """Let an ended stream go on."""
        stream.ended = None
        self._ended.pop(stream, None)

    def remove(self, stream: S) -> None:
        streams = self._sessions[stream.key.session]
        del streams[stream.key.stream]
        if not streams:
            del self._sessions[stream.key.session]
        self._ended.pop(stream, None)
        self._shares.remove(stream)
        self.count -= 1
        self.size -= stream.size

    def expired(self, now: float) -> list[S]:
        """Return the streams that ended more than `stream_age` ago."""
        found = []
        for stream in self._ended:
            if stream.ended is None or now - stream.ended < self.limits.stream_age:
                break
            found.append(stream)
        return found

    def next_eviction(self) -> S | None:
        """Return the finished stream to evict before another can begin, if the store is full."""
        if self.count < self.limits.streams or not self._ended:
            return None
        of_largest = (stream for stream in self._of(self._shares.largest()) if stream.ended is not None)
        return next(of_largest, None) or next(iter(self._ended))

    def _of(self, owner: str) -> Iterable[S]:
        return cast(Iterable[S], self._shares.of_owner(owner))

    def choose_evictions(self, keep: S) -> tuple[list[S], list[S]]:
        """Choose what to evict when the store is too large: finished streams, and the history of running ones.

        The owner that has most loses its finished streams first, then the history of its running ones. It frees an
        eighth of the store, so that this long loop is rare. `keep` is the stream that is growing.
        """
        goal = self.limits.total_bytes - self.limits.total_bytes // 8
        finished: list[S] = []
        running: list[S] = []
        size = self.size
        for owner in self._shares.largest_first():
            for chosen, ended in ((finished, True), (running, False)):
                for stream in self._of(owner):
                    if size <= goal:
                        return finished, running
                    if stream is not keep and stream.size and (stream.ended is not None) is ended:
                        chosen.append(stream)
                        size -= stream.size
        return finished, running


def check_cursor(stream: MemoryStream | None, after: int) -> MemoryStream:
    """Return the stream if it can be followed from a position without a gap; raise `UnknownCursor` otherwise."""
    if stream is None:
        raise UnknownCursor("there is no such stream")
    if not stream.floor <= after <= stream.visible:
        raise UnknownCursor(
            f"a stream cannot be followed from event {after}; possible: {stream.floor} to {stream.visible}"
        )
    return stream


@asynccontextmanager
async def open_tasks(*tasks: Callable[[], Any]) -> AsyncIterator[None]:
    """Run tasks during the block and cancel them at its end. A single exception is raised without a group."""
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(task)
            yield
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) != 1:
            raise
        failure = group.exceptions[0]
    if failure is not None:
        raise failure
