"""The deprecated HTTP+SSE transport (2024-11-05), client side: one GET stream from the server, POSTs to it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Final

import httpx2
import msgspec
import trio
from attrs import define, field, frozen

from mcptrio._peer.era import Era
from mcptrio._wire.jsonrpc import RequestId
from mcptrio._wire.sse import FED_AT_ONCE, SseReader
from mcptrio.errors import ConnectionLost, MCPTrioError, RemoteProtocolError
from mcptrio.telemetry.log import escape
from mcptrio.transports.client import Receiver, answered_ids, failure, hand_over, same_id
from mcptrio.transports.http_client.auth import HttpAuth
from mcptrio.transports.http_client.http import (
    CANCELLED,
    EVENTS,
    JSON,
    Http,
    HttpClientConfig,
    feed,
    kind_of,
    lent_or_own,
)
from mcptrio.transports.retry import Reconnect

logger = logging.getLogger("mcptrio.client.http")

_decode: Final = msgspec.json.Decoder().decode
_ENDPOINT_TIMEOUT: Final = 10.0


@frozen(kw_only=True)
class LegacySseTransport:
    """Transport to a server that supports nothing newer than HTTP+SSE."""

    url: str
    headers: Mapping[str, str] = field(factory=dict)
    auth: HttpAuth | None = None
    config: HttpClientConfig = field(factory=HttpClientConfig)
    reconnect: Reconnect = field(factory=Reconnect)
    client: httpx2.AsyncClient | None = None
    name: str = "sse"

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[LegacySseClientLink]:
        async with lent_or_own(self.client, self.config) as client, trio.open_nursery() as nursery:
            http = Http(client, self.url, self.config, self.reconnect, self.auth, self.headers)
            link = LegacySseClientLink(http, receiver, nursery)
            link.endpoint = await nursery.start(link.read_stream)
            try:
                yield link
            finally:
                nursery.cancel_scope.cancel()


@define(eq=False, repr=False)
class LegacySseClientLink:
    """The link over one event stream from the server and POSTs to it."""

    http: Http
    receiver: Receiver
    nursery: trio.Nursery
    full: bool = False
    endpoint: str = ""
    _confirmed: trio.Event = field(factory=trio.Event)
    _posting: dict[RequestId, trio.CancelScope] = field(factory=dict)
    """The POSTs of requests, which a server may answer late; the answers to the requests come on the stream."""

    def post(self, data: bytes) -> None:
        self.nursery.start_soon(self._carry, data)

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()

    def use_era(self, era: Era) -> None:
        pass

    async def confirmed(self) -> None:
        await self._confirmed.wait()

    async def _carry(self, data: bytes) -> None:
        frame = _decode(data)
        # A response settles its id only once, and the protocol's notifications are idempotent, so both may be repeated.
        repeat = frame.get("method", "notifications/").startswith("notifications/")
        is_request = "id" in frame and "method" in frame
        timeout = inf if is_request else self.http.message_timeout(frame.get("method"))
        if frame.get("method") == CANCELLED:
            self._no_longer_needed([frame.get("params", {}).get("requestId")])
        headers = {"Content-Type": JSON, **(self.receiver.headers_of(frame["id"]) if is_request else {})}
        try:
            with trio.CancelScope() as scope:
                if is_request:
                    self._posting[frame["id"]] = scope
                await self.http.post_message(data, lambda: headers, repeat=repeat, timeout=timeout, url=self.endpoint)
        except Exception as error:  # noqa: BLE001 - the caller sees it
            if is_request:
                with suppress(ConnectionLost):
                    await self.receiver.deliver(failure(frame["id"], error))
            else:
                logger.warning("%s was not accepted: %s", frame.get("method", "an answer"), escape(error, 1000))
        finally:
            if is_request:
                del self._posting[frame["id"]]
            if frame.get("method") == "notifications/initialized":
                self._confirmed.set()

    def _no_longer_needed(self, request_ids: Sequence[RequestId]) -> None:
        """Bound the POSTs of requests that were answered on the stream, or given up."""
        for one in request_ids:
            for request_id, scope in self._posting.items():
                if same_id(one, request_id):
                    scope.deadline = trio.current_time() + self.http.config.write_timeout

    async def read_stream(self, *, task_status: trio.TaskStatus[str]) -> None:
        """Read the stream. Its first event holds the URL for POSTs; all others are messages."""
        started = False
        reader = SseReader(self.http.config.max_reply)
        try:
            async with self.http.send("GET", {"Accept": EVENTS}, timeout=_ENDPOINT_TIMEOUT) as response:
                if not response.is_success:
                    raise await self.http.refusal(response)
                if kind_of(response) != EVENTS:
                    raise RemoteProtocolError(f"expected an event stream, got {kind_of(response) or 'no content type'}")

                async def take(chunk: bytes) -> bool:
                    nonlocal started
                    for at in range(0, len(chunk), FED_AT_ONCE):
                        for event in reader.feed(chunk[at : at + FED_AT_ONCE]):
                            if event.event == "endpoint" and not started:
                                target = self._target(response, event.data.decode())
                                started = True
                                opening.deadline = inf
                                task_status.started(target)
                            elif event.event == "message" and event.data and started:
                                taken = await hand_over(self.receiver, event.data)
                                if isinstance(taken, RemoteProtocolError):
                                    why = escape(taken, 1000)
                                    logger.warning("the server's stream had an event that is not a message: %s", why)
                                else:
                                    self._no_longer_needed(answered_ids(taken))
                        await trio.lowlevel.checkpoint()
                    return False

                with trio.move_on_after(_ENDPOINT_TIMEOUT) as opening:
                    await feed(response, take)
            if not started:
                raise RemoteProtocolError("the server did not send the URL for POSTs (event `endpoint`)")
            self.receiver.lost("the server closed the stream")
        except MCPTrioError as error:
            if not started:
                raise
            self.receiver.lost(str(error))

    def _target(self, response: httpx2.Response, reference: str) -> str:
        target = response.url.join(reference)
        here = response.url
        if (target.scheme, target.host, target.port) != (here.scheme, here.host, here.port):
            raise RemoteProtocolError("the server's URL for POSTs is at another origin")
        return str(target)
