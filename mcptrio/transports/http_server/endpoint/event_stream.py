"""One SSE stream of a session, its event ids, and the responses that follow it.

Theory of operation. The store is the stream: a session appends to it and never waits; a response is a cursor that moves
over it. Replay and live delivery are one sequence, so a client that resumes sees every event once and in order,
whatever happened to its connection. A stream has at most one response: a new one takes over.

An event id is `stream.number.mac`. The MAC covers session, stream and number with the secret of the store, so an id
that was made up, or that belongs to another session, names no event; checking it needs no look-up.
"""

from __future__ import annotations

import math
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import blake2b
from hmac import compare_digest
from typing import ClassVar, Final, Protocol

import trio
from attrs import define, field

from mcptrio import telemetry
from mcptrio._actors.unread import Unread
from mcptrio._wire.jsonrpc import Error, encode
from mcptrio._wire.sse import COMMENT, encode_event
from mcptrio.errors import INTERNAL_ERROR
from mcptrio.stores.base import EventStore, Follower, LaggedBehind, StoredEvent, StreamKey
from mcptrio.transports.http_server.config import HttpConfig

from .message import Events, HttpRequest, Plain, Stream

LOST: Final = "the call has run, but its answer was dropped before it was sent: the store was full or failed"
_CHUNK: Final = 64 * 1024
_PAUSE: Final = 0.02  # seconds between two pieces of a busy stream: the events of that time leave in one write
_CURSOR: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,15})\.([A-Za-z0-9_-]{16})", re.ASCII)
_NOTIFICATION: Final = b'{"jsonrpc":"2.0","method":'


def is_notification(data: bytes) -> bool:
    """Return whether an encoded frame is a notification: the only kind that may be dropped."""
    return data.startswith(_NOTIFICATION)


@define(eq=False, repr=False)
class EventIds:
    """The ids of the events of one stream."""

    secret: bytes
    session: str
    stream: str
    _prefix: str = field(init=False)
    _mac: blake2b = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._prefix = f"{self.stream}."
        self._mac = blake2b(key=self.secret[:64], digest_size=12, person=b"mcptrio.event")
        # Lengths first, so that no other pair of session and stream gives the same bytes.
        session = self.session.encode()
        self._mac.update(b"%d:%b%b:" % (len(session), session, self.stream.encode()))

    def of(self, seq: int) -> str:
        """Return the id of event number `seq`; 0 stands before the first one."""
        mac = self._mac.copy()
        mac.update(b"%d" % seq)
        return f"{self._prefix}{seq}.{urlsafe_b64encode(mac.digest()).decode()}"


def read_cursor(text: str, *, secret: bytes, session: str) -> tuple[str, int] | None:
    """Return the stream and number that an id names, or None if it is no id of this session."""
    match = _CURSOR.fullmatch(text)
    if match is None:
        return None
    stream, number = match[1], int(match[2])
    if not compare_digest(EventIds(secret, session, stream).of(number), text):
        return None
    return stream, number


class StreamConnection(Protocol):
    """The connection of a client that follows a stream: here, or at another worker."""

    @property
    def takes_all(self) -> bool:
        """Whether it counts as having taken every event, so that it holds nothing back."""
        ...

    def say_retry(self) -> None: ...
    def close(self) -> None: ...
    def detach(self, cause: str) -> None: ...


@define(eq=False, repr=False, kw_only=True)
class StreamLog:
    """A stream that is still written to.

    It needs no queue of its own: while its response lags by `outbox_events` or `outbox_bytes`, `room` blocks; without a
    response further notifications are dropped. Answers and requests always enter.
    """

    key: StreamKey
    store: EventStore
    config: HttpConfig
    hub: telemetry.Hub
    ids: EventIds
    owner: str
    unread: Unread
    last: int = 0
    """The number of the newest event."""
    taken: int = 0
    """The number of the newest event that a response has taken. It proves nothing: only the client's cursor does."""
    ended: bool = False
    expected: bool = False
    """Its first response is about to start."""
    connection: StreamConnection | None = None
    _behind: int = 0  # bytes appended since a connection had everything
    _charged: int = 0  # those of them that wait for a connection
    _room: trio.lowlevel.ParkingLot | None = None
    _urgent: int = 0  # the number of the newest event that the client waits for: an answer or a request
    _pause: trio.CancelScope | None = None

    @property
    def full(self) -> bool:
        if self.last - self.taken >= self.config.outbox_events or self._behind >= self.config.outbox_bytes:
            return True
        return self._charged > 0 and not self.unread.room.has_room(self.owner)

    @property
    def followed(self) -> bool:
        return self.connection is not None or self.expected

    def begin(self, call: bytes | None = None) -> None:
        """Create the stream in the store, with the call that it answers if the store is durable.

        Raises:
            Overloaded: the store has no room for another one.
        """
        self.store.begin(self.key, owner=self.owner, call=call)

    def append(self, data: bytes, *, last: bool = False) -> None:
        if self.ended:
            return
        full, followed, urgent = self.full, self.followed, last or not is_notification(data)
        if full and not followed and not urgent:
            if self.hub:
                self.hub.emit(telemetry.Dropped(kind="outbox_full", session=self.key.session))
                self.hub.emit(telemetry.LimitHit(name="outbox", session=self.key.session))
            return
        # A connected client gets everything that it has not received, whatever the store keeps for others.
        # Notifications that nothing holds back while it lags are the exception: they would have no bound.
        keep = followed and (urgent or not full)
        self._behind += len(data)
        self.ended = last
        self.last = self.store.append(self.key, data, last=last, keep_after=self.taken if keep else None)
        if followed:
            self._charged += len(data)
            self.unread.add(self, len(data))
        if self.connection is not None and self.connection.takes_all:
            self.took(self.last)
        if urgent:
            self._urgent = self.last
            self._hurry()

    def end(self, *, goes_on: bool = False) -> None:
        """Append nothing more. The stream ends too, unless it `goes_on` with the next home of its session."""
        if not self.ended:
            self.ended = True
            if not goes_on:
                self.store.finish(self.key)
        if self.connection is None:  # otherwise the connection gives its memory back
            self._release()
        self._make_room()
        self._hurry()

    async def room(self) -> None:
        if self.full:
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        if self.followed and not self.ended and self._pause is None and self.hub:
            self.hub.emit(telemetry.LimitHit(name="outbox", session=self.key.session))
        while self.full and self.followed and not self.ended:
            self._hurry()
            if self._room is None:
                self._room = trio.lowlevel.ParkingLot()
            await self._room.park()

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.unpark_all()

    def _hurry(self) -> None:
        if self._pause is not None:
            self._pause.cancel()

    # -- for the connection

    async def pause(self, seq: int, until: float) -> None:
        """Wait, so that notifications that follow event `seq` leave together with it; never while the client waits.

        The event is taken already, so a cancellation takes effect later.
        """
        if seq > self._urgent and not self.ended and not self.full:
            with trio.CancelScope(deadline=until, shield=True) as self._pause:
                await trio.sleep_forever()
            self._pause = None

    def took(self, seq: int) -> None:
        self.taken = seq
        if seq >= self.last:
            self._behind = 0
            self._release()
        else:
            self.unread.take(self)
        if self._room is not None and not self.full:
            self._make_room()

    def lost(self, connection: StreamConnection | None) -> None:
        if self.connection is connection:
            self.connection = None
            self.expected = False
            self._release()
            self._make_room()

    def cut(self) -> None:
        """Disconnect a client that does not read. It can resume the stream, as far as the store keeps it."""
        if self.connection is None:
            self.lost(None)
        else:
            self.connection.detach("not read")

    def _release(self) -> None:
        if self._charged:
            charged, self._charged = self._charged, 0
            self.unread.take(self, charged)


