"""The WebSocket transport, server side: one session per socket, one text message per JSON-RPC message.

No revision of the specification defines it; the subprotocol `mcp` names it. Host, Origin and credentials are checked
before the handshake is accepted, with the same guard as for HTTP: a web page may open a socket to any address, and
only the server checks where the page comes from.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import trio
from attrs import define, frozen

from mcptrio import telemetry
from mcptrio._actors.outbox import Outbox
from mcptrio._actors.session import Session
from mcptrio._peer.messages import Cause
from mcptrio._wire.jsonrpc import AnyFrame
from mcptrio.errors import Overloaded, RemoteProtocolError
from mcptrio.transports.http_server.endpoint.admission import SMALL, Admission
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.event_stream import time_left
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain, refuse, refuse_overloaded
from mcptrio.transports.http_server.endpoint.message_memory import MessageMemory
from mcptrio.transports.http_server.endpoint.refusals import report_refusal
from mcptrio.transports.http_server.hypercorn.asgi import MEMORY_EXTENSION, Receive, Scope, Send, head_of, set_owner
from mcptrio.transports.pipe.server import Pipe, PipeLimits, serve_pipe

logger = logging.getLogger("mcptrio.websocket")

SUBPROTOCOL: Final = "mcp"


# RFC 6455 section 7.4.1, and the IANA registry of close codes
NORMAL: Final = 1000
GOING_AWAY: Final = 1001
UNSUPPORTED_DATA: Final = 1003
NOT_ALLOWED: Final = 1008
TOO_BIG: Final = 1009
INTERNAL: Final = 1011
TRY_AGAIN_LATER: Final = 1013

_CLOSE_CODES: Final = {Cause.DRAIN: GOING_AWAY, Cause.CRASH: INTERNAL}
_GOODBYE: Final = 1.0  # seconds for the closing frame


async def serve_websocket(endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one ASGI WebSocket connection until either side closes it."""
    await receive()  # websocket.connect
    head = head_of({**scope, "method": "GET"}, endpoint.config)
    refusal = _refuse(endpoint, head, scope) or await endpoint.authenticate(head) or _check_room(endpoint, head)
    if refusal is not None:
        report_refusal(endpoint.runtime.hub, head, refusal)
        await _send_refusal(refusal, scope, send)
        return
    set_owner(scope, head.owner)
    with _message_memory(endpoint, head, scope) as memory:  # first: a message may follow the handshake at once
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL, "headers": []})
        await _serve_session(endpoint, head, receive, send, memory)


@contextmanager
def _message_memory(endpoint: Endpoint, head: HttpRequest, scope: Scope) -> Iterator[MessageMemory | None]:
    """Bound the memory of large messages, if the ASGI server does that; others have limits of their own."""
    use = scope.get("extensions", {}).get(MEMORY_EXTENSION, {}).get("use")
    if use is None:
        yield None
        return
    memory = MessageMemory(endpoint.admission, head.owner)
    use(memory)
    try:
        yield memory
    finally:
        memory.close()


async def _serve_session(
    endpoint: Endpoint, head: HttpRequest, receive: Receive, send: Send, memory: MessageMemory | None
) -> None:
    config = endpoint.config
    pipe = WebSocketPipe(
        receive,
        send,
        partial(endpoint.runtime.turns.take, head.owner),
        max_message=config.max_body,
        write_timeout=config.write_timeout,
        memory=memory,
    )
    code = GOING_AWAY  # if this is cancelled
    try:
        with trio.move_on_after(time_left(head)) as lease:
            bounds = _Bounds(endpoint.admission, head.identity)
            session = await serve_pipe(
                endpoint.runtime,
                pipe,
                transport="websocket",
                principal=head.principal,
                owner=head.owner,
                head=head,
                limits=PipeLimits(json=config.json_limits),
                bounds=bounds,
            )
            code = _CLOSE_CODES.get(session.ended or Cause.SESSION_END, NORMAL)
        if lease.cancelled_caught:
            code = NOT_ALLOWED
    except Overloaded:  # the last slot was taken meanwhile
        code = TRY_AGAIN_LATER
    finally:
        if pipe.fault == TOO_BIG and (hub := endpoint.runtime.hub):
            hub.emit(telemetry.LimitHit(name="websocket_message"))
        await pipe.close(code)


