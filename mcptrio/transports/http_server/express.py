"""The express lane: requests for the endpoint answered straight from the connection, without ASGI.

Theory of operation. The gate reads, checks and follows each request exactly as it does for Hypercorn, with the same
parser and the same table of checks; here its head goes to the exchange instead of being written anew for another
parser. One task serves a connection: it reads a request, asks the exchange, writes the answer, and reads on. So a
request that waits behind another waits in the socket, in order. The handler runs in the same task; if it waits for
something it keeps the task, and a new one takes over the connection in the middle of the request. Nobody watches for a
disconnect until a call has lasted `stream_after`; then a watcher is started beside it. Whatever is not a plain request
for the endpoint (another path, a WebSocket, a chunked body, `Expect`, HTTP/1.0) is handed to Hypercorn together with
what was read of it, and so is everything after it on that connection. So is a request that came in the very moment in
which the time to wait for it was over: it needs a scope that was not cancelled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from http import HTTPStatus
from math import inf
from time import time
from typing import Final, TypeAlias
from wsgiref.handlers import format_date_time

import trio
from attrs import define

from mcptrio._actors.eager import run_eagerly

from . import framing
from .answer import Endpoint
from .bodies import SMALL
from .gate import Phase
from .guarded import AppFailed, GuardedStream, Report
from .message import CLOSE, ELSEWHERE, EVENTS, JSON, Head, Headers, Loan, Plain, Rest, Stream
from .serve import ListenerConfig

_METHODS: Final = {b"POST": "POST", b"GET": "GET", b"DELETE": "DELETE"}
_FAILED: Final = Plain(500, ((b"content-type", b"text/plain; charset=utf-8"), CLOSE), b"internal error\n")
_STATUS_LINES: Final = {s.value: b"HTTP/1.1 %d %b\r\n" % (s.value, s.phrase.encode()) for s in HTTPStatus}
_USUAL: Final = {  # by identity: most answers have one of these
    id(headers): b"HTTP/1.1 200 OK\r\n"
    + b"".join(b"%b: %b\r\n" % header for header in headers)
    + b"content-length: %d\r\n%b%b"
    for headers in (JSON, EVENTS)
}
_LAST_CHUNK: Final = b"0\r\n\r\n"
_SOON: Final = 0.005  # what a stream says within so long leaves together with its head

HandOver: TypeAlias = Callable[[GuardedStream], Awaitable[None]]
PassOn: TypeAlias = Callable[[GuardedStream, "Unfinished"], None]


@define(eq=False, repr=False)
class Known:
    """What the client of a connection repeats with every request."""

    parsed: framing.Head
    head: Head
    keeps: bool
    """It does not ask to close the connection."""
    loan: Loan | None = None
    """The connection's task, while it has one to lend."""


@define(eq=False, repr=False)
class Unfinished:
    """A request whose handler has kept the task that brought it."""

    head: Head
    keeps: bool
    rest: Rest


