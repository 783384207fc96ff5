"""The link of one POST: it starts undecided, and is answered with JSON or becomes a stream.

If the response comes first, it is plain JSON. Any other message, or a delay, turns the reply into a stream. In a
stateful session that stream is stored and outlives its connection (`PostStream`); `stateless` has the other kind.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.timers import Timer
from mcptrio._peer.messages import Cause, LinkLost, Received
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Batch, Error, Frame, Request, decode
from mcptrio.errors import INTERNAL_ERROR, Overloaded
from mcptrio.stores.base import UnknownCursor

from .admission import SMALL
from .calls import CRASHED, MAY_HAVE_RUN, encode_call, may_have_run
from .event_stream import LOST, StreamLog, is_notification
from .message import EVENTS, JSON, WHOLE_EVENTS, Headers, HttpRequest, Plain, Stream, id_of, refuse, unknown_session
from .parts import EndpointParts

if TYPE_CHECKING:
    from .links import HttpLink
    from .remote import ClientConnection


NOT_READ: Final = (
    "the call has run, but its answer was dropped, because too many answers wait for this client to read them "
    "(HttpConfig.max_outbox_memory)"
)


class ReplyPhase(enum.Enum):
    """The state of the reply to a POST."""

    PENDING = enum.auto()
    ANSWERED = enum.auto()
    """Plain JSON."""
    STREAMING = enum.auto()
    OVER = enum.auto()
    """No reply: cancelled, or its client is gone."""


class Pending(Entity, kw_only=True):
    """The link of one unanswered POST: a session posts to it, and one task of an engine waits for it."""

    head: HttpRequest
    frame: Frame | Batch
    parts: EndpointParts
    stream_after: float
    """Seconds after which it becomes a stream."""
    headers: Headers = ()
    """Headers of the response, besides those of its kind."""
    queued: float = 0.0
    """Seconds for which the request waited to be admitted."""
    per_request = True
    phase: ReplyPhase = ReplyPhase.PENDING
    answer: bytes = b""
    status: int = 200
    _settled: trio.Event = field(default_factory=trio.Event)
    """Set when it is no longer pending, or has been for too long."""

    def _become_stream(self) -> None:
        """Become a stream. It may last longer than its call, so it does not keep the parameters of the request."""
        self.frame = without_params(self.frame)
        self._settle(ReplyPhase.STREAMING)

    def _settle(self, phase: ReplyPhase) -> None:
        self.phase = phase
        self._settled.set()

    def _answer(self, data: bytes, status: int) -> None:
        """Answer with plain JSON."""
        self.answer, self.status = data, status
        self._settle(ReplyPhase.ANSWERED)

    async def _wait(self, open_stream: Callable[[], bool], abandon: Callable[[], None]) -> Plain | None:
        """Wait until the reply is plain JSON, which is returned, or a stream.

        When it takes too long call `open_stream`, which returns whether it could; if cancelled, call `abandon`.
        """
        try:
            if self.phase is ReplyPhase.PENDING:
                timer = Timer(self.parts.timers, self._settled.set)
                timer.set(trio.current_time() + self.stream_after)
                try:
                    await self._settled.wait()
                finally:
                    timer.stop()
            if self.phase is ReplyPhase.PENDING and not open_stream():
                self._settled = trio.Event()
                await self._settled.wait()
        except BaseException:
            abandon()
            raise
        if self.phase is not ReplyPhase.ANSWERED:
            return None
        answer = self.answer
        if len(answer) > SMALL and not self.parts.admission.unread.has_room(self.head.owner, len(answer)):
            self.parts.limit("max_outbox_memory")
            return refuse(500, NOT_READ, code=INTERNAL_ERROR, request_id=id_of(self.frame), data=MAY_HAVE_RUN)
        headers = JSON + self.headers if self.headers else JSON
        if self.status != 200:
            headers += self.parts.scopes.headers_for(self.status, self.frame, self.answer)
        return Plain(self.status, headers, self.answer)

    def close_connection(self) -> None:
        pass


def without_params(frame: Frame | Batch) -> Frame | Batch:
    """Return the requests of a message without their parameters."""
    if isinstance(frame, tuple):
        return tuple(Request(member.id, member.method) for member in frame if isinstance(member, Request))
    return Request(frame.id, frame.method) if isinstance(frame, Request) else frame


class PostStream(Pending, kw_only=True):
    """The link of one POST: a plain response, or a stream that ends with the response."""

    http: HttpLink
    name: str
    json_only: bool
    on_answer: Callable[[], None] | None = None
    log: StreamLog | None = None
    leave_out: Callable[[bytes], bool] | None = None
    """Returns whether the stream need not get a message before the response; None if it gets all, see `rerun`."""
    _grace: trio.CancelScope | None = None
    _close_wanted: bool = False

    # -- for the session: nothing here waits

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        if self.phase is ReplyPhase.PENDING:
            # An error that has an HTTP status is sent with that status, regardless of `sse_only`.
            if final and (status != 200 or not self.parts.config.sse_only):
                self._answer(data, status)
            elif not self._open():
                self._post_elsewhere(data, final, status)
            else:
                self._append(data, final)
                if final:
                    self.answer = data
        elif self.phase is ReplyPhase.STREAMING:
            self._append(data, final)
        if final:
            self._finished()

    def end(self) -> None:
        """Handle the end of the call without a response."""
        if self.phase is ReplyPhase.PENDING:
            self._settle(ReplyPhase.OVER)
        elif self.log is not None:
            self.log.end(goes_on=self.http.goes_on)
        self._finished()

    @property
    def full(self) -> bool:
        return self.log is not None and self.log.full

    async def room(self) -> None:
        if self.log is not None:
            await self.log.room()

    def close_connection(self) -> None:
        """Close the connection but not the call: the client polls for the rest (SEP-1699).

        Do nothing if the client could not return: before 2025-11-25 it may have no event id yet.
        """
        era = self.http.session.peer.era
        if era is None or not era.http.primes or self.json_only:
            return
        if self.phase is ReplyPhase.PENDING and self._open():
            self._close_wanted = True
        elif self.log is not None and self.log.connection is not None:
            self.log.connection.say_retry()
            self.log.connection.close()

    def _append(self, data: bytes, final: bool) -> None:
        assert self.log is not None
        if final or self.leave_out is None or not self.leave_out(data):
            self.log.append(data, last=final)

    def _open(self) -> bool:
        """Turn into a stream; return False if streams are turned off, or the store has no room for another one."""
        if self.json_only:
            return False
        log = self.http.new_log(self.name)
        try:
            log.begin(encode_call(self.frame, self.parts.runtime.app.may_rerun) if self.parts.store.durable else None)
        except Overloaded:
            self.http.count(telemetry.LimitHit(name="streams", session=self.http.session.id))
            self.json_only = True
            return False
        self.log = log
        log.expected = True
        self._become_stream()
        return True

    def _post_elsewhere(self, data: bytes, final: bool, status: int) -> None:
        """Send a message without a stream, because the store has no room or streams are turned off."""
        if final:
            self._answer(data, status)
        elif is_notification(data):
            self.http.count(telemetry.Dropped(kind="json_only", session=self.http.session.id))
        elif self.http.listening:
            self.http.post(data)
        else:
            # A request to the client could never be answered: answer it with an error here.
            frame = decode(data)
            assert isinstance(frame, Request)
            text = "the client listens to no stream that this could be asked on (json_only)"
            refusal = Error(frame.id, INTERNAL_ERROR, text)
            self.http.session.inbox.post_nowait(Received(refusal, self))

    def _finished(self) -> None:
        if self.http.posts.pop(self.name, None) is not None:
            self.parts.admission.leave(self.head)
        if self._grace is not None:
            self._grace.cancel()
        callback, self.on_answer = self.on_answer, None
        if callback is not None:
            callback()

    # -- for the engine

    async def reply(self) -> Plain | Stream:
        """Wait for the response."""
        plain = await self._wait(self._open, self._abandon)
        if plain is not None:
            return plain
        http, request_id = self.http, self.frame.id if type(self.frame) is Request else None
        if self.phase is ReplyPhase.STREAMING:
            whole = self._whole()
            if whole is not None:
                return Plain(200, WHOLE_EVENTS + self.headers if self.headers else WHOLE_EVENTS, whole)
            try:
                await http.prepare_cursor(self.name)
                response = self._connect()
                response.request_id = request_id
                return Stream(200, EVENTS + self.headers, response)
            except UnknownCursor:  # the session and its streams have just ended, or the store has dropped the stream
                self.detached()
                if not http.closed and http.session.ended is None:
                    return refuse(500, LOST, code=INTERNAL_ERROR, request_id=request_id)
            except BaseException:
                self._abandon()
                raise
        if http.goes_on:
            return may_have_run(self.frame)  # another worker has the session now, but not this call
        if http.session.ended is Cause.CRASH and request_id is not None:
            # Not 404, for which a client repeats the call in a new session: the call may be what ended this one.
            return refuse(500, CRASHED, code=INTERNAL_ERROR, request_id=request_id, data=MAY_HAVE_RUN)
        if http.closed or http.session.ended is not None:
            return unknown_session()
        # basic/utilities/cancellation: a cancelled request gets no response. HTTP needs one: send an empty one.
        return Plain(202) if self.parts.config.json_only else Plain(200, WHOLE_EVENTS + self.headers, b":\n\n")

    def _abandon(self) -> None:
        """Handle the end of the request before it was answered."""
        # The client has no event id to resume with; the call continues anyway.
        if self.phase is ReplyPhase.PENDING:
            self.phase = ReplyPhase.OVER
        else:
            self.detached()

    def _whole(self) -> bytes | None:
        """Return the whole stream if the response came first and can be sent at once; otherwise None."""
        # With a durable store, only once the event is stored.
        if not self.answer or self._close_wanted or self.parts.store.durable:
            return None
        return self.http.whole(self.answer, self.log)

    def _connect(self) -> ClientConnection:
        """Connect the first response to the stream."""
        connection = self.http.follow(self.name, 0, self.log, prime=True, remote=self.head.remote)
        if self._close_wanted:
            connection.say_retry()
            connection.close()
        return connection

    # -- lost connections

    def detached(self) -> None:
        """Note that no connection follows this stream any more; the call continues for `resume_grace`."""
        session = self.http.session
        if self.log is None:
            return
        self.log.lost(None)
        if not self.log.ended and session.ended is None:
            session.background.start(self._give_up_later)

    def attached(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    async def _give_up_later(self) -> None:
        session = self.http.session
        era = session.peer.era
        cancels = era is not None and era.http.disconnect_cancels
        if self._grace is not None or self.log is None or self.log.ended or self.log.connection is not None:
            return  # the client has reconnected
        with trio.CancelScope() as self._grace:
            await trio.sleep(0 if cancels else self.parts.config.resume_grace)
            while not session.inbox.post_nowait(LinkLost(self)):  # noqa: ASYNC110 - a full inbox empties at once
                await trio.sleep(0.05)