@define(eq=False, repr=False, kw_only=True)
class StreamResponse:
    """One HTTP response that follows a stream: its `Events`.

    Owns: its follower.   Borrows: the log, if the stream is still written to.
    """

    takes_all: ClassVar[bool] = False
    session: str
    ids: EventIds | None
    """None: events have no ids, the stream cannot be resumed."""
    follower: Follower
    config: HttpConfig
    hub: telemetry.Hub
    log: StreamLog | None = None
    request_id: int | str | None = None
    """The request that the stream answers; it gets an error if the store has lost the answer."""
    prologue: bytes = b""
    on_detach: Callable[[str], None] | None = None
    detached: str | None = None
    _epilogue: bytes = b""
    _over: bool = False
    _next_piece: float = 0.0  # a busy stream does not send it earlier

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
                if self.log is not None and trio.current_time() < self._next_piece:
                    await self.log.pause(self.follower.cursor, self._next_piece)
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
            self._over = True  # it cannot be resumed either, and gets an error then
            if self.request_id is not None:
                chunk += encode_event(encode(Error(self.request_id, INTERNAL_ERROR, LOST)))
            if self.hub:
                self.hub.emit(telemetry.LimitHit(name="replay_store", session=self.session))
        self._took()
        return chunk or None

    def _took(self) -> None:
        self._next_piece = trio.current_time() + _PAUSE
        if self.log is not None and self.log.connection is self:
            self.log.took(self.follower.cursor)

    def _encode(self, event: StoredEvent) -> bytes:
        return encode_event(event.data, id=None if self.ids is None else self.ids.of(event.seq))

    def say_retry(self) -> None:
        """Send a `retry` field at the end, because the server closes this connection on purpose."""
        # 2025-11-25 basic/transports: it SHOULD send an SSE event with a `retry` field before closing the connection
        self._epilogue = encode_event(None, retry=self.config.retry_ms)

    def say_last(self, message: bytes) -> None:
        """Send a message at the end, because the stream will not bring the answer."""
        self._epilogue = encode_event(message)

    def close(self) -> None:
        """End this response, but not the stream."""
        self.follower.close()

    def detach(self, cause: str) -> None:
        if self.detached is not None:
            return
        self.detached = cause
        self._over = True
        self.follower.close()
        if self.log is not None:
            self.log.lost(self)
        on_detach, self.on_detach = self.on_detach, None  # the function refers to this response
        if on_detach is not None:
            on_detach(cause)
        if self.hub:
            self.hub.emit(telemetry.StreamClosed(session=self.session, cause=cause))


@define(eq=False, repr=False)
class Leased:
    """Events that end when the token of their client expires; the client comes back with a new token and resumes."""

    events: Events
    until: float

    @property
    def over(self) -> bool:
        return self.events.over

    async def next(self) -> bytes | None:
        with trio.move_on_at(self.until):
            return await self.events.next()
        return None

    def detach(self, cause: str) -> None:
        self.events.detach(cause)


def time_left(request: HttpRequest) -> float:
    """Return for how many seconds the credentials of a request are still valid."""
    expires = None if request.principal is None else request.principal.expires
    return math.inf if expires is None else max(0.0, expires - time.time())


def leased(request: HttpRequest, reply: Plain | Stream) -> Plain | Stream:
    """Let a stream end when the credentials of its request expire. A running call is not affected."""
    left = time_left(request)
    if type(reply) is not Stream or left == math.inf or request.remote is not None:  # the other worker does it
        return reply
    return Stream(reply.status, reply.headers, Leased(reply.events, trio.current_time() + left))
