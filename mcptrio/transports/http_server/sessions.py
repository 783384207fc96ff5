"""The stateful life over HTTP: sessions that begin with `initialize` and are named by a header.

What each request does to a session is here; what a POST is to it is in `post`, and a GET in `links`.
"""

from __future__ import annotations

import contextvars
import math
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import msgspec
import trio
from attrs import define

from mcptrio import telemetry
from mcptrio._actors.link import Link
from mcptrio._actors.session import Session
from mcptrio._peer.machine import check_batch
from mcptrio._peer.messages import Cause, Received
from mcptrio._peer.states import State
from mcptrio._wire.converter import StructureError, structure
from mcptrio._wire.jsonrpc import Batch, Frame, Malformed, Request
from mcptrio.errors import INVALID_PARAMS, LinkClosed, Overloaded, RemoteProtocolError
from mcptrio.stores.base import StreamKey, UnknownCursor
from mcptrio.types.lifecycle import InitializeParams

from .admission import identity, refuse_excess
from .cursor import EventIds, read_cursor
from .links import HttpLink
from .message import ELSEWHERE, EVENTS, JSON, Head, Headers, Loan, Plain, Stream, overloaded, refuse, refuse_frame
from .pending import Phase
from .post import PostStream
from .stream import Connection

if TYPE_CHECKING:
    from .answer import Endpoint

ACCEPTED: Final = Plain(202)
DELETED: Final = Plain(200)
_START_OVER: Final = "Last-Event-ID cannot be resumed from; start over without it"


class SessionRecord(msgspec.Struct, frozen=True):
    """What a restarted process must know of a session."""

    date: str
    identity: str


