"""Stateful HTTP: sessions that begin with `initialize` and are identified by the header `Mcp-Session-Id`.

This module handles the requests of a session; `post` has the link of a POST and `links` the streams of a GET.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Final, cast

import msgspec
import trio
from attrs import define

from mcptrio import telemetry
from mcptrio._actors.lending import Loan
from mcptrio._actors.session import Session
from mcptrio._peer.era import Era
from mcptrio._peer.link import ReplyLink
from mcptrio._peer.machine import check_batch
from mcptrio._peer.messages import Cause
from mcptrio._peer.states import State
from mcptrio._wire.jsonrpc import Batch, Frame, Malformed, Request
from mcptrio._wire.objects.converter import StructureError, structure
from mcptrio.errors import INVALID_PARAMS, ConnectionLost, Overloaded, RemoteProtocolError
from mcptrio.stores.base import StreamKey, UnknownCursor
from mcptrio.types.lifecycle import InitializeParams

from .admission import refuse_excess
from .event_stream import EventIds, StreamResponse, read_cursor
from .links import HttpLink
from .message import (
    EVENTS,
    Headers,
    HttpRequest,
    Plain,
    Stream,
    overloaded,
    refuse,
    refuse_frame,
    session_needed,
    unknown_session,
)
from .post import PostStream
from .shared import Shared

ACCEPTED: Final = Plain(202)
DELETED: Final = Plain(200)
_START_OVER: Final = "Last-Event-ID cannot be resumed from; start over without it"


class SessionRecord(msgspec.Struct, frozen=True):
    """The record of a session that a restarted process needs."""

    date: str
    identity: str


@define(eq=False, repr=False)
class Sessions:
    """The sessions of one endpoint: lookup, start and end. The supervisor owns the sessions."""

    shared: Shared
    dates: Mapping[str, Era]

    def find(self, head: HttpRequest) -> Session | None:
        """Return the session that a request names, if it belongs to the sender."""
        session = self.shared.runtime.supervisor.sessions.get(head.fields[b"mcp-session-id"].decode("latin-1"))
        if session is None or session.ended is not None:
            return None
        http = session.link
        if type(http) is not HttpLink or http.closed or http.parts is not self.shared:
            return None
        # Do not reveal that the session of another client exists.
        if http.identity != head.identity:
            return None
        http.confirmed = True
        return session

    # -- POST: a message of the client

    async def post(
        self, head: HttpRequest, frame: Frame | Batch, loan: Loan | None = None
    ) -> Plain | Stream | PostStream:
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
            # Always accept responses, even under load: a running call may be blocked on one.
            return await self.hand_over(session, frame, session.link, head.context) or ACCEPTED
        refusal = await self.shared.scopes.check(head, frame)
        if refusal is None:
            refusal = await self.shared.admission.enter(head, frame)
        if refusal is not None:
            return refusal
        config = self.shared.config
        post = self._new_post(http, head, frame, math.inf if config.json_only else config.stream_after)
        try:
            refusal = await self.hand_over(session, frame, post, head.context, loan)
        except BaseException:  # the client disconnected before the session got the request
            post.end()
            raise
        if refusal is not None:
            post.end()
            return refusal
        return post

    def _new_post(
        self,
        http: HttpLink,
        head: HttpRequest,
        frame: Frame | Batch,
        patience: float,
        headers: Headers = (),
        on_answer: Callable[[], None] | None = None,
    ) -> PostStream:
        """Create the link of a request that `Admission` admitted; its slot is released when it is over."""
        http.last_name += 1
        post = http.posts[str(http.last_name)] = PostStream(
            head=head,
            frame=frame,
            parts=self.shared,
            patience=patience,
            headers=headers,
            http=http,
            name=str(http.last_name),
            json_only=self.shared.config.json_only,
            on_answer=on_answer,
        )
        return post

    async def hand_over(
        self,
        session: Session,
        frame: Frame | Batch,
        link: ReplyLink,
        context: Context | None = None,
        loan: Loan | None = None,
    ) -> Plain | None:
        """Post a message to the session; return a refusal if that is not possible."""
        if session.congested and type(frame) in (Request, tuple):
            with trio.move_on_after(self.shared.busy_timeout):
                await session.wait_for_room()
            if session.congested:
                self.shared.limit("waiting", session)
                text = "the session has too many requests waiting"
                return overloaded(text, 1, request_id=_id_of(frame), limit="waiting")
        if session.deliver_nowait(frame, link, context, loan):
            return None
        try:
            with trio.move_on_after(self.shared.busy_timeout):
                await session.deliver(frame, link, context)
                return None
        except ConnectionLost:
            return unknown_session(_id_of(frame))
        self.shared.limit("inbox", session)
        return overloaded("the session is busy", 1, request_id=_id_of(frame), limit="inbox")

    # -- start and end

    async def _initialize(self, head: HttpRequest, frame: Request) -> Plain | Stream:
        try:
            structure(frame.params, InitializeParams)  # validate first: create no session for invalid parameters
        except StructureError as error:
            text = "; ".join(error.faults) or "invalid params"
            return refuse(200, text, code=INVALID_PARAMS, request_id=frame.id)
        who = head.identity
        try:
            self.shared.admission.check_sessions(who)
        except Overloaded as error:
            return refuse_excess(error, frame.id)
        refusal = await self.shared.admission.enter(head, frame)
        if refusal is not None:
            return refusal
        http = HttpLink(parts=self.shared, identity=who, on_end=self.session_over)
        try:
            session = self.shared.runtime.new_session(
                http, transport="http", principal=head.principal, owner=head.owner
            )
        except Overloaded as error:
            self.shared.admission.leave(head)
            return overloaded(str(error), error.retry_after, request_id=frame.id, close=self.shared.draining)
        http.session = session
        self.shared.admission.session_began(who)
        named = ((b"mcp-session-id", session.id.encode()),)
        post = self._new_post(http, head, frame, math.inf, named, lambda: self._opened(http))
        refusal = await self.hand_over(session, frame, post, head.context)
        if refusal is not None:
            post.end()
            return refusal
        reply = await post.reply()
        if http.closed:  # it was refused: the client gets the error and no session
            kept = tuple(header for header in reply.headers if header[0] != b"mcp-session-id")
            return Plain(reply.status, kept, reply.body) if type(reply) is Plain else reply
        return reply

    def _opened(self, http: HttpLink) -> None:
        """Handle the end of `initialize`: confirm the session, or forget it if it was refused."""
        session = http.session
        era = session.peer.era
        if session.peer.state is State.NEW or era is None:
            http.close()
            session.close_nowait(Cause.SESSION_END)
        elif self.shared.store.durable:
            record = SessionRecord(era.date, http.identity)
            self.shared.store.sessions.put(session.id, msgspec.json.encode(record), owner=session.owner)

    def session_over(self, http: HttpLink) -> None:
        """Drop the data of an ended session, unless the next process is to continue it."""
        self.shared.admission.session_over(http.identity)
        session = http.session
        leaving = session.ended is Cause.DRAIN or not self.shared.runtime.ready
        if leaving and self.shared.store.durable:
            return
        self.shared.store.forget(session.id)
        if self.shared.store.durable:
            self.shared.store.sessions.drop(session.id)

    def delete(self, head: HttpRequest) -> Plain:
        session = self.find(head)
        if session is None:
            return unknown_session()
        cast(HttpLink, session.link).close()
        session.close_nowait(Cause.SESSION_END)
        return DELETED

    def _note_version(self, head: HttpRequest, session: Session) -> None:
        era = session.peer.era
        if head.date is not None and era is not None and head.date != era.date and self.shared.hub:
            # The session's own revision applies.
            self.shared.hub.emit(telemetry.ConnectionEvent(kind="version_header", detail=head.date))

    # -- GET: events

    async def listen(self, head: HttpRequest) -> Plain | Stream:
        cursor = head.text(b"last-event-id")
        session = self.find(head)
        if session is None:
            try:
                return await self._replay(head, cursor) if cursor and self.shared.store.durable else unknown_session()
            except Overloaded as error:  # a store that cannot be reached
                return overloaded(str(error), error.retry_after)
        http = cast(HttpLink, session.link)
        self._note_version(head, session)
        if cursor:
            try:
                return Stream(200, EVENTS, http.resume(cursor))
            except UnknownCursor:
                return self._start_over(session.id)
        if self.shared.draining:
            return overloaded("the server is shutting down", 5, close=True)
        if http.listening:
            return refuse(409, "this session has an open stream already; resume it with Last-Event-ID to take over")
        try:
            return Stream(200, EVENTS, http.listen())
        except Overloaded as error:
            return overloaded(str(error), error.retry_after)

    async def _replay(self, head: HttpRequest, cursor: str) -> Plain | Stream:
        """Replay a stream of a session from an earlier process: send the stored events, then end."""
        session_id = head.fields[b"mcp-session-id"].decode("latin-1")
        store = self.shared.store
        stored = await store.sessions.get(session_id)
        if stored is None:
            return unknown_session()
        record = msgspec.json.decode(stored, type=SessionRecord)
        if record.identity != head.identity or record.date not in self.dates:
            return unknown_session()
        found = read_cursor(cursor, secret=store.secret, session=session_id)
        if found is None:
            return self._start_over(session_id)
        key = StreamKey(session_id, found[0])
        await store.prepare_follow(key)
        store.finish(key)
        try:
            follower = store.follow(key, found[1])
        except UnknownCursor:
            return unknown_session()  # an id made here, but neither the session nor the stream exists any more
        ids = EventIds(store.secret, session_id, found[0])
        events = StreamResponse(
            session=session_id, ids=ids, follower=follower, config=self.shared.config, hub=self.shared.hub
        )
        if self.shared.hub:
            self.shared.hub.emit(telemetry.StreamOpened(session=session_id, resumed=True))
        first = await events.next()
        if first is None:
            # Nothing is left, so further polling is useless: 404 makes the client open a new session.
            events.detach("nothing left")
            return unknown_session()
        events.prologue = first
        return Stream(200, EVENTS, events)

    def _start_over(self, session_id: str) -> Plain:
        if self.shared.hub:
            self.shared.hub.emit(telemetry.ReplayRefused(session=session_id))
        return refuse(400, _START_OVER)


def _id_of(frame: Frame | Batch) -> int | str | None:
    """Return the id for an error response: only a request's id, since any other would match another request."""
    return frame.id if type(frame) is Request else None
