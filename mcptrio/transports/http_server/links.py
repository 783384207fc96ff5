"""One stateful session over HTTP: many POSTs, a GET, one `Session`.

Theory of operation. Each POST of a request is a link of its own, `PostStream`, since its answer belongs to it. It
begins undecided; an answer that comes first is plain JSON and nothing is stored. Anything else, or time, turns it into
a stream (`StreamLog`), which outlives its connection: a lost connection leaves the call running, and the client comes
back to it with GET and `Last-Event-ID`. What belongs to no request goes to `HttpLink`, the session's own link, whose
stream is numbered 0 and followed by a GET without a cursor.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio
from attrs import define, field

from mcptrio import telemetry
from mcptrio._actors.session import Session
from mcptrio._peer.messages import Cause, LinkLost, Received
from mcptrio._wire.jsonrpc import ErrorResponse, Request, decode
from mcptrio._wire.sse import encode_event
from mcptrio.errors import INTERNAL_ERROR, Overloaded
from mcptrio.stores.base import Store, StreamKey, UnknownCursor

from .cursor import EventIds, read_cursor
from .stream import Connection, StreamLog, is_notification

if TYPE_CHECKING:
    from .answer import Endpoint
    from .message import Head

STANDALONE: Final = "0"


class Phase(enum.Enum):
    """What became of a POST."""

    PENDING = enum.auto()
    ANSWERED = enum.auto()
    """With JSON."""
    STREAMING = enum.auto()
    OVER = enum.auto()
    """Nothing more will come: cancelled, or nobody waits."""


@define(eq=False, repr=False, kw_only=True)
class PostStream:
    """The link of one POST: an answer, or a stream that ends with the answer."""

    shared: bool = field(default=False, init=False)

    http: HttpLink
    name: str
    head: Head
    patience: float
    """How long it may stay undecided."""
    json_only: bool
    on_answer: Callable[[], None] | None = None
    phase: Phase = Phase.PENDING
    answer: bytes = b""
    status: int = 200
    log: StreamLog | None = None
    _waiter: trio.lowlevel.Task | None = None
    _grace: trio.CancelScope | None = None
    _close_wanted: bool = False

    # -- the session's side: nothing here waits

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        if self.phase is Phase.PENDING:
            # An error that HTTP has a status for is said with that status, whatever the setting.
            if final and (status != 200 or not self.http.endpoint.config.sse_only):
                self.answer, self.status = data, status
                self._settle(Phase.ANSWERED)
            elif self.json_only or not self._open():
                self._post_elsewhere(data, final, status)
            else:
                self._append(data, final)
                if final:
                    self.answer = data
                self._wake()
        elif self.phase is Phase.STREAMING:
            self._append(data, final)
        if final:
            self._finished()

    def end(self) -> None:
        """The call ended without an answer."""
        if self.phase is Phase.PENDING:
            self._settle(Phase.OVER)
        elif self.log is not None:
            self.log.end()
        self._finished()

    async def room(self) -> None:
        if self.log is not None:
            await self.log.room()

    def close_connection(self) -> None:
        """End the connection and not the call: the client polls for the rest (SEP-1699).

        Nothing happens where a client could not come back: before 2025-11-25 it may hold no event id yet.
        """
        era = self.http.session.peer.era
        if era is None or not era.http.primes or self.json_only:
            return
        if self.phase is Phase.PENDING and self._open():
            self._close_wanted = True
            self._wake()
        elif self.log is not None and self.log.connection is not None:
            self.log.connection.say_retry()
            self.log.connection.close()

    def _append(self, data: bytes, final: bool) -> None:
        assert self.log is not None
        self.log.append(data, last=final)

    def _open(self) -> bool:
        """Turn into a stream; False if the store has no room for another one."""
        log = self.http.new_log(self.name)
        try:
            log.store.begin(log.key)
        except Overloaded:
            self.http.count(telemetry.LimitHit(name="streams", session=self.http.session.id))
            self.json_only = True
            return False
        self.log = log
        log.expected = True
        self.phase = Phase.STREAMING
        return True

    def _post_elsewhere(self, data: bytes, final: bool, status: int) -> None:
        """There is no stream to put this on."""
        if final:
            self.answer, self.status = data, status
            self._settle(Phase.ANSWERED)
        elif is_notification(data):
            self.http.count(telemetry.Dropped(kind="json_only", session=self.http.session.id))
        elif self.http.listening:
            self.http.post(data)
        else:
            # Nobody would ever answer it: say so now, as if the client had.
            frame = decode(data)
            assert isinstance(frame, Request)
            text = "the client listens to no stream that this could be asked on (json_only)"
            refusal = ErrorResponse(frame.id, INTERNAL_ERROR, text)
            self.http.session.post_nowait(Received(refusal, self))

    def _settle(self, phase: Phase) -> None:
        self.phase = phase
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            trio.lowlevel.reschedule(self._waiter)
            self._waiter = None

    def _finished(self) -> None:
        self.http.forget_post(self)
        if self._grace is not None:
            self._grace.cancel()
        callback, self.on_answer = self.on_answer, None
        if callback is not None:
            callback()

    # -- the exchange's side

    @property
    def undecided(self) -> bool:
        return self.phase is Phase.PENDING

    def overdue(self) -> None:
        """It took too long for a plain answer."""
        if not self.json_only and self._open():
            self._wake()

    async def decided(self) -> None:
        """Wait until it is known how to answer. After it the phase is another than PENDING."""
        if not self.undecided:
            return
        if self.patience != math.inf:
            self.http.endpoint.alarm.set(self)
        try:
            await self._wait()
        except BaseException:
            # Only the shell can cancel this. Nobody holds an id to come back with; the call goes on all the same.
            if self.phase is Phase.PENDING:
                self.phase = Phase.OVER
            else:
                self.detached()
            raise

    async def _wait(self) -> None:
        self._waiter = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._waiter = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def whole(self) -> bytes | None:
        """The whole stream, if its answer came first and can be given away at once."""
        # From a durable store it is given only when it is stored.
        if not self.answer or self._close_wanted or self.http.endpoint.store.durable:
            return None
        return self.http.whole(self.answer, self.log)

    def connect(self) -> Connection:
        """The first connection of a stream."""
        connection = self.http.follow(self.name, 0, self.log, prime=True)
        if self._close_wanted:
            connection.say_retry()
            connection.close()
        return connection

    # -- lost connections

    def detached(self) -> None:
        """No connection follows this stream any more; the call goes on for a while."""
        session = self.http.session
        if self.log is None or self.log.ended or session.ended is not None:
            return
        self.log.lost(None)
        session.start_background(self._give_up_later)

    def attached(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    async def _give_up_later(self) -> None:
        session = self.http.session
        era = session.peer.era
        cancels = era is not None and era.http.disconnect_cancels
        if self._grace is not None or self.log is None or self.log.ended or self.log.connection is not None:
            return  # the client was faster
        with trio.CancelScope() as self._grace:
            await trio.sleep(0 if cancels else self.http.endpoint.config.resume_grace)
            while not session.post_nowait(LinkLost(self)):  # noqa: ASYNC110 - a full inbox empties at once
                await trio.sleep(0.05)


@define(eq=False, repr=False, kw_only=True)
class HttpLink:
    """A session's own link: the standalone stream, and the books on its POSTs and connections."""

    shared: bool = field(default=True, init=False)

    endpoint: Endpoint
    identity: str
    """Whose session it is; see `identity`."""
    session: Session = field(init=False)
    closed: bool = False
    """Deleted: nobody finds it any more, though it may still be ending."""
    confirmed: bool = False
    """The client came back after `initialize`, with `notifications/initialized` or with anything else."""
    posts: dict[str, PostStream] = field(factory=dict)
    connections: dict[str, Connection] = field(factory=dict)
    log: StreamLog | None = None
    _last_name: int = 0

    @property
    def attached(self) -> bool:
        """Whether any stream of the session has a connection: then it is not idle."""
        return bool(self.connections)

    @property
    def listening(self) -> bool:
        return STANDALONE in self.connections

    def count(self, event: telemetry.Event) -> None:
        hub = self.session.service.telemetry
        if hub:
            hub.emit(event)

    # -- the session's side

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        if self.closed:
            return
        try:
            self._standalone().append(data)
        except Overloaded:
            self.count(telemetry.LimitHit(name="streams", session=self.session.id))

    def end(self) -> None:
        """The session is over."""
        self.close()
        for post in list(self.posts.values()):
            post.end()
        self.endpoint.sessions.session_over(self)

    def close(self) -> None:
        """Nobody finds the session any more, and nothing is said on its own account."""
        self.closed = True
        if self.session.ended is Cause.DRAIN or self.endpoint.draining:
            for connection in self.connections.values():
                connection.say_retry()
        if self.log is not None:
            self.log.end()

    async def room(self) -> None:
        if self.log is not None:
            await self.log.room()

    # -- streams

    def new_post(self, head: Head, *, patience: float, on_answer: Callable[[], None] | None = None) -> PostStream:
        """The link of a request that `Admission` let in; its place is given back when it is over."""
        self._last_name += 1
        name = str(self._last_name)
        json_only = self.endpoint.config.json_only
        post = PostStream(http=self, name=name, head=head, patience=patience, json_only=json_only, on_answer=on_answer)
        self.posts[name] = post
        return post

    def forget_post(self, post: PostStream) -> None:
        if self.posts.pop(post.name, None) is not None:
            self.endpoint.admission.leave(post.head)

    def new_log(self, name: str) -> StreamLog:
        store: Store = self.endpoint.store
        return StreamLog(
            key=StreamKey(self.session.id, name),
            store=store,
            config=self.endpoint.config,
            hub=self.session.service.telemetry,
            ids=EventIds(store.secret, self.session.id, name),
        )

    def _standalone(self) -> StreamLog:
        if self.log is None:
            log = self.new_log(STANDALONE)
            log.store.begin(log.key)
            self.log = log
        return self.log

    # -- connections

    def listen(self) -> Connection:
        """A GET without a cursor: what nobody has taken yet, and what comes.

        Raises:
            Overloaded: the store has no room for another stream.
        """
        log = self._standalone()
        try:
            return self.follow(STANDALONE, log.taken, log, prime=True)
        except UnknownCursor:
            # So much waited that the oldest of it is gone. Without a cursor nothing was promised.
            return self.follow(STANDALONE, log.last, log, prime=True)

    def resume(self, cursor: str) -> Connection:
        """A GET with a cursor: what came after it on its stream, and what comes.

        Raises:
            UnknownCursor: it is no event of this session that could be followed.
        """
        found = read_cursor(cursor, secret=self.endpoint.store.secret, session=self.session.id)
        if found is None:
            raise UnknownCursor("not an id of this session")
        name, seq = found
        post = self.posts.get(name)
        log = self.log if name == STANDALONE else None if post is None else post.log
        try:
            return self.follow(name, seq, log, prime=False)
        except UnknownCursor:  # an id of ours, so it was kept once
            self.count(telemetry.LimitHit(name="replay_store", session=self.session.id))
            raise

    def follow(self, name: str, after: int, log: StreamLog | None, *, prime: bool) -> Connection:
        """Connect to a stream, in place of whoever is connected to it.

        Raises:
            UnknownCursor: the stream cannot be followed from there.
        """
        store: Store = self.endpoint.store
        follower = store.follow(StreamKey(self.session.id, name), after)
        old = self.connections.pop(name, None)
        if old is not None:
            old.close()
        ids = self._ids(name, log)
        prologue = self._prime(ids, after) if prime else b""
        connection = Connection(
            session=self.session.id,
            ids=ids,
            follower=follower,
            config=self.endpoint.config,
            hub=self.session.service.telemetry,
            log=log,
            prologue=prologue,
        )
        connection.on_detach = lambda _: self._detached(name, connection)
        self.connections[name] = connection
        post = self.posts.get(name)
        if post is not None:
            post.attached()
        self.count(telemetry.StreamOpened(session=self.session.id, resumed=not prime))
        return connection

    def _ids(self, name: str, log: StreamLog | None) -> EventIds | None:
        era = self.session.peer.era
        if era is not None and not era.http.resumable:
            return None
        return EventIds(self.endpoint.store.secret, self.session.id, name) if log is None else log.ids

    def _prime(self, ids: EventIds | None, after: int) -> bytes:
        era = self.session.peer.era
        if ids is None or era is None or not era.http.primes:
            return b""
        # 2025-11-25 basic/transports: an event with an id and an empty data field, so that a client can reconnect
        return encode_event(b"", id=ids.of(after), retry=self.endpoint.config.retry_ms)

    def whole(self, answer: bytes, log: StreamLog | None) -> bytes:
        """What a connection would get of a stream that has one event and is over."""
        assert log is not None
        ids = self._ids(log.key.stream, log)
        self.count(telemetry.StreamOpened(session=self.session.id, resumed=False))
        self.count(telemetry.StreamClosed(session=self.session.id, cause="done"))
        return self._prime(ids, 0) + encode_event(answer, id=None if ids is None else ids.of(1))

    def _detached(self, name: str, connection: Connection) -> None:
        self.session.last_used = trio.current_time()
        if self.connections.get(name) is not connection:
            return  # another one took over
        del self.connections[name]
        post = self.posts.get(name)
        if post is not None:
            post.detached()
