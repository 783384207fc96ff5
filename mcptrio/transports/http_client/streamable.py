"""Streamable HTTP, client side, for the stateful and the stateless revisions.

Every frame that is posted becomes a POST in a task of its own. Its answer, one JSON object or a stream of events, is
handed to the receiver; an exchange is over when the answer to its request has come. A stream that ends before that is
continued with GET and `Last-Event-ID` where the revision has that; otherwise the request fails. An error is reported as
the answer to the request that it happened to. To cancel a request, its exchange is closed; at the stateful revisions
`notifications/cancelled` is sent too.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import httpx2
import msgspec
import trio
from attrs import define, field, frozen
from msgspec.structs import replace

from mcptrio._eras.stateless import NAMED_BY, declared_date
from mcptrio._peer.era import Era
from mcptrio._wire.headers import encode_header_value, is_visible_ascii
from mcptrio._wire.jsonrpc import Batch, Error, Frame, Request, RequestId, encode
from mcptrio.errors import INTERNAL_ERROR, ConnectionLost, MCPTrioError, Overloaded, RemoteProtocolError
from mcptrio.telemetry.log import escape
from mcptrio.transports.client import (
    Receiver,
    SessionGone,
    answered_ids,
    decode_received,
    failure,
    hand_over,
    same_id,
)
from mcptrio.transports.http_client.auth import HttpAuth
from mcptrio.transports.http_client.http import (
    CANCELLED,
    EVENTS,
    JSON,
    Http,
    HttpClientConfig,
    HttpRefused,
    kind_of,
    lent_or_own,
)
from mcptrio.transports.http_client.stream import EventStream
from mcptrio.transports.http_status import meaning_of
from mcptrio.transports.retry import Reconnect, Retries

logger = logging.getLogger("mcptrio.client.http")

INITIALIZED: Final = "notifications/initialized"
_WARNINGS: Final = 5
_decode: Final = msgspec.json.Decoder().decode


@frozen(kw_only=True)
class HttpTransport:
    """Transport to a server with an http or https URL."""

    url: str
    headers: Mapping[str, str] = field(factory=dict)
    auth: HttpAuth | None = None
    config: HttpClientConfig = field(factory=HttpClientConfig)
    reconnect: Reconnect = field(factory=Reconnect)
    client: httpx2.AsyncClient | None = None
    """An httpx2 client of the caller to send with; it stays open."""
    name: str = "http"

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[HttpClientLink]:
        async with lent_or_own(self.client, self.config) as client, trio.open_nursery() as nursery:
            http = Http(client, self.url, self.config, self.reconnect, self.auth, self.headers)
            link = HttpClientLink(http, receiver, nursery)
            try:
                yield link
            finally:
                await link.delete_session()
                nursery.cancel_scope.cancel()


@define(eq=False, repr=False)
class HttpClientLink:
    """The link to one server, over many HTTP exchanges.

    Owns: the tasks of its exchanges.   Borrows: their nursery, the receiver, the HTTP client.
    """

    http: Http
    receiver: Receiver
    nursery: trio.Nursery
    full: bool = False
    """Never: every message has its own exchange, which ends when its caller gives up."""
    session_id: str | None = None
    _era: Era | None = None
    _exchanges: dict[RequestId, trio.CancelScope] = field(factory=dict)
    _confirmed: trio.Event = field(factory=trio.Event)
    _refused: Exception | None = None
    _stream_given_up: bool = False
    """Whether the server's own stream was given up; it is opened again after the next response."""
    _skipped: int = 0

    # -- the client's side

    def post(self, data: bytes) -> None:
        frame: dict[str, Any] = _decode(data)
        if frame.get("method") == CANCELLED:
            exchange = self._exchanges.get(frame.get("params", {}).get("requestId"))
            if exchange is None:
                return  # already answered or failed
            exchange.cancel()
            if self._era is None or not self._era.stateful:
                return  # 2026-07-28 basic/patterns/cancellation: closing the stream is the signal
        self.nursery.start_soon(self._carry, data, frame, name=frame.get("method", "answer"))

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()

    def use_era(self, era: Era) -> None:
        self._era = era

    async def confirmed(self) -> None:
        await self._confirmed.wait()
        if self._refused is not None:
            raise self._refused
        if self._era is not None and self._era.http.sessions:
            # A server need not keep messages while no stream is open: open it before the first request.
            stream = self._listen()
            with trio.move_on_after(self.http.config.listen_timeout):
                await stream.opened.wait()

    def _listen(self) -> EventStream:
        self._stream_given_up = False
        stream = self._new_stream()
        self.nursery.start_soon(self._read_stream, stream, name="standalone stream")
        return stream

    def _new_stream(self) -> EventStream:
        return EventStream(self.http.config.max_reply, Retries(self.http.reconnect))

    async def delete_session(self) -> None:
        """End the session at the server."""
        session_id, self.session_id = self.session_id, None
        if session_id is None:
            return
        # basic/transports: a client that leaves SHOULD delete the session
        headers = {**self._standing_headers(), "Mcp-Session-Id": session_id}
        with trio.move_on_after(self.http.config.goodbye_timeout, shield=True), suppress(MCPTrioError):
            async with self.http.send("DELETE", headers):
                pass

    # -- one exchange

    async def _carry(self, data: bytes, frame: dict[str, Any]) -> None:
        method, request_id = frame.get("method"), frame.get("id")
        try:
            if method is None or request_id is None:
                await self._post_message(data, frame)
                return
            with trio.CancelScope() as scope:
                self._exchanges[request_id] = scope
                try:
                    await self._ask(data, frame, request_id)
                finally:
                    del self._exchanges[request_id]
        except ConnectionLost as error:
            await self._fail(request_id if method is not None else None, method, error)
            if isinstance(error, SessionGone):
                self.session_id = None
                self.receiver.lost(str(error))
        except Exception as error:  # noqa: BLE001 - the caller sees it, also exceptions of the user's authorization
            await self._fail(request_id if method is not None else None, method, error)
            if "result" in frame:  # the handler that asked would wait for ever, and keep what others need
                refused = Error(request_id, INTERNAL_ERROR, f"the server did not accept the answer: {error}"[:1000])
                await self._carry(encode(refused), {"id": request_id})
        finally:
            if method == INITIALIZED:
                self._confirmed.set()

    async def _fail(self, request_id: RequestId | None, method: str | None, error: Exception) -> None:
        if request_id is not None:
            with suppress(ConnectionLost):
                await self.receiver.deliver(failure(request_id, error))
        elif method == INITIALIZED:
            self._refused = error
        else:
            logger.warning("%s was not accepted: %s", method or "an answer", escape(error, 1000))

    async def _post_message(self, data: bytes, frame: dict[str, Any]) -> None:
        """Send a notification or an answer."""
        # A response settles its id only once, and the protocol's notifications are idempotent, so both may be repeated.
        repeat = frame.get("method", "notifications/").startswith("notifications/")
        has_session = self.session_id is not None
        timeout = self.http.message_timeout(frame.get("method"))
        await self.http.post_message(
            data, partial(self._headers, frame), repeat=repeat, session=has_session, timeout=timeout
        )

    async def _ask(self, data: bytes, frame: dict[str, Any], request_id: RequestId) -> None:
        stream = self._new_stream()
        try:
            await self._exchange(stream, data, frame, request_id)
        except MCPTrioError:
            if stream.nameless is None:
                raise
            # No answer came, so the error is about the message that this exchange posted, which was the only one.
            await self.receiver.deliver(replace(stream.nameless, id=request_id))

    async def _exchange(self, stream: EventStream, data: bytes, frame: dict[str, Any], request_id: RequestId) -> None:
        broken: ConnectionLost | None = None
        async with self.http.send("POST", self._headers(frame), data) as response:
            if not response.is_success:
                raise await self.http.refusal(response, session=self.session_id is not None, request_id=request_id)
            if frame["method"] == "initialize":
                self._remember(response)
            elif self._stream_given_up:
                self._listen()
            kind = kind_of(response)
            if response.status_code != 200 or kind not in (JSON, EVENTS):
                said = f"HTTP {response.status_code}, {kind or 'no content type'}"
                raise RemoteProtocolError(f"{frame['method']} was answered with {said}")
            if kind == JSON:
                answer = await decode_received(self.receiver, await self.http.read(response))
                if not await self._take(answer, request_id, stream):
                    raise RemoteProtocolError(f"the reply to {frame['method']} answers another request")
                return
            try:
                if await self._follow(stream, response, request_id):
                    return
            except ConnectionLost as error:
                if not self._resumable(stream):
                    raise
                broken = error
        await self._resume(stream, broken, request_id, frame["method"])

    def _remember(self, response: httpx2.Response) -> None:
        session_id = response.headers.get("mcp-session-id")
        if session_id is not None and not is_visible_ascii(session_id):
            raise RemoteProtocolError("the server's session id has characters that are not allowed")
        self.session_id = session_id

    async def _take(self, frame: Frame | Batch, request_id: RequestId, stream: EventStream) -> bool:
        """Deliver a frame; return whether it answers `request_id`. Keep an error without an id for `_ask`."""
        members = frame if isinstance(frame, tuple) else (frame,)
        if self._era is not None and not self._era.stateful and any(isinstance(one, Request) for one in members):
            raise RemoteProtocolError("the server sent a request, which this protocol version forbids")
        nameless = (one for one in members if isinstance(one, Error) and one.id is None)
        stream.nameless = stream.nameless or next(nameless, None)
        await self.receiver.deliver(frame)
        answered = answered_ids(frame)
        others = [one for one in answered if not same_id(one, request_id)]
        self._close_exchanges(others)
        return len(others) < len(answered)

    def _close_exchanges(self, answered: list[RequestId]) -> None:
        """Close the exchanges of requests whose answers came on another stream."""
        for one in answered:
            for request_id, exchange in self._exchanges.items():
                if same_id(one, request_id):
                    exchange.cancel()

    # -- streams

    async def _follow(self, stream: EventStream, response: httpx2.Response, request_id: RequestId | None) -> bool:
        """Read events until the response has arrived (True) or the connection ends (False)."""

        async def on_message(data: bytes) -> bool:
            if request_id is not None:
                return await self._take(await decode_received(self.receiver, data), request_id, stream)
            taken = await hand_over(self.receiver, data)
            if isinstance(taken, RemoteProtocolError):
                self._skip(taken)
            else:
                self._close_exchanges(answered_ids(taken))
            return False

        return await stream.read(response, on_message)

    def _skip(self, error: RemoteProtocolError) -> None:
        """Skip an event that is not a message, on a stream that no call waits for."""
        self._skipped += 1
        if self._skipped <= _WARNINGS:
            logger.warning("the server's own stream had an event that is not a message: %s", escape(error, 1000))

    def _resumable(self, stream: EventStream) -> bool:
        era = self._era
        return stream.cursor is not None and (era is None or era.http.resumable)

    async def _resume(
        self, stream: EventStream, error: ConnectionLost | Overloaded | None, request_id: RequestId, method: str
    ) -> None:
        """Continue the stream of a call until its answer has come.

        Raises:
            ConnectionLost: it cannot be continued. Never `NotDelivered`: the request arrived and may have run.
        """
        while self._resumable(stream):
            try:
                stream.ended(error)
            except (ConnectionLost, Overloaded) as last:
                raise ConnectionLost(f"{method}: the stream could not be continued: {last}") from last
            await stream.pause(error)
            error = None
            try:
                if await self._get(stream, request_id):
                    return
            except SessionGone as gone:
                raise ConnectionLost(f"{method}: {gone}") from gone
            except (ConnectionLost, Overloaded) as failed:
                error = failed
        raise ConnectionLost(f"{method}: the stream ended before the answer") from error

    async def _get(self, stream: EventStream, request_id: RequestId | None) -> bool:
        headers: dict[str, str] = {**self._standing_headers(), "Accept": EVENTS}
        if stream.cursor is not None:
            headers["Last-Event-ID"] = stream.cursor
        stream.connecting()
        async with self.http.send("GET", headers) as response:
            stream.opened.set()
            if meaning_of(response.status_code).stream_in_use:
                raise ConnectionLost("the server still holds the previous connection of the stream")
            if not response.is_success:
                raise await self.http.refusal(response, session=self.session_id is not None)
            if kind_of(response) != EVENTS:
                raise RemoteProtocolError(f"expected an event stream, got {kind_of(response) or 'no content type'}")
            return await self._follow(stream, response, request_id)

    async def _read_stream(self, stream: EventStream) -> None:
        """Keep the server's own stream open while the link is open. Raises nothing."""
        try:
            while True:
                error: ConnectionLost | Overloaded | None = None
                try:
                    await self._get(stream, None)
                except SessionGone:
                    raise
                except (ConnectionLost, Overloaded) as failed:
                    error = failed
                stream.opened.set()
                stream.ended(error)
                await stream.pause(error)
        except SessionGone as gone:
            self.session_id = None
            self.receiver.lost(str(gone))
        except HttpRefused as refused:
            if not meaning_of(refused.status).no_stream:
                logger.warning("the server refused to open its own stream: %s", escape(refused, 1000))
        except (ConnectionLost, Overloaded) as failed:
            self._stream_given_up = True
            logger.warning("the server's own stream is closed until the server answers again: %s", escape(failed, 1000))
        except Exception as broken:  # noqa: BLE001 - includes exceptions of the user's authorization
            logger.warning("the server's own stream cannot be read; its messages are missed: %s", escape(broken, 1000))
        finally:
            stream.opened.set()

    # -- headers

    def _standing_headers(self) -> dict[str, str]:
        headers = {}
        if self.session_id is not None:
            headers["Mcp-Session-Id"] = self.session_id
        if self._era is not None and self._era.http.version_header:
            headers["MCP-Protocol-Version"] = self._era.date
        return headers

    def _headers(self, frame: dict[str, Any]) -> dict[str, str]:
        headers = {**self._standing_headers(), "Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}"}
        method, params = frame.get("method"), frame.get("params", {})
        if method is None:
            return headers
        if "id" in frame:
            headers.update(self.receiver.headers_of(frame["id"]))
        date = declared_date(params)
        if date is not None:
            headers["MCP-Protocol-Version"] = date
        if date is not None or (self._era is not None and not self._era.stateful):
            headers["Mcp-Method"] = method
            name = params.get(NAMED_BY.get(method, ""))
            if isinstance(name, str):
                headers["Mcp-Name"] = encode_header_value(name)
            headers.update(self.receiver.headers_for(method, params))
        return headers