class Express:
    """Serves the connections of one listener as far as they are plain.

    Lent: the endpoint, the connections. `hand_over` serves a connection that is not plain from there on; `pass_on` has
    another task call `run`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        config: ListenerConfig,
        report: Report,
        hand_over: HandOver,
        pass_on: PassOn,
        is_draining: Callable[[], bool],
    ) -> None:
        self.endpoint = endpoint
        self.config = config
        self.report = report
        self.hand_over = hand_over
        self.pass_on = pass_on
        self.is_draining = is_draining
        self._path = endpoint.config.path.encode()
        self._path_and_query = self._path + b"?"
        self._date = b""
        self._second = 0

    async def run(self, guarded: GuardedStream, unfinished: Unfinished | None = None) -> None:
        """Serve one connection until it ends, or until it turns out not to be plain.

        With a request that is unfinished: in place of a task that its handler has kept.
        """
        if guarded.tls:
            await self.hand_over(guarded)
            return
        turn = guarded.turn
        try:
            ended: framing.Head | framing.Refusal | bool | None = None
            with guarded.reading() as scope:
                ended = await self._serve_all(guarded, scope, unfinished)
            if guarded.turn != turn:
                return
            if scope.cancelled_caught:
                await guarded.give_up()
            elif isinstance(ended, framing.Head):
                guarded.push_back(ended)
                await self.hand_over(guarded)
            elif isinstance(ended, framing.Refusal):
                await guarded.refuse(ended)
            elif ended:
                await guarded.finish()
                await guarded.receive_some()  # reads away what a peer may still be sending
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer is gone
        finally:
            if guarded.turn == turn:
                guarded.kill()

    async def _serve_all(
        self, guarded: GuardedStream, scope: trio.CancelScope, unfinished: Unfinished | None
    ) -> framing.Head | framing.Refusal | bool:
        """Serve request after request. A head is Hypercorn's, a refusal ends the connection, and so does True."""
        turn = guarded.turn
        known: Known | None = None
        while True:
            if unfinished is None:
                found = await guarded.next_head(scope)
                if found is None:
                    return False
                if guarded.interrupted:  # a moment too late: nothing is begun in a scope that was cancelled
                    guarded.wait_until(inf)
                    return found
                if known is None or found is not known.parsed:
                    if isinstance(found, framing.Refusal) or not self._is_plain(found):
                        return found
                    known = self._know(guarded, found)
                goes_on = await self._serve(guarded, scope, known)
            else:
                goes_on = await self._finish(guarded, unfinished)
                unfinished = None
            if not goes_on or guarded.turn != turn:
                return True
            guarded.release()
            if self.is_draining():
                return True

    def _is_plain(self, head: framing.Head) -> bool:
        target = head.target
        return (
            (target == self._path or target.startswith(self._path_and_query))
            and head.method in _METHODS
            and head.version == b"1.1"
            and not head.chunked
            and not head.expects_continue
            and not head.websocket
            and (head.method == b"POST" or not head.content_length)
        )

    def _know(self, guarded: GuardedStream, parsed: framing.Head) -> Known:
        keeps = b"connection" not in parsed.fields or b"close" not in parsed.tokens(b"connection")
        head = Head(
            method=_METHODS[parsed.method],
            path=self.endpoint.config.path,
            headers=list(parsed.headers),
            query=parsed.target.partition(b"?")[2],
            target=parsed.target,
            client=guarded.address,
        )
        return Known(parsed, head, keeps)

    # -- one request

    async def _serve(self, guarded: GuardedStream, scope: trio.CancelScope, known: Known) -> bool:
        """Answer a request; False when the connection ends with it, or goes on in another task."""
        head = known.head
        if self.endpoint.authenticator is not None:  # each one is checked for itself
            head = known.head = self._know(guarded, known.parsed).head
        keeps = known.keeps and guarded.gate.requests < self.config.keep_alive_max_requests
        loan = known.loan
        if loan is None:
            loan = known.loan = Loan(scope, partial(self._carry_on, guarded, known))
        try:
            replying = self._reply(guarded, head, known.parsed, loan)
            if self.endpoint.authenticator is None:
                reply = await replying
            else:  # what it leaves in its context variables is for this request
                reply = await run_eagerly(replying, copy_context(), _stay)
        except Exception as error:  # reported, and answered with 500
            if loan.taken:
                raise
            self.report(AppFailed(client=guarded.client, error=error))
            reply = _FAILED
        except BaseException:
            if not loan.taken:
                self.endpoint.bodies.leave(head)
            raise
        if reply is ELSEWHERE:
            return False
        loan.rest = None  # an idle connection shall not hold on to its last request
        return await self._send(guarded, head, reply, keeps)

    def _carry_on(self, guarded: GuardedStream, known: Known, rest: Rest) -> None:
        """The handler keeps the task: the connection needs another one."""
        guarded.turn += 1
        keeps = known.keeps and guarded.gate.requests < self.config.keep_alive_max_requests
        self.pass_on(guarded, Unfinished(known.head, keeps, rest))

    async def _finish(self, guarded: GuardedStream, unfinished: Unfinished) -> bool:
        reply: Plain | Stream | None = None
        try:
            reply = await unfinished.rest()
        except Exception as error:  # noqa: BLE001  reported, and answered with 500
            self.report(AppFailed(client=guarded.client, error=error))
            reply = _FAILED
        finally:
            if reply is None:
                self.endpoint.bodies.leave(unfinished.head)
        return await self._send(guarded, unfinished.head, reply, unfinished.keeps)

    async def _send(self, guarded: GuardedStream, head: Head, reply: Plain | Stream | None, keeps: bool) -> bool:
        try:
            if reply is None:
                return False
            goes_on = keeps and not self.is_draining()
            if type(reply) is Stream:
                self.endpoint.bodies.leave(head)
                return await self._send_stream(guarded, reply, goes_on) and goes_on
            assert isinstance(reply, Plain)
            goes_on = goes_on and guarded.gate.phase is Phase.BUSY
            usual = _USUAL.get(id(reply.headers)) if reply.status == 200 and goes_on else None
            if usual is not None:
                data = usual % (len(reply.body), self._date_line(), reply.body)
            else:
                goes_on = goes_on and CLOSE not in reply.headers
                data = self._head(reply.status, reply.headers, goes_on, len(reply.body)) + reply.body
            unsent = guarded.send_now(data)
            if unsent:
                await guarded.send_all(unsent)
            return goes_on
        finally:
            self.endpoint.bodies.leave(head)

    async def _reply(
        self, guarded: GuardedStream, head: Head, parsed: framing.Head, loan: Loan
    ) -> Plain | Stream | None:
        """What the exchange says; None if the peer went away."""
        endpoint = self.endpoint
        refusal = endpoint.refuse_early(head)
        if refusal is None and endpoint.authenticator is not None:
            refusal = await endpoint.authenticate(head)
        if refusal is not None:
            return refusal
        body = guarded.gate.take_body()
        if guarded.gate.phase is Phase.BODY:
            parts = [body]
            if parsed.content_length > SMALL and not await endpoint.bodies.enter(head):
                return endpoint.no_room()
            with trio.move_on_after(endpoint.config.body_timeout) as waiting:
                while guarded.gate.phase is Phase.BODY:
                    part = b""
                    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                        part = await guarded.receive_some()
                    if not part:
                        return None
                    parts.append(part)
            if waiting.cancelled_caught:
                return endpoint.timed_out()
            body = b"".join(parts)
        if len(body) > endpoint.config.max_body:
            return endpoint.too_large()
        if head.method != "POST":
            return await endpoint.answer(head, body)
        if endpoint.config.json_only:
            return await self._answer_watched(guarded, head, body)
        return await endpoint.post(head, body, loan)

    async def _answer_watched(self, guarded: GuardedStream, head: Head, body: bytes) -> Plain | Stream | None:
        """The answer where no stream is opened meanwhile that would notice a disconnect; None after one."""
        reply: Plain | Stream | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, guarded, nursery.cancel_scope)
            reply = await self.endpoint.answer(head, body)
            nursery.cancel_scope.cancel()
        return reply

    # -- answers

    def _head(self, status: int, headers: Headers, goes_on: bool, length: int | None) -> bytes:
        parts = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        for name, value in headers:
            if name != b"connection":
                parts.append(b"%b: %b\r\n" % (name, value))
        parts.append(b"transfer-encoding: chunked\r\n" if length is None else b"content-length: %d\r\n" % length)
        if not goes_on:
            parts.append(b"connection: close\r\n")
        parts.append(self._date_line())
        return b"".join(parts)

    def _date_line(self) -> bytes:
        now = int(time())
        if now != self._second:
            self._second = now
            self._date = f"date: {format_date_time(now)}\r\n\r\n".encode()
        return self._date

    async def _send_stream(self, guarded: GuardedStream, reply: Stream, goes_on: bool) -> bool:
        """Write events until there are no more; False if the peer did not take them."""
        events = reply.events
        unsent = self._head(reply.status, reply.headers, goes_on, None)
        cause = "failed"
        try:
            # Most streams are short: for a while nobody looks whether the peer is still there.
            watch_from = trio.current_time() + self.endpoint.config.stream_after
            patience = min(_SOON, self.endpoint.config.stream_after)
            while True:
                over = False
                with trio.move_on_at(min(trio.current_time() + patience, watch_from)):
                    chunk = await events.next()
                    if chunk is not None:
                        unsent += b"%x\r\n%b\r\n" % (len(chunk), chunk)
                    over = chunk is None or events.over
                if over:
                    await guarded.send_soon(unsent + _LAST_CHUNK)
                    cause = "done"
                    return True
                patience = self.endpoint.config.stream_after
                if unsent:
                    await guarded.send_soon(unsent)
                    unsent = b""
                if trio.current_time() >= watch_from:
                    break
            gone = True
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, guarded, nursery.cancel_scope)
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    while (chunk := await events.next()) is not None:
                        await guarded.send_soon(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                    gone = False
                nursery.cancel_scope.cancel()
            if gone:
                cause = "disconnected"
                return False
            await guarded.send_soon(_LAST_CHUNK)
            cause = "done"
            return True
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            cause = "disconnected"
            raise
        finally:
            events.detach(cause)


def _stay() -> None:
    """The request waits, and its connection with it."""


@trio.lowlevel.enable_ki_protection
async def _watch(guarded: GuardedStream, scope: trio.CancelScope) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # a reset is a way to go
        while await guarded.receive_some():  # what comes meanwhile is held by the gate
            pass
    scope.cancel()
