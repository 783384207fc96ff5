"""The deprecated transport HTTP+SSE (2024-11-05), server side, next to the HTTP endpoint.

One connection is one session: GET opens both, and its first event names the address to POST to. When the connection
ends, the session ends too. There are no cursors, and no events are stored. In a cluster the directory knows which
worker has the connection, so that messages which reach another worker are forwarded to it.
"""

from __future__ import annotations

from functools import partial
from typing import Final
from urllib.parse import parse_qs

import trio
from attrs import define, field

from mcptrio import telemetry
from mcptrio._actors.outbox import Outbox
from mcptrio._actors.session import Session
from mcptrio._peer.messages import Cause
from mcptrio._peer.states import State
from mcptrio._wire.jsonrpc import LARGE_MESSAGE
from mcptrio._wire.sse import COMMENT, encode_event
from mcptrio.errors import ConnectionLost, Overloaded, RemoteProtocolError
from mcptrio.transports.decoding import decode_large, decode_small
from mcptrio.transports.http_server.endpoint.event_stream import leased
from mcptrio.transports.http_server.endpoint.guard import Guard
from mcptrio.transports.http_server.endpoint.message import (
    EVENTS,
    HttpRequest,
    Plain,
    Stream,
    id_of,
    refuse,
    refuse_frame,
    refuse_overloaded,
)
from mcptrio.transports.http_server.endpoint.parts import EndpointParts
from mcptrio.transports.http_server.endpoint.routing import Routing
from mcptrio.transports.http_server.endpoint.stateful import ACCEPTED, Sessions

_OPENING_TIME: Final = 60.0
"""Seconds until a stream whose client has not sent `initialize` is closed."""


@define(eq=False, repr=False, kw_only=True)
class LegacyLink:
    """The link of one HTTP+SSE session, and the events of its one stream."""

    per_request = False
    queued = 0.0
    confirmed = True

    parts: EndpointParts
    head: HttpRequest
    """The request that opened the stream."""
    identity: str
    outbox: Outbox
    opened: float
    session: Session = field(init=False)
    attached: bool = True
    _prologue: bytes = b""

    # -- the session's side

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        self.outbox.put(data)

    def end(self) -> None:
        self.outbox.close()

    @property
    def full(self) -> bool:
        return self.outbox.full

    async def room(self) -> None:
        await self.outbox.room()

    @property
    def resting(self) -> bool:
        return not self.attached

    def close_connection(self) -> None:
        pass

    def hide(self) -> None:
        pass

    # -- the connection's side

    def start(self, session: Session, uri: str) -> None:
        self.session = session
        self.outbox.on_cut = partial(self.detach, "not read")
        self._prologue = encode_event(uri, event="endpoint")

    @property
    def over(self) -> bool:
        return False  # it ends with its connection

    async def next(self) -> bytes | None:
        if self._prologue:
            chunk, self._prologue = self._prologue, b""
            return chunk
        try:
            with trio.move_on_after(self.parts.config.heartbeat):
                items = await self.outbox.take_some()
                return b"".join([encode_event(data, event="message") for data in items])
        except ConnectionLost:
            return None
        if self.session.peer.state is State.NEW and trio.current_time() - self.opened > _OPENING_TIME:
            return None
        return COMMENT

    def detach(self, cause: str) -> None:
        if not self.attached:
            return
        self.attached = False
        self.outbox.drop()
        self.session.close_nowait(Cause.DISCONNECT)
        hub = self.parts.hub
        if hub:
            hub.emit(telemetry.StreamClosed(session=self.session.id, cause=cause))


