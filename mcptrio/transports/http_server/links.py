"""One stateful session over HTTP: many POSTs, a GET, one `Session`.

Theory of operation. Each POST of a request is a link of its own, `PostStream`, since its answer belongs to it. It
begins undecided; an answer that comes first is plain JSON and nothing is stored. Anything else, or time, turns it into
a stream (`StreamLog`), which outlives its connection: a lost connection leaves the call running, and the client comes
back to it with GET and `Last-Event-ID`. What belongs to no request goes to `HttpLink`, the session's own link, whose
stream is numbered 0 and followed by a GET without a cursor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio
from attrs import define, field

from mcptrio import telemetry
from mcptrio._actors.session import Session
from mcptrio._peer.messages import Cause
from mcptrio._wire.sse import encode_event
from mcptrio.errors import Overloaded
from mcptrio.stores.base import Store, StreamKey, UnknownCursor

from .cursor import EventIds, read_cursor
from .post import PostStream
from .stream import Connection, StreamLog

if TYPE_CHECKING:
    from .answer import Endpoint
    from .message import Head

STANDALONE: Final = "0"


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
