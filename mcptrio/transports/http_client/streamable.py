"""Streamable HTTP, client side, in both lives of the protocol.

Theory of operation. Every frame that is posted becomes a POST in a task of its own. What comes back, as one JSON object
or as a stream of events, is handed to the receiver; an exchange is over when the answer to its request has come. A
stream that ends before that is taken up again with GET and `Last-Event-ID` where the date has that, in a loop and not
for ever; otherwise the request fails. Whatever goes wrong is reported as the answer to the request that it happened to.
Cancelling means: in the stateless life the exchange is closed and that says it all; in the stateful life the
notification is sent, and the stream is not waited for any longer.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import httpx2
import msgspec
import trio
from attrs import define, field, frozen

from mcptrio._eras.stateless import declared_date
from mcptrio._peer.era import Era
from mcptrio._wire.headers import encode_header_value, is_visible_ascii
from mcptrio._wire.jsonrpc import Batch, ErrorResponse, Frame, Request, RequestId, Response, decode
from mcptrio._wire.sse import SseReader
from mcptrio.errors import LinkClosed, MCPTrioException, RemoteProtocolError
from mcptrio.transports.carrier import NotDelivered, Receiver, SessionGone, failure
from mcptrio.transports.http_client.auth import HttpAuth
from mcptrio.transports.http_client.http import (
    EVENTS,
    JSON,
    Http,
    HttpClientConfig,
    HttpMcpError,
    HttpRefused,
    feed,
    kind_of,
    lent_or_own,
)

logger = logging.getLogger("mcptrio.client.http")

INITIALIZED: Final = "notifications/initialized"
CANCELLED: Final = "notifications/cancelled"
_NAMED_BY: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_NO_STREAM: Final = frozenset({400, 401, 403, 404, 405, 406, 501})
_decode: Final = msgspec.json.Decoder().decode


@frozen(kw_only=True)
class HttpCarrier:
    """Reaches a server by its URL."""

    url: str
    headers: Mapping[str, str] = field(factory=dict)
    auth: HttpAuth | None = None
    config: HttpClientConfig = field(factory=HttpClientConfig)
    client: httpx2.AsyncClient | None = None
    """Somebody else's client to send with; it stays open."""
    name: str = "http"

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[HttpLine]:
        async with lent_or_own(self.client, self.config) as client, trio.open_nursery() as nursery:
            http = Http(client, self.url, self.config, self.auth, self.headers)
            line = HttpLine(http, receiver, nursery)
            try:
                yield line
            finally:
                await line.goodbye()
                nursery.cancel_scope.cancel()