@define(eq=False, repr=False)
class LegacyEndpoint:
    """GET `sse_path` and POST `messages_path`, next to the endpoint."""

    parts: EndpointParts
    guard: Guard
    sessions: Sessions
    routing: Routing

    def refuse_early(self, head: HttpRequest) -> Plain | None:
        guard = self.guard
        wanted = "GET" if head.path == self.parts.config.sse_path else "POST"
        if head.method != wanted:
            refusal = guard.check_sender(head) or guard.check_preflight(head, wanted.encode())
            allowed = ((b"allow", wanted.encode()),)
            return refusal or refuse(405, f"only {wanted} is served here", headers=allowed)
        if wanted == "POST":
            return guard.check_post(head, ())  # answers come on the stream
        return guard.check_sender(head) or guard.check_accept(head, ("text/event-stream",))

    async def answer(self, head: HttpRequest, body: bytes) -> Plain | Stream:
        if head.method == "GET":
            return await self._open(head)
        return await self._deliver(head, body)

    async def _open(self, head: HttpRequest) -> Plain | Stream:
        parts = self.parts
        config = parts.config
        outbox = Outbox(config.outbox_events, config.outbox_bytes, parts.admission.unread, head.owner)
        link = LegacyLink(
            parts=parts,
            head=head,
            identity=head.identity,
            outbox=outbox,
            opened=trio.current_time(),
        )
        try:
            parts.runtime.supervisor.check_room(head.owner)
            parts.admission.check_sessions(link.identity)
            session = parts.runtime.new_session(link, transport="sse", principal=head.principal, owner=head.owner)
            if self.routing.cluster is not None:
                await self._register(session, link)
        except Overloaded as error:
            return refuse_overloaded(error, close=parts.draining)
        parts.admission.carry(session, link.identity)
        # 2024-11-05 basic/transports: the first event MUST hold a URI for the client to send messages to
        link.start(session, f"{head.root}{config.messages_path}?session_id={session.id}")
        hub = parts.hub
        if hub:
            hub.emit(telemetry.StreamOpened(session=session.id, resumed=False))
        return leased(head, Stream(200, EVENTS, link))

    async def _register(self, session: Session, link: LegacyLink) -> None:
        """Have the directory name this worker as the home; the session is pinned, because its connection is here.

        Raises:
            Overloaded: the store cannot be written at present.
        """
        runtime, store = self.parts.runtime, self.parts.store
        try:
            store.sessions.put(session.id, session.epoch, b"", owner=session.owner, pinned=True)
            if runtime.homes is not None:
                session.on_end.append(partial(runtime.homes.forget, session))
            await store.flush()  # the client learns the id only afterwards
            if store.degraded is not None:
                raise Overloaded("the store is not available", retry_after=1, limit="store")
        except BaseException:
            link.outbox.close()
            session.close_nowait(Cause.DISCONNECT)
            raise

    async def _deliver(self, head: HttpRequest, body: bytes) -> Plain:
        parts = self.parts
        try:
            if len(body) > LARGE_MESSAGE:
                frame = await decode_large(parts.runtime, head.owner, body, parts.config.json_limits)
            else:
                frame = decode_small(body, parts.config.json_limits)
        except RemoteProtocolError as error:
            return refuse_frame(error)
        ids = parse_qs(head.query.decode("latin-1")).get("session_id", [])
        if len(ids) != 1:
            return refuse(400, "session_id is missing: POST to the address that the endpoint event named")
        session = parts.runtime.supervisor.find(ids[0])
        if session is None and (elsewhere := await self.routing.message_elsewhere(ids[0], head, body, frame)):
            return elsewhere
        link = None if session is None else session.link
        if session is None or not isinstance(link, LegacyLink) or not self._owns(link, head):
            return refuse(404, "there is no such session; open a new stream")
        refusal = await parts.scopes.check(head, frame)
        if refusal is None:
            try:
                parts.admission.check_carried(session, link.identity, frame)
            except Overloaded as error:
                return refuse_overloaded(error, id_of(frame))
        return refusal or await self.sessions.hand_over(session, frame, link) or ACCEPTED

    def _owns(self, link: LegacyLink, head: HttpRequest) -> bool:
        return link.attached and link.parts is self.parts and link.identity == head.identity
