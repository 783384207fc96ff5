"""One SSE stream of a session, and the connections that follow it.

Theory of operation. The store is the stream: a session appends to it and never waits; a connection is a cursor that
moves over it. What was missed and what comes are one sequence, so a client that resumes sees every event once and in
order, whatever happened to its connection. A stream has at most one connection: a new one takes over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio
from attrs import define

from mcptrio import telemetry
from mcptrio._wire.sse import COMMENT, encode_event
from mcptrio.stores.base import Event, EventStore, Follower, LaggedBehind, StreamKey

from .config import HttpConfig
from .cursor import EventIds

_CHUNK: Final = 64 * 1024
_NOTIFICATION: Final = b'{"jsonrpc":"2.0","method":'


def is_notification(data: bytes) -> bool:
    """Whether an encoded frame of ours is a notification, which is the one kind that may be lost."""
    return data.startswith(_NOTIFICATION)


@define(eq=False, repr=False, kw_only=True)
class StreamLog:
    """A stream that is still written to.

    Bounded without a queue of its own: while a connection lags behind by `outbox_events` or `outbox_bytes` those who
    call `room` wait, and while there is no connection further notifications are dropped. Answers and requests always
    enter.
    """

    key: StreamKey
    store: EventStore
    config: HttpConfig
    hub: telemetry.Hub
    ids: EventIds
    last: int = 0
    """The number of the newest event."""
    taken: int = 0
    """The number of the newest event that a connection has taken; proof of nothing, the client's cursor counts."""
    ended: bool = False
    expected: bool = False
    """Its first connection is about to come."""
    connection: Connection | None = None
    _unread: int = 0  # bytes appended since a connection had everything
    _room: trio.lowlevel.ParkingLot | None = None

    @property
    def full(self) -> bool:
        return self.last - self.taken >= self.config.outbox_events or self._unread >= self.config.outbox_bytes

    @property
    def followed(self) -> bool:
        return self.connection is not None or self.expected

    def append(self, data: bytes, *, last: bool = False) -> None:
        if self.ended:
            return
        if self.full and not self.followed and not last and is_notification(data):
            if self.hub:
                self.hub.emit(telemetry.Dropped(kind="outbox_full", session=self.key.session))
                self.hub.emit(telemetry.LimitHit(name="outbox", session=self.key.session))
            return
        self._unread += len(data)
        self.ended = last
        self.last = self.store.append(self.key, data, last=last)

    def end(self) -> None:
        """Nothing more will be appended."""
        if not self.ended:
            self.ended = True
            self.store.finish(self.key)
        self._make_room()

    async def room(self) -> None:
        if self.full and self.followed and not self.ended and self.hub:
            self.hub.emit(telemetry.LimitHit(name="outbox", session=self.key.session))
        while self.full and self.followed and not self.ended:
            if self._room is None:
                self._room = trio.lowlevel.ParkingLot()
            await self._room.park()

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.unpark_all()

    # -- for the connection

    def took(self, seq: int) -> None:
        self.taken = seq
        if seq >= self.last:
            self._unread = 0
        if self._room is not None and not self.full:
            self._make_room()

    def lost(self, connection: Connection | None) -> None:
        if self.connection is connection:
            self.connection = None
            self.expected = False
            self._make_room()


@define(eq=False, repr=False, kw_only=True)
class Connection:
    """One HTTP response that follows a stream: its `Events`.

    Owns: its follower.   Lent: the log, where the stream is still written to.
    """

    session: str
    ids: EventIds | None
    """None: events have no ids, the stream cannot be resumed."""
    follower: Follower
    config: HttpConfig
    hub: telemetry.Hub
    log: StreamLog | None = None
    prologue: bytes = b""
    on_detach: Callable[[str], None] | None = None
    detached: str | None = None
    _epilogue: bytes = b""
    _over: bool = False

    def __attrs_post_init__(self) -> None:
        if self.log is not None:
            self.log.connection = self
            self.log.expected = False
            self.log.took(self.follower.cursor)

    @property
    def over(self) -> bool:
        return self._over and not self.prologue

    async def next(self) -> bytes | None:
        chunk, self.prologue = self.prologue, b""
        if self._over:
            return chunk or None
        try:
            if not chunk:
                with trio.move_on_after(self.config.heartbeat):
                    chunk = self._encode(await self.follower.receive())
                if not chunk:
                    return COMMENT
            while len(chunk) < _CHUNK:
                chunk += self._encode(self.follower.receive_nowait())
        except trio.WouldBlock:
            self._took()
            return chunk
        except (trio.EndOfChannel, trio.ClosedResourceError):
            # The end: the stream is over, or the server closes the connection and the client may come back.
            self._over = True
            chunk += self._epilogue
        except LaggedBehind:
            self._over = True  # coming back will not help it, and it is told so then
            if self.hub:
                self.hub.emit(telemetry.LimitHit(name="replay_store", session=self.session))
        self._took()
        return chunk or None

    def _took(self) -> None:
        if self.log is not None and self.log.connection is self:
            self.log.took(self.follower.cursor)

    def _encode(self, event: Event) -> bytes:
        return encode_event(event.data, id=None if self.ids is None else self.ids.of(event.seq))

    def say_retry(self) -> None:
        """When this connection ends it is on purpose: the client is told how long to wait before it comes back."""
        # 2025-11-25 basic/transports: it SHOULD send an SSE event with a `retry` field before closing the connection
        self._epilogue = encode_event(None, retry=self.config.retry_ms)

    def close(self) -> None:
        """End this connection and not the stream."""
        self.follower.close()

    def detach(self, cause: str) -> None:
        if self.detached is not None:
            return
        self.detached = cause
        self._over = True
        self.follower.close()
        if self.log is not None:
            self.log.lost(self)
        if self.on_detach is not None:
            self.on_detach(cause)
        if self.hub:
            self.hub.emit(telemetry.StreamClosed(session=self.session, cause=cause))