@define(eq=False, repr=False)
class Sessions:
    """Finds, opens and ends the sessions of one endpoint. They live under the supervisor; nothing here owns one."""

    endpoint: Endpoint

    def find(self, head: Head) -> Session | None:
        """The session that a request names, if it is the sender's."""
        if head.session_id is None:
            head.session_id = head.fields[b"mcp-session-id"].decode("latin-1")
        session = self.endpoint.runtime.supervisor.find(head.session_id)
        if session is None:
            return None
        http = session.link
        if type(http) is not HttpLink or http.closed or http.endpoint is not self.endpoint:
            return None
        # Another's session is answered exactly like one that does not exist.
        if http.identity != identity(head.principal):
            return None
        http.confirmed = True
        return session

    # -- POST: a message of the client

    async def post(self, head: Head, frame: Frame | Batch, loan: Loan | None = None) -> Plain | Stream:
        if b"mcp-session-id" not in head.fields:
            if type(frame) is Request and frame.method == "initialize":
                return await self._initialize(head, frame)
            return session_needed(_id_of(frame))
        session, head.session = head.session, None
        http: HttpLink
        if session is None or session.ended is not None or session.link.closed:  # type: ignore[attr-defined]  # as below
            session = self.find(head)
            if session is None:
                return unknown_session(_id_of(frame))
        http = session.link  # type: ignore[assignment]  # `find` gives no other
        self._note_version(head, session)
        if type(frame) is tuple:
            try:
                check_batch(session.peer.era, frame)
            except RemoteProtocolError as error:
                return refuse_frame(error)
            asks = any(isinstance(member, Request | Malformed) for member in frame)
        else:
            asks = type(frame) is Request
        if not asks:
            # Taken in any case: running calls may wait for an answer.
            return await self.hand_over(session, frame, session.link) or ACCEPTED
        refusal = self.endpoint.check_scopes(head, frame)
        admission = self.endpoint.admission
        if refusal is None and not admission.enter_at_once(head):
            refusal = await admission.enter(head, session.id, _id_of(frame))
        if refusal is not None:
            return refusal
        config = self.endpoint.config
        patience = math.inf if config.json_only else config.stream_after
        post = http.new_post(head, patience=patience)
        if loan is not None and session.at_rest and not session.congested:
            loan.rest = partial(self._outcome, post, frame)
            await session.deliver(frame, post, None, loan)
            if loan.taken:
                return ELSEWHERE
        else:
            try:
                refusal = await self.hand_over(session, frame, post)
            except BaseException:  # its client is gone, and the session has not heard of it
                post.end()
                raise
            if refusal is not None:
                post.end()
                return refusal
        if post.phase is Phase.ANSWERED and post.status == 200:
            return Plain(200, JSON, post.answer)
        return await self._outcome(post, frame)

    async def _outcome(self, post: PostStream, frame: Frame | Batch, headers: Headers = ()) -> Plain | Stream:
        if post.phase is Phase.PENDING:
            await post.decided()
        if post.phase is Phase.ANSWERED:
            if post.status != 200:
                headers += self.endpoint.headers_for(post.status, frame, post.answer)
            return Plain(post.status, JSON + headers if headers else JSON, post.answer)
        if post.phase is Phase.STREAMING:
            whole = post.whole()
            if whole is not None:
                return Plain(200, EVENTS + headers if headers else EVENTS, whole)
            try:
                return Stream(200, EVENTS + headers, post.connect())
            except UnknownCursor:
                pass  # the session ended in this very moment, and its streams with it
        if post.http.closed or post.http.session.ended is not None:
            return unknown_session()
        # basic/utilities/cancellation: a cancelled request gets no response. HTTP needs one; this one says nothing.
        return ACCEPTED if self.endpoint.config.json_only else Plain(200, EVENTS + headers, b":\n\n")

    async def hand_over(self, session: Session, frame: Frame | Batch, link: Link) -> Plain | None:
        """Put a message into the session's inbox, or say why not."""
        if session.congested and type(frame) in (Request, tuple):
            with trio.move_on_after(self.endpoint.config.busy_timeout):
                await session.wait_for_room()
            if session.congested:
                self.endpoint.limit("waiting", session)
                text = "the session has too many requests waiting"
                return overloaded(text, 1, request_id=_id_of(frame), limit="waiting")
        session.last_used = trio.current_time()
        if session.post_nowait(Received(frame, link, contextvars.copy_context())):
            return None
        try:
            with trio.move_on_after(self.endpoint.config.busy_timeout):
                await session.deliver(frame, link)
                return None
        except LinkClosed:
            return unknown_session(_id_of(frame))
        self.endpoint.limit("inbox", session)
        return overloaded("the session is busy", 1, request_id=_id_of(frame), limit="inbox")

    # -- opening and ending

    async def _initialize(self, head: Head, frame: Request) -> Plain | Stream:
        try:
            structure(frame.params, InitializeParams)  # nothing is created for rubbish
        except StructureError as error:
            text = "; ".join(error.faults) or "invalid params"
            return refuse(200, text, code=INVALID_PARAMS, request_id=frame.id)
        who = identity(head.principal)
        try:
            self.endpoint.admission.check_sessions(who)
        except Overloaded as error:
            return refuse_excess(error, frame.id)
        refusal = await self.endpoint.admission.enter(head, None, frame.id)
        if refusal is not None:
            return refusal
        http = HttpLink(endpoint=self.endpoint, identity=who)
        try:
            session = self.endpoint.runtime.new_session(http, transport="http", principal=head.principal)
        except Overloaded as error:
            self.endpoint.admission.leave(head)
            return overloaded(str(error), error.retry_after, request_id=frame.id, close=self.endpoint.draining)
        http.session = session
        self.endpoint.admission.session_began(who)
        post = http.new_post(head, patience=math.inf, on_answer=lambda: self._opened(http))
        refusal = await self.hand_over(session, frame, post)
        if refusal is not None:
            post.end()
            return refusal
        reply = await self._outcome(post, frame, ((b"mcp-session-id", session.id.encode()),))
        if http.closed:  # it was refused: the client gets the error and no session
            kept = tuple(header for header in reply.headers if header[0] != b"mcp-session-id")
            return Plain(reply.status, kept, reply.body) if type(reply) is Plain else reply
        return reply

    def _opened(self, http: HttpLink) -> None:
        """`initialize` was answered, or never will be."""
        session = http.session
        era = session.peer.era
        if session.peer.state is State.NEW or era is None:
            http.close()
            session.close_nowait(Cause.SESSION_END)
        elif self.endpoint.store.durable:
            record = SessionRecord(era.date, http.identity)
            self.endpoint.store.sessions.put(session.id, msgspec.json.encode(record))

    def session_over(self, http: HttpLink) -> None:
        """A session ended: what is kept for it can go, unless the next process shall go on with it."""
        self.endpoint.admission.session_over(http.identity)
        session = http.session
        leaving = session.ended is Cause.DRAIN or not self.endpoint.runtime.ready
        if leaving and self.endpoint.store.durable:
            return
        self.endpoint.store.forget(session.id)
        if self.endpoint.store.durable:
            self.endpoint.store.sessions.drop(session.id)

    def delete(self, head: Head) -> Plain:
        session = self.find(head)
        if session is None:
            return unknown_session()
        cast(HttpLink, session.link).close()
        session.close_nowait(Cause.SESSION_END)
        return DELETED

    def _note_version(self, head: Head, session: Session) -> None:
        date, era = head.date, session.peer.era
        if date is not None and era is not None and date != era.date and self.endpoint.hub:
            # The session's own revision governs.
            self.endpoint.hub.emit(telemetry.ConnectionEvent(kind="version_header", detail=date))

    # -- GET: events

    async def listen(self, head: Head) -> Plain | Stream:
        cursor = head.text(b"last-event-id")
        session = self.find(head)
        if session is None:
            return await self._replay(head, cursor) if cursor and self.endpoint.store.durable else unknown_session()
        http = cast(HttpLink, session.link)
        self._note_version(head, session)
        if cursor:
            try:
                return Stream(200, EVENTS, http.resume(cursor))
            except UnknownCursor:
                return self._start_over(session.id)
        if self.endpoint.draining:
            return overloaded("the server is shutting down", 5, close=True)
        if http.listening:
            return refuse(409, "this session has an open stream already; resume it with Last-Event-ID to take over")
        try:
            return Stream(200, EVENTS, http.listen())
        except Overloaded as error:
            return overloaded(str(error), error.retry_after)

    async def _replay(self, head: Head, cursor: str) -> Plain | Stream:
        """The session was another process's: what the store has of the stream, and then the end."""
        session_id = head.fields[b"mcp-session-id"].decode("latin-1")
        store = self.endpoint.store
        stored = await store.sessions.get(session_id)
        if stored is None:
            return unknown_session()
        record = msgspec.json.decode(stored, type=SessionRecord)
        if record.identity != identity(head.principal) or record.date not in self.endpoint.dates:
            return unknown_session()
        found = read_cursor(cursor, secret=store.secret, session=session_id)
        if found is None:
            return self._start_over(session_id)
        key = StreamKey(session_id, found[0])
        store.finish(key)
        try:
            follower = store.follow(key, found[1])
        except UnknownCursor:
            return unknown_session()  # an id of ours, but there is neither a session nor anything kept of the stream
        ids = EventIds(store.secret, session_id, found[0])
        events = Connection(
            session=session_id, ids=ids, follower=follower, config=self.endpoint.config, hub=self.endpoint.hub
        )
        if self.endpoint.hub:
            self.endpoint.hub.emit(telemetry.StreamOpened(session=session_id, resumed=True))
        first = await events.next()
        if first is None:
            # Nothing is left: coming back again and again would bring nothing. 404 makes a client start anew.
            events.detach("nothing left")
            return unknown_session()
        events.prologue = first
        return Stream(200, EVENTS, events)

    def _start_over(self, session_id: str) -> Plain:
        if self.endpoint.hub:
            self.endpoint.hub.emit(telemetry.ReplayRefused(session=session_id))
        return refuse(400, _START_OVER)


def _id_of(frame: Frame | Batch) -> int | str | None:
    """The id to put into an error: that of a request; any other would be taken for the answer to something else."""
    return frame.id if type(frame) is Request else None


def session_needed(request_id: int | str | None = None) -> Plain:
    # basic/transports: a request without the id of its session SHOULD be answered with 400
    return refuse(400, "Mcp-Session-Id is missing; only initialize comes without it", request_id=request_id)


def unknown_session(request_id: int | str | None = None) -> Plain:
    # basic/transports: a session that was ended MUST be answered with 404
    return refuse(404, "there is no such session; start a new one with initialize", request_id=request_id)
