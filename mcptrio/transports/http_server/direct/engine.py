"""The direct engine: plain requests for the endpoint are answered straight from the connection, without ASGI.

Theory of operation. The gate reads and checks each request as it does for Hypercorn. One task serves a connection: it
takes a request, asks the endpoint, writes the response, and takes the next one. So pipelined requests are answered in
order. No task watches for a disconnect until a call has lasted `stream_after`; then a watcher starts.

Everything else (TLS, another path, a WebSocket, a chunked body, `Expect`, HTTP/1.0) is handed to the Hypercorn engine
together with the bytes that were read, and so is the rest of that connection. So is a request that arrives in the
moment in which the wait for it was cancelled: it needs a cancel scope that is still open.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from math import inf
from typing import Final

import trio

from mcptrio._actors.lending import run_in
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.admission import SMALL
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint, Undecided
from mcptrio.transports.http_server.endpoint.message import CLOSE, HttpRequest, Plain, Stream, for_page
from mcptrio.transports.http_server.endpoint.post import Pending
from mcptrio.transports.http_server.endpoint.refusals import report_refusal, report_served
from mcptrio.transports.http_server.listener.containment import is_failure, report_failure
from mcptrio.transports.http_server.listener.framing import RawHead, Refusal
from mcptrio.transports.http_server.listener.gate import RawRequest, ReadPhase
from mcptrio.transports.http_server.listener.guarded_stream import WRITE_PIECE, GuardedStream, Serve

from .writer import LAST_CHUNK, Writer, chunk

_METHODS: Final = {b"POST": "POST", b"GET": "GET", b"DELETE": "DELETE", b"OPTIONS": "OPTIONS"}
_FAILED: Final = Plain(500, ((b"content-type", b"text/plain; charset=utf-8"), CLOSE), b"internal error\n")
_SOON: Final = 0.005  # events that a stream has within this time leave together with its head


class DirectEngine:
    """The direct engine: serves plain connections and hands the others to the Hypercorn engine.

    Borrows: the endpoint.
    """

    def __init__(self, endpoint: Endpoint, config: HttpConfig) -> None:
        self._endpoint = endpoint
        self._config = config
        self._path = config.path.encode()
        other = self._path[:-1] if self._path.endswith(b"/") else self._path + b"/"
        self._paths = (self._path, other)
        self._writer = Writer()
        self._hypercorn: Serve | None = None

    async def serve(self, guarded: GuardedStream) -> None:
        """Serve one connection until it ends."""
        if guarded.tls:
            await self._hand_over(guarded)
            return
        try:
            ended: RawRequest | Refusal | bool = False
            with guarded.reading() as scope:
                ended = await self._serve_all(guarded, scope)
            if scope.cancelled_caught:
                await guarded.give_up()
            elif isinstance(ended, RawRequest):
                guarded.push_back(ended)
                await self._hand_over(guarded)
            elif isinstance(ended, Refusal):
                await guarded.refuse(ended)
            elif ended:
                await guarded.finish()
                await guarded.receive_some()  # reads what the peer may still be sending
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer is gone
        finally:
            guarded.kill()

    async def _hand_over(self, guarded: GuardedStream) -> None:
        """Let the Hypercorn engine serve the rest of a connection."""
        if self._hypercorn is None:
            # In a thread: the first import takes longer than any request may hold the event loop.
            self._hypercorn = await trio.to_thread.run_sync(_make_hypercorn, self._endpoint, self._config)
        await self._hypercorn(guarded)

    async def _serve_all(self, guarded: GuardedStream, scope: trio.CancelScope) -> RawRequest | Refusal | bool:
        """Serve request after request.

        Return a request for the Hypercorn engine, a refusal that ends the connection, whether to close it properly.
        """
        while True:
            found = await guarded.next_request(scope)
            if found is None:
                return False
            if isinstance(found, Refusal):
                return found
            if guarded.interrupted:  # a moment too late: nothing starts in a cancelled scope
                guarded.timer.set(inf)
                return found
            if not self._is_plain(found.head):
                return found
            if not await self._serve(guarded, found):
                return True
            guarded.release()
            if guarded.draining:
                return True

    def _is_plain(self, head: RawHead) -> bool:
        target = head.target
        return (
            (target == self._path or target.partition(b"?")[0] in self._paths)
            and head.method in _METHODS
            and head.version == b"1.1"
            and not head.chunked
            and not head.expects_continue
            and not head.websocket
            and (head.method == b"POST" or not head.content_length)
        )

    # -- one request

    async def _serve(self, guarded: GuardedStream, raw: RawRequest) -> bool:
        """Answer a request; return False when the connection ends with it."""
        head = raw.head
        request = HttpRequest(
            method=_METHODS[head.method],
            path=self._config.path,
            headers=head.headers,
            query=head.target.partition(b"?")[2],
            target=head.target,
            client=guarded.address,
            began=trio.current_time() if self._config.access_log else 0.0,
        )
        keep_alive = b"connection" not in head.fields or b"close" not in head.tokens(b"connection")
        try:
            reply = await self._reply(guarded, request, raw)
            if isinstance(reply, Pending):
                reply = await reply.reply()
        except BaseException as error:  # noqa: BLE001 - reported, and answered with 500
            reply = self._failed(error, guarded, request)
        return await self._send(guarded, request, reply, keep_alive)

    def _failed(self, error: BaseException, guarded: GuardedStream, request: HttpRequest) -> Plain:
        """Report the failure of a request and return the response to it; raise what is no failure of the request."""
        if not is_failure(error):
            self._endpoint.admission.release_body(request)
            raise error
        report_failure(error, guarded.hub, guarded.client)
        return _FAILED

    async def _reply(
        self, guarded: GuardedStream, request: HttpRequest, raw: RawRequest
    ) -> Plain | Stream | Undecided | None:
        """Read the body and ask the endpoint; return None if the peer went away."""
        endpoint = self._endpoint
        refusal = endpoint.refuse_early(request)
        if refusal is None and endpoint.authenticator is not None:
            request.context = copy_context()  # the authenticator's context variables are for this request only
            refusal = await run_in(request.context, endpoint.authenticate(request))
        guarded.set_owner(request.owner)
        if request.owner != endpoint.runtime.turns.only_owner:
            await endpoint.runtime.turns.take(request.owner)
        if refusal is not None:
            return refusal
        body: bytes | Plain | None = raw.body
        if guarded.gate.phase is ReadPhase.BODY:
            body = await self._read_body(guarded, request, raw)
        if not isinstance(body, bytes):
            return body
        if self._config.json_only and request.method == "POST":
            return await endpoint.answer_watched(request, body, partial(_wait_for_disconnect, guarded))
        return await endpoint.answer(request, body)

    async def _read_body(self, guarded: GuardedStream, request: HttpRequest, raw: RawRequest) -> bytes | Plain | None:
        """Read a body to its end; return a refusal if it takes too long, None if the peer went away."""
        endpoint, parts, size, reserved_at = self._endpoint, [raw.body], len(raw.body), 0.0
        with trio.move_on_after(self._config.body_timeout) as waiting:
            while guarded.gate.phase is ReadPhase.BODY:
                if size > SMALL and not request.body_memory:
                    waiting.deadline = inf  # the client does not cause this wait
                    if not await endpoint.admission.reserve_body(request):
                        return endpoint.no_room()
                    reserved_at = trio.current_time()
                if request.body_memory:
                    waiting.deadline = endpoint.admission.body_deadline(reserved_at, size)
                part = b""
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    part = await guarded.receive_some()
                if not part:
                    return None
                size += len(part)
                parts.append(part)
            return b"".join(parts)
        return endpoint.timed_out()

    # -- responses

    async def _send(
        self, guarded: GuardedStream, request: HttpRequest, reply: Plain | Stream | None, keep_alive: bool
    ) -> bool:
        """Write the response; return whether the connection goes on."""
        self._endpoint.admission.release_body(request)  # the client may be slow to read the answer
        if reply is None:
            return False
        if guarded.draining or guarded.gate.requests >= self._config.keep_alive_max_requests:
            keep_alive = False
        if isinstance(reply, Stream):
            head = self._writer.head(reply.status, reply.headers + request.cors, None, keep_alive=keep_alive)
            try:
                return await self._send_stream(guarded, reply, head) and keep_alive
            finally:
                if request.began:
                    self._log(request, reply.status)
        # A body that was not read to its end would be taken for the next request.
        keep_alive = keep_alive and guarded.gate.phase is ReadPhase.BUSY and CLOSE not in reply.headers
        if reply.status >= 400:
            report_refusal(guarded.hub, request, reply)
        if request.cors:
            reply = for_page(request, reply)
        if len(reply.body) <= WRITE_PIECE:
            await guarded.send_soon(self._writer.whole(reply, keep_alive=keep_alive))
        else:
            head = self._writer.head(reply.status, reply.headers, len(reply.body), keep_alive=keep_alive)
            await _send_in_pieces(guarded, head, reply.body, bytes)
        if request.began:
            self._log(request, reply.status)
        return keep_alive

    def _log(self, request: HttpRequest, status: int) -> None:
        report_served(self._endpoint.runtime.hub, request, status, trio.current_time() - request.began)

    async def _send_stream(self, guarded: GuardedStream, reply: Stream, head: bytes) -> bool:
        """Write the head and events until there are no more; return False if the peer is gone."""
        events, unsent, cause = reply.events, head, "failed"
        data: bytes | None
        try:
            # Most streams are short: a watcher starts only after a while.
            watch_from = trio.current_time() + self._config.stream_after
            wait = min(_SOON, self._config.stream_after)
            while True:
                over, data = False, b""
                with trio.move_on_at(min(trio.current_time() + wait, watch_from)):
                    data = await events.next()
                    over = data is None or events.over
                if data and len(data) > WRITE_PIECE:
                    await _send_in_pieces(guarded, unsent, data, chunk)
                    unsent = b""
                elif data:
                    unsent += chunk(data)
                if over:
                    await guarded.send_soon(unsent + LAST_CHUNK)
                    cause = "done"
                    return True
                wait = self._config.stream_after
                if unsent:
                    await guarded.send_soon(unsent)
                    unsent = b""
                if trio.current_time() >= watch_from:
                    break
            gone = True
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, guarded, nursery.cancel_scope)
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    while (data := await events.next()) is not None:
                        await _send_in_pieces(guarded, b"", data, chunk)
                    gone = False
                nursery.cancel_scope.cancel()
            if gone:
                cause = "disconnected"
                return False
            await guarded.send_soon(LAST_CHUNK)
            cause = "done"
            return True
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            cause = "disconnected"
            raise
        finally:
            events.detach(cause)


async def _send_in_pieces(guarded: GuardedStream, head: bytes, data: bytes, frame: Callable[[bytes], bytes]) -> None:
    """Write the head and the data, of which each piece is framed by itself."""
    if len(data) <= WRITE_PIECE:
        await guarded.send_soon(head + frame(data))
        return
    with guarded.keeping(len(data)):
        for at in range(0, len(data), WRITE_PIECE):
            await guarded.send_soon(head + frame(data[at : at + WRITE_PIECE]))
            head = b""


def _make_hypercorn(endpoint: Endpoint, config: HttpConfig) -> Serve:
    from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
    from mcptrio.transports.http_server.hypercorn.connection import HypercornEngine

    return HypercornEngine(AsgiApp(endpoint), config).serve


@trio.lowlevel.enable_ki_protection
async def _watch(guarded: GuardedStream, scope: trio.CancelScope) -> None:
    await _wait_for_disconnect(guarded)
    scope.cancel()


async def _wait_for_disconnect(guarded: GuardedStream) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # treat a reset as a disconnect
        while await guarded.receive_some():  # the gate holds what arrives meanwhile
            pass
