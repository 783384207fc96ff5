"""One stateful session over HTTP: many POSTs, a GET, one `Session`.

Theory of operation. Each POST of a request has its own link, `PostStream`, which carries its response. It starts
undecided; if the response comes first, it is plain JSON and nothing is stored. Any other message, or a delay, turns it
into a stream (`StreamLog`), which outlives its connection: after a lost connection the call continues, and the client
returns with GET and `Last-Event-ID`. Messages that belong to no request go to `HttpLink`, the session's own link, whose
stream has the number 0 and is followed by a GET without a cursor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio
from attrs import define, field

from mcptrio import telemetry
from mcptrio._actors.homes import LEAVING
from mcptrio._actors.session import Session
from mcptrio._peer.messages import Cause
from mcptrio._wire.sse import encode_event
from mcptrio.errors import Overloaded
from mcptrio.stores.base import StreamKey, UnknownCursor

from .event_stream import EventIds, StreamLog, StreamResponse, read_cursor
from .post import PostStream
from .remote import ClientConnection, CloseRemotely, RemoteConnection

if TYPE_CHECKING:
    from .parts import EndpointParts

STANDALONE: Final = "0"


@define(eq=False, repr=False, kw_only=True)
class HttpLink:
    """A session's own link: the standalone stream, and the register of the session's POSTs and connections."""

    per_request = False
    head = None
    queued = 0.0

    parts: EndpointParts
    identity: str
    """The owner of the session; see `identity`."""
    on_end: Callable[[HttpLink], None]
    session: Session = field(init=False)
    closed: bool = False
    """Whether the session was deleted or is being passivated: it is no longer found, though it may still be ending."""
    leaving: bool = False
    """Whether it is being passivated: messages of its standalone stream are stored until its record is."""
    confirmed: bool = False
    """Whether the client has sent anything after `initialize`."""
    posts: dict[str, PostStream] = field(factory=dict)
    connections: dict[str, ClientConnection] = field(factory=dict)
    log: StreamLog | None = None
    last_name: int = 0
    """The number of the newest POST."""

    @property
    def resting(self) -> bool:
        """Whether nothing of the session needs this process: no request is served and no stream followed."""
        return not self.posts and not self.connections

    @property
    def listening(self) -> bool:
        return STANDALONE in self.connections

    def count(self, event: telemetry.Event) -> None:
        hub = self.session.service.telemetry
        if hub:
            hub.emit(event)

    # -- the session's side

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        if self.closed and not self.leaving:
            return
        try:
            self._standalone().append(data)
        except Overloaded:
            self.count(telemetry.LimitHit(name="streams", session=self.session.id))

    def end(self) -> None:
        """Close the link: the session is over."""
        self.close()
        for post in list(self.posts.values()):
            post.end()
        self.on_end(self)

    def close(self) -> None:
        """Hide the session from lookups and end its standalone stream, or only its connections if it goes on."""
        self.closed, self.leaving = True, False
        moves = self.goes_on
        if moves or self.session.ended is Cause.DRAIN or self.parts.draining:
            for name, connection in list(self.connections.items()):
                connection.say_retry()
                if moves and (name == STANDALONE or name in self.posts):  # others have ended: let them be read
                    connection.close()
        if self.log is not None:
            self.log.end(goes_on=moves)

    @property
    def goes_on(self) -> bool:
        """Whether the session, now over here, goes on later or in another process, and so do its streams."""
        runtime, ended = self.parts.runtime, self.session.ended
        if runtime.homes is None:
            return False
        return ended in LEAVING or (ended is Cause.CRASH and not runtime.ready)  # the process ends without a drain

    def hide(self) -> None:
        """Hide the session from lookups: it is being passivated."""
        self.closed = self.leaving = True

    def close_connection(self) -> None:
        pass

    @property
    def full(self) -> bool:
        return self.log is not None and self.log.full

    async def room(self) -> None:
        if self.log is not None:
            await self.log.room()

    # -- streams

    def new_log(self, name: str) -> StreamLog:
        store = self.parts.store
        return StreamLog(
            key=StreamKey(self.session.id, name),
            store=store,
            config=self.parts.config,
            hub=self.session.service.telemetry,
            ids=EventIds(store.secret, self.session.id, name),
            owner=self.session.owner,
            unread=self.parts.admission.unread,
        )

    async def reopen(self) -> None:
        """Continue the standalone stream of an earlier home, without what no connection has taken there."""
        last = await self.parts.store.reopen(StreamKey(self.session.id, STANDALONE), owner=self.session.owner)
        if last:
            self.log = self.new_log(STANDALONE)
            self.log.last = self.log.taken = last

    def _standalone(self) -> StreamLog:
        if self.log is None:
            log = self.new_log(STANDALONE)
            log.begin()
            self.log = log
        return self.log

    # -- connections

    async def listen(self, remote: CloseRemotely | None = None) -> ClientConnection:
        """Follow the standalone stream for a GET without a cursor, from the first event that no connection has taken.

        Raises:
            Overloaded: the store has no room for another stream, or the session has another home now.
        """
        log = self._standalone()
        self.session.last_used = trio.current_time()  # it must not be passivated meanwhile
        try:
            await self.prepare_cursor(STANDALONE)
        except UnknownCursor as error:
            raise Overloaded(str(error), retry_after=1, limit="session") from error
        try:
            return self.follow(STANDALONE, log.taken, log, prime=True, remote=remote)
        except UnknownCursor:
            # The oldest events have been dropped. Without a cursor the client has no claim to them.
            return self.follow(STANDALONE, log.last, log, prime=True, remote=remote)

    async def resume(self, cursor: str, remote: CloseRemotely | None = None) -> ClientConnection:
        """Follow a stream for a GET with a cursor, from the event after it.

        Raises:
            UnknownCursor: it names no event of this session that can be followed.
        """
        found = read_cursor(cursor, secret=self.parts.store.secret, session=self.session.id)
        if found is None:
            raise UnknownCursor("not an id of this session")
        name, seq = found
        self.session.last_used = trio.current_time()
        await self.parts.store.prepare_follow(StreamKey(self.session.id, name))
        post = self.posts.get(name)
        log = self.log if name == STANDALONE else None if post is None else post.log
        try:
            return self.follow(name, seq, log, prime=False, remote=remote)
        except UnknownCursor:  # an id made here, so the event was stored once
            self.count(telemetry.LimitHit(name="replay_store", session=self.session.id))
            raise

    def follow(
        self, name: str, after: int, log: StreamLog | None, *, prime: bool, remote: CloseRemotely | None = None
    ) -> ClientConnection:
        """Connect to a stream and disconnect an earlier connection of it. A `remote` client is at another worker.

        Raises:
            UnknownCursor: the stream cannot be followed from there.
        """
        follower = self.parts.store.follow(StreamKey(self.session.id, name), after)
        old = self.connections.pop(name, None)
        if old is not None:
            old.close()
        ids = self._ids(name, log)
        prologue = self._prime(ids, after) if prime else b""
        hub = self.session.service.telemetry
        connection: ClientConnection
        if remote is None:
            connection = StreamResponse(
                session=self.session.id,
                ids=ids,
                follower=follower,
                config=self.parts.config,
                hub=hub,
                log=log,
                prologue=prologue,
            )
        else:
            follower.close()
            connection = RemoteConnection(
                session=self.session.id,
                stream=name,
                after=after,
                resumable=ids is not None,
                prologue=prologue,
                close_remotely=remote,
                hub=hub,
                log=log,
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
        return EventIds(self.parts.store.secret, self.session.id, name) if log is None else log.ids

    async def prepare_cursor(self, name: str) -> None:
        """Wait until a stream that was begun is stored, if a client is about to get an id of it.

        Raises:
            UnknownCursor: the session has another home now.
        """
        # A client that holds a cursor of a stream that the next process does not know could never resume.
        era = self.session.peer.era
        if self.parts.store.durable and era is not None and era.http.primes:
            await self.parts.store.prepare_cursor(StreamKey(self.session.id, name))

    def _prime(self, ids: EventIds | None, after: int) -> bytes:
        era = self.session.peer.era
        if ids is None or era is None or not era.http.primes:
            return b""
        # 2025-11-25 basic/transports: an event with an id and an empty data field, so that a client can reconnect
        return encode_event(b"", id=ids.of(after), retry=self.parts.config.retry_ms)

    def whole(self, answer: bytes, log: StreamLog | None) -> bytes:
        """Encode the whole stream of one event, which needs no connection that follows it."""
        assert log is not None
        log.took(log.last)
        ids = self._ids(log.key.stream, log)
        self.count(telemetry.StreamOpened(session=self.session.id, resumed=False))
        self.count(telemetry.StreamClosed(session=self.session.id, cause="done"))
        return self._prime(ids, 0) + encode_event(answer, id=None if ids is None else ids.of(1))

    def _detached(self, name: str, connection: ClientConnection) -> None:
        self.session.last_used = trio.current_time()
        if self.connections.get(name) is not connection:
            return  # another one took over
        del self.connections[name]
        post = self.posts.get(name)
        if post is not None:
            post.detached()