@define(eq=False, repr=False)
class HttpLine:
    """One server, many exchanges.

    Owns: the tasks of its exchanges.   Lent: their nursery, the receiver, the HTTP client.
    """

    http: Http
    receiver: Receiver
    nursery: trio.Nursery
    full: bool = False
    """Never: every message has an exchange of its own, which ends when its caller gives up."""
    session_id: str | None = None
    _era: Era | None = None
    _exchanges: dict[RequestId, trio.CancelScope] = field(factory=dict)
    _confirmed: trio.Event = field(factory=trio.Event)
    _refused: Exception | None = None

    # -- what the client does

    def post(self, data: bytes) -> None:
        frame: dict[str, Any] = _decode(data)
        if frame.get("method") == CANCELLED:
            exchange = self._exchanges.get(frame["params"].get("requestId"))
            if exchange is None:
                return  # answered, or failed, already
            exchange.cancel()
            if self._era is None or not self._era.stateful:
                return  # 2026-07-28 basic/patterns/cancellation: closing the stream is the signal
        self.nursery.start_soon(self._carry, data, frame, name=frame.get("method", "answer"))

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()

    def speak(self, era: Era) -> None:
        self._era = era

    async def confirmed(self) -> None:
        await self._confirmed.wait()
        if self._refused is not None:
            raise self._refused
        if self._era is not None and self._era.http.sessions:
            # A server need not keep what it says while nobody listens: begin to listen before anything is asked.
            stream = _Stream(SseReader(self.http.config.max_event))
            self.nursery.start_soon(self._hear, stream, name="standalone stream")
            with trio.move_on_after(self.http.config.listen_timeout):
                await stream.opened.wait()

    async def goodbye(self) -> None:
        """End the session that the server keeps for us."""
        session_id, self.session_id = self.session_id, None
        if session_id is None:
            return
        # basic/transports: a client that leaves SHOULD delete the session
        headers = {**self._standing_headers(), "Mcp-Session-Id": session_id}
        with trio.move_on_after(self.http.config.goodbye_timeout, shield=True), suppress(MCPTrioException):
            async with self.http.send("DELETE", headers):
                pass

    # -- one exchange

    async def _carry(self, data: bytes, frame: dict[str, Any]) -> None:
        method, request_id = frame.get("method"), frame.get("id")
        try:
            if method is None or request_id is None:
                await self._tell(data, frame)
                return
            with trio.CancelScope() as scope:
                self._exchanges[request_id] = scope
                try:
                    await self._ask(data, frame, request_id)
                finally:
                    del self._exchanges[request_id]
        except LinkClosed as error:
            await self._fail(request_id if method is not None else None, method, error)
            if isinstance(error, SessionGone):
                self.session_id = None
                self.receiver.lost(str(error))
        except Exception as error:  # noqa: BLE001 - the caller sees it: also what the user's own authorization raises
            await self._fail(request_id if method is not None else None, method, error)
        finally:
            if method == INITIALIZED:
                self._confirmed.set()

    async def _fail(self, request_id: RequestId | None, method: str | None, error: Exception) -> None:
        if request_id is not None:
            with suppress(LinkClosed):
                await self.receiver.deliver(failure(request_id, error))
        elif method == INITIALIZED:
            self._refused = error
        else:
            logger.warning("%s did not arrive: %s", method or "an answer", error)

    async def _tell(self, data: bytes, frame: dict[str, Any]) -> None:
        """Send something that has no answer."""
        async with self.http.send("POST", self._headers(frame), data) as response:
            if not response.is_success:
                raise await self._refusal(response)

    async def _ask(self, data: bytes, frame: dict[str, Any], request_id: RequestId) -> None:
        stream = _Stream(SseReader(self.http.config.max_event))
        async with self.http.send("POST", self._headers(frame), data) as response:
            if not response.is_success:
                await self._refuse(response, request_id)
                return
            if frame["method"] == "initialize":
                self._remember(response)
            kind = kind_of(response)
            if response.status_code != 200 or kind not in (JSON, EVENTS):
                said = f"HTTP {response.status_code}, {kind or 'no content type'}"
                raise RemoteProtocolError(f"{frame['method']} was answered with {said}")
            if kind == JSON:
                if not await self._take(decode(await self.http.read(response)), request_id):
                    raise RemoteProtocolError(f"the reply to {frame['method']} answers another request")
                return
            try:
                if await self._follow(stream, response, request_id):
                    return
            except LinkClosed:
                if not self._resumable(stream):
                    raise
        await self._resume(stream, request_id, frame["method"])

    async def _refuse(self, response: httpx2.Response, request_id: RequestId) -> None:
        if response.status_code == 404 and self.session_id is not None:
            raise SessionGone("the server no longer knows the session")
        body = await self.http.read(response)
        if kind_of(response) == JSON:
            with suppress(RemoteProtocolError):
                frame = decode(body)
                if isinstance(frame, ErrorResponse) and frame.id in (None, request_id):
                    status = response.status_code
                    raise HttpMcpError(frame.code, frame.message, frame.data, status=status)
        raise await self.http.refusal(response, body)

    async def _refusal(self, response: httpx2.Response) -> MCPTrioException:
        if response.status_code == 404 and self.session_id is not None:
            return SessionGone("the server no longer knows the session")
        return await self.http.refusal(response)

    def _remember(self, response: httpx2.Response) -> None:
        session_id = response.headers.get("mcp-session-id")
        if session_id is not None and not is_visible_ascii(session_id):
            raise RemoteProtocolError("the server's session id has characters that are not allowed")
        self.session_id = session_id

    async def _take(self, frame: Frame | Batch, request_id: RequestId | None) -> bool:
        """Hand a frame on; True if it answers `request_id`."""
        members = frame if isinstance(frame, tuple) else (frame,)
        if self._era is not None and not self._era.stateful and any(isinstance(one, Request) for one in members):
            raise RemoteProtocolError("the server sent a request, which this protocol version forbids")
        await self.receiver.deliver(frame)
        return any(isinstance(one, Response | ErrorResponse) and one.id == request_id for one in members)

    # -- streams

    async def _follow(self, stream: _Stream, response: httpx2.Response, request_id: RequestId | None) -> bool:
        """Read events until the answer has come (True) or the stream ends."""

        async def take(chunk: bytes) -> bool:
            for event in stream.reader.feed(chunk):
                if event.event == "message" and event.data:
                    stream.failures = 0
                    if await self._take(decode(event.data), request_id):
                        return True
            return False

        if await feed(response, take):
            return True
        stream.reader.eof()
        return False

    def _resumable(self, stream: _Stream) -> bool:
        era = self._era
        return stream.cursor != "" and (era is None or era.http.resumable)

    async def _resume(self, stream: _Stream, request_id: RequestId, method: str) -> None:
        tries = self.http.config.reconnect_tries
        while self._resumable(stream):
            if stream.failures > tries:
                raise LinkClosed(f"{method}: the stream could not be taken up again after {tries} attempts")
            await trio.sleep(self.http.config.pause(stream.failures, stream.reader.retry))
            try:
                if await self._get(stream, request_id):
                    return
            except SessionGone as error:
                raise LinkClosed(f"{method}: {error}") from error  # it did arrive, and may have been done
            except LinkClosed:
                stream.failures += 1
        raise LinkClosed(f"{method}: the stream ended before the answer")

    async def _get(self, stream: _Stream, request_id: RequestId | None) -> bool:
        headers = {**self._standing_headers(), "Accept": EVENTS}
        if stream.cursor:
            headers["Last-Event-ID"] = stream.cursor
        async with self.http.send("GET", headers) as response:
            stream.opened.set()
            if not response.is_success:
                raise await self._refusal(response)
            if kind_of(response) != EVENTS:
                raise RemoteProtocolError(f"a stream was wanted, {kind_of(response) or 'nothing'} was given")
            before = stream.again(self.http.config.max_event)
            answered = await self._follow(stream, response, request_id)
            if stream.cursor == before:
                stream.failures += 1  # nothing new: polling is slowed down, and not done for ever
            return answered

    async def _hear(self, stream: _Stream) -> None:
        """What the server says on its own account: one stream, for as long as the line is open."""
        while stream.failures <= self.http.config.reconnect_tries:
            try:
                await self._get(stream, None)
            except HttpRefused as error:
                if error.status not in _NO_STREAM:
                    logger.warning("the server's own stream was refused: %s", error)
                return
            except SessionGone as error:
                self.session_id = None
                self.receiver.lost(str(error))
                return
            except LinkClosed:
                stream.failures += 1
                stream.opened.set()
            except MCPTrioException as error:
                logger.warning("the server's own stream is given up: %s", error)
                return
            await trio.sleep(self.http.config.pause(stream.failures, stream.reader.retry))
        logger.warning("the server's own stream could not be kept open; what it tells on it is missed")

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
        date = declared_date(params)
        if date is not None:
            headers["MCP-Protocol-Version"] = date
        if date is not None or (self._era is not None and not self._era.stateful):
            headers["Mcp-Method"] = method
            name = params.get(_NAMED_BY.get(method, ""))
            if isinstance(name, str):
                headers["Mcp-Name"] = encode_header_value(name)
            headers.update(self.receiver.headers_for(method, params))
        return headers


@define(eq=False, repr=False)
class _Stream:
    """How far one stream has been read, over all the connections that it took."""

    reader: SseReader
    failures: int = 0
    opened: trio.Event = field(factory=trio.Event)
    """The server has answered, or could not be reached."""
    _cursor: str = ""

    @property
    def cursor(self) -> str:
        return self.reader.last_event_id or self._cursor

    def again(self, max_event: int) -> str:
        """Begin to read another connection; returns where the stream stands."""
        reader = SseReader(max_event)
        reader.retry = self.reader.retry
        self._cursor = self.cursor
        self.reader = reader
        return self._cursor


__all__ = ["HttpCarrier", "HttpLine", "NotDelivered"]