def _refuse(endpoint: Endpoint, head: HttpRequest, scope: Scope) -> Plain | None:
    refusal = endpoint.guard.check_sender(head)
    if refusal is not None:
        return refusal
    if head.path != endpoint.config.path:
        return refuse(404, f"nothing is served here; the endpoint is {endpoint.config.path} (HttpConfig.path)")
    if SUBPROTOCOL not in scope.get("subprotocols", ()):
        return refuse(400, f"Sec-WebSocket-Protocol must offer {SUBPROTOCOL}")
    return None


def _check_room(endpoint: Endpoint, head: HttpRequest) -> Plain | None:
    try:
        endpoint.runtime.supervisor.check_room(head.owner)
        endpoint.admission.check_sessions(head.identity)
    except Overloaded as error:
        return refuse_overloaded(error)
    return None


@frozen
class _Bounds:
    """The limits of the principal of a socket."""

    admission: Admission
    who: str

    def opened(self, session: Session, outbox: Outbox) -> None:
        self.admission.carry(session, self.who)
        outbox.unread, outbox.owner = self.admission.unread, session.owner
        outbox.on_cut = partial(session.close_nowait, Cause.DISCONNECT)

    def check(self, session: Session, frame: AnyFrame) -> None:
        self.admission.check_carried(session, self.who, frame)


async def _send_refusal(refusal: Plain, scope: Scope, send: Send) -> None:
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": NORMAL})  # before accept: the server answers 403
        return
    headers = [*refusal.headers, (b"content-length", b"%d" % len(refusal.body))]
    await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": refusal.body, "more_body": False})


@define(eq=False, repr=False)
class WebSocketPipe(Pipe):
    """A pipe of whole messages over an accepted socket."""

    _receive: Receive
    _send: Send
    _take_turn: Callable[[], Awaitable[None]]
    max_message: int
    write_timeout: float
    memory: MessageMemory | None = None
    """The memory of large messages, if the ASGI server reserves it."""
    gone: bool = False
    """Whether the peer closed the socket."""
    fault: int | None = None
    """The close code for what the peer did wrong."""
    _large: bool = False
    """Whether the last message holds memory."""

    async def receive(self) -> Sequence[bytes | RemoteProtocolError]:
        if self._large and self.memory is not None:  # the last message was handled
            self._large = False
            self.memory.handled()
        event = await self._receive()
        if event["type"] != "websocket.receive":
            self.gone = True
            return ()
        text = event.get("text")
        if text is None:
            self.fault = UNSUPPORTED_DATA
            return ()
        await self._take_turn()
        data: bytes = text.encode()
        self._large = len(data) > SMALL  # the measure of the ASGI server, see `WebSocket`
        if len(data) > self.max_message:
            self.fault = TOO_BIG
            return ()
        return (data,)

    async def send(self, messages: list[bytes]) -> None:
        messages.reverse()
        while messages:
            if self.gone or self.fault is not None:
                raise trio.BrokenResourceError("the socket is closed")
            with trio.move_on_after(self.write_timeout) as timeout:  # the bytes of a message are freed when it is text
                await self._send({"type": "websocket.send", "text": messages.pop().decode()})
            if timeout.cancelled_caught:
                self.fault = TRY_AGAIN_LATER
                raise trio.BrokenResourceError("the peer does not read")

    async def close(self, code: int) -> None:
        """Send the close frame, unless the peer has closed; a fault of the peer decides the code."""
        if self.gone:
            return
        self.gone = True
        with trio.move_on_after(_GOODBYE, shield=True):
            await self._send({"type": "websocket.close", "code": self.fault or code, "reason": ""})
