"""Stateful HTTP: sessions that begin with `initialize` and are identified by the header `Mcp-Session-Id`.

This module handles the requests of a session; `post` has the link of a POST and `links` the streams of a GET.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Final

import trio
from attrs import define, field

from mcptrio import telemetry
from mcptrio._actors.session import Session
from mcptrio._peer.era import Era
from mcptrio._peer.link import ReplyLink
from mcptrio._peer.machine import check_batch, may_start_call
from mcptrio._peer.messages import Cause
from mcptrio._peer.states import State
from mcptrio._wire.jsonrpc import Batch, Frame, Malformed, Notification, Request
from mcptrio._wire.objects.converter import StructureError, structure
from mcptrio.errors import INVALID_PARAMS, ConnectionLost, Overloaded, RemoteProtocolError
from mcptrio.stores.base import UnknownCursor
from mcptrio.types.lifecycle import InitializeParams

from .activation import Activation
from .links import HttpLink
from .message import (
    EVENTS,
    Headers,
    HttpRequest,
    Plain,
    Stream,
    id_of,
    overloaded,
    refuse,
    refuse_frame,
    refuse_overloaded,
    session_needed,
    unknown_session,
)
from .parts import EndpointParts
from .post import PostStream

ACCEPTED: Final = Plain(202)
DELETED: Final = Plain(200)
_START_OVER: Final = "Last-Event-ID cannot be resumed from; start over without it"


@define(eq=False, repr=False)
class Sessions:
    """The sessions of one endpoint: lookup, start and end. The supervisor owns the sessions."""

    parts: EndpointParts
    dates: Mapping[str, Era]
    activation: Activation = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.activation = Activation(self.parts, self.dates, self.session_over)

    def find(self, head: HttpRequest) -> HttpLink | None:
        """Return the link of the session that a request names, if it belongs to the sender."""
        session = self.parts.runtime.supervisor.sessions.get(head.fields[b"mcp-session-id"].decode("latin-1"))
        if session is None or session.ended is not None:
            return None
        http = session.link
        if type(http) is not HttpLink or http.closed or http.parts is not self.parts:
            return None
        # Do not reveal that the session of another client exists.
        if http.identity != head.identity:
            return None
        http.confirmed = True
        if session.principal is None:
            session.principal = head.principal  # of a session that was taken over without a request
        return http

    # -- POST: a message of the client

    async def post(self, head: HttpRequest, frame: Frame | Batch) -> Plain | Stream | PostStream:
        if b"mcp-session-id" not in head.fields:
            if type(frame) is Request and frame.method == "initialize":
                return await self._initialize(head, frame)
            return session_needed(id_of(frame))
        http, head.link = head.link, None
        if http is None or http.session.ended is not None or http.closed:
            found = self.find(head) or await self.activation.find(head, id_of(frame))
            if isinstance(found, Plain):
                return found
            http = found
        session = http.session
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
            # Accept responses always, even under load: a running call may be blocked on one.
            refusal = await self.hand_over(session, frame, http, head.context)
            if head.message_memory:
                await self._until_taken(session)
            if type(frame) is Notification and frame.method == "notifications/initialized":
                session.changed()
            return refusal or ACCEPTED
        refusal = await self.parts.scopes.check(head, frame)
        if refusal is None:
            refusal = await self.parts.admission.enter(head, frame)
        if refusal is not None:
            self.parts.call_refused(head, frame, refusal, session)
            return refusal
        if http.closed:  # it was passivated or deleted while this request waited
            self.parts.admission.leave(head)
            return await self.post(head, frame)
        config = self.parts.config
        post = self._new_post(http, head, frame, math.inf if config.json_only else config.stream_after)
        try:
            refusal = await self.hand_over(session, frame, post, head.context)
        except BaseException:  # the client disconnected before the session got the request
            post.end()
            raise
        if refusal is not None:
            post.end()
            self.parts.call_refused(head, frame, refusal, session)
            return refusal
        if head.message_memory:
            await self._until_taken(session)
        return post

    async def _until_taken(self, session: Session) -> None:
        """Wait until a session has taken a message out of its inbox, and counts its memory."""
        with trio.move_on_after(self.parts.busy_timeout, shield=True):
            await trio.lowlevel.checkpoint()
            while session.inbox.backlog and session.ended is None:
                await session.inbox.wait_for_change()

    def _new_post(
        self,
        http: HttpLink,
        head: HttpRequest,
        frame: Frame | Batch,
        stream_after: float,
        headers: Headers = (),
        on_answer: Callable[[], None] | None = None,
    ) -> PostStream:
        """Create the link of a request that `Admission` admitted; its slot is released when it is over."""
        http.last_name += 1
        post = http.posts[str(http.last_name)] = PostStream(
            head=head,
            frame=frame,
            parts=self.parts,
            stream_after=stream_after,
            headers=headers,
            queued=head.queued,
            http=http,
            name=str(http.last_name),
            json_only=self.parts.config.json_only,
            on_answer=on_answer,
        )
        return post

    async def hand_over(
        self, session: Session, frame: Frame | Batch, link: ReplyLink, context: Context | None = None
    ) -> Plain | None:
        """Post a message to the session; return a refusal if that is not possible."""
        if session.congested and may_start_call(frame):
            with trio.move_on_after(self.parts.busy_timeout):
                await session.wait_for_room()
            if session.congested:
                self.parts.limit("waiting", session)
                text = "the session has too many requests waiting"
                return overloaded(text, 1, request_id=id_of(frame), limit="waiting")
        if session.deliver_nowait(frame, link, context):
            return None
        try:
            with trio.move_on_after(self.parts.busy_timeout):
                await session.deliver(frame, link, context)
                return None
        except ConnectionLost:
            return unknown_session(id_of(frame))
        self.parts.limit("inbox", session)
        return overloaded("the session is busy", 1, request_id=id_of(frame), limit="inbox")

    # -- start and end

    async def _initialize(self, head: HttpRequest, frame: Request) -> Plain | Stream:
        try:
            structure(frame.params, InitializeParams)  # validate first: create no session for invalid parameters
        except StructureError as error:
            text = "; ".join(error.faults) or "invalid params"
            return refuse(200, text, code=INVALID_PARAMS, request_id=frame.id)
        who = head.identity
        try:
            self.parts.admission.check_sessions(who)
        except Overloaded as error:
            return refuse_overloaded(error, frame.id)
        refusal = await self.parts.admission.enter(head, frame)
        if refusal is not None:
            return refusal
        http = HttpLink(parts=self.parts, identity=who, on_end=self.session_over)
        try:
            session = self.parts.runtime.new_session(http, transport="http", principal=head.principal, owner=head.owner)
        except Overloaded as error:
            self.parts.admission.leave(head)
            return refuse_overloaded(error, frame.id, close=self.parts.draining)
        http.session = session
        self.parts.admission.session_began(who)
        named = ((b"mcp-session-id", session.id.encode()),)
        post = self._new_post(http, head, frame, math.inf, named, lambda: self._opened(http))
        refusal = await self.hand_over(session, frame, post, head.context)
        if refusal is not None:
            post.end()
            return refusal
        reply = await post.reply()
        homes = self.parts.runtime.homes
        if homes is not None and not http.closed:
            try:
                await homes.begin(session)
            except Overloaded as error:
                http.close()
                session.close_nowait(Cause.SESSION_END)
                return refuse_overloaded(error, frame.id)
        if session.ended is Cause.DRAIN:  # answered but not stored yet: it is gone, and its client begins elsewhere
            return overloaded("the server is shutting down", 5, request_id=frame.id, close=True)
        # Unless it was passivated since it is stored: the next request activates it.
        if http.closed and not (http.leaving or http.goes_on):  # it was refused: the client gets the error, no session
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

    def session_over(self, http: HttpLink) -> None:
        """Drop the data of an ended session, unless it goes on: later, in another process, or in the next one."""
        self.parts.admission.session_over(http.identity)
        session, homes = http.session, self.parts.runtime.homes
        if homes is None:
            self.parts.store.forget(session.id)
        elif not http.goes_on:
            homes.forget(session)

    async def delete(self, head: HttpRequest) -> Plain:
        http = self.find(head) or await self.activation.find(head)
        if isinstance(http, Plain):
            return http
        http.close()
        http.session.close_nowait(Cause.SESSION_END)
        if (homes := self.parts.runtime.homes) is not None:
            try:
                await homes.delete(http.session)
            except Overloaded as error:
                return refuse_overloaded(error)
        return DELETED

    def _note_version(self, head: HttpRequest, session: Session) -> None:
        era = session.peer.era
        if head.date is not None and era is not None and head.date != era.date and self.parts.hub:
            # The session's own revision applies.
            self.parts.hub.emit(telemetry.ConnectionEvent(kind="version_header", detail=head.date))

    # -- GET: events

    async def listen(self, head: HttpRequest) -> Plain | Stream:
        cursor = head.text(b"last-event-id")
        http = self.find(head) or await self.activation.find(head)
        if isinstance(http, Plain):
            return http
        self._note_version(head, http.session)
        if cursor:
            try:
                return Stream(200, EVENTS, await http.resume(cursor, head.remote))
            except UnknownCursor:
                return self._start_over(http.session.id)
        if self.parts.refuses:
            return overloaded("the server is shutting down", 5, close=True)
        if http.listening:
            return refuse(409, "this session has an open stream already; resume it with Last-Event-ID to take over")
        try:
            return Stream(200, EVENTS, await http.listen(head.remote))
        except Overloaded as error:
            return refuse_overloaded(error)

    def _start_over(self, session_id: str) -> Plain:
        if self.parts.hub:
            self.parts.hub.emit(telemetry.ReplayRefused(session=session_id))
        return refuse(400, _START_OVER)
