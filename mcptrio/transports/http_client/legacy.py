"""The deprecated HTTP+SSE transport (2024-11-05), client side: one GET brings everything, POSTs carry the rest."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import httpx2
import msgspec
import trio
from attrs import define, field, frozen

from mcptrio._peer.era import Era
from mcptrio._wire.jsonrpc import decode
from mcptrio._wire.sse import SseReader
from mcptrio.errors import LinkClosed, MCPTrioException, RemoteProtocolError
from mcptrio.transports.carrier import Receiver, failure
from mcptrio.transports.http_client.auth import HttpAuth
from mcptrio.transports.http_client.http import EVENTS, JSON, Http, HttpClientConfig, feed, kind_of, lent_or_own

logger = logging.getLogger("mcptrio.client.http")

_decode: Final = msgspec.json.Decoder().decode
_ENDPOINT_TIMEOUT: Final = 10.0


@frozen(kw_only=True)
class LegacySseCarrier:
    """Reaches a server that speaks nothing newer than HTTP+SSE."""

    url: str
    headers: Mapping[str, str] = field(factory=dict)
    auth: HttpAuth | None = None
    config: HttpClientConfig = field(factory=HttpClientConfig)
    client: httpx2.AsyncClient | None = None
    name: str = "sse"

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[LegacyLine]:
        async with lent_or_own(self.client, self.config) as client, trio.open_nursery() as nursery:
            http = Http(client, self.url, self.config, self.auth, self.headers)
            line = LegacyLine(http, receiver, nursery)
            with trio.move_on_after(_ENDPOINT_TIMEOUT):
                line.endpoint = await nursery.start(line.hear)
            if not line.endpoint:
                raise RemoteProtocolError("the server did not say where to post to")
            try:
                yield line
            finally:
                nursery.cancel_scope.cancel()


@define(eq=False, repr=False)
class LegacyLine:
    """One stream down, POSTs up."""

    http: Http
    receiver: Receiver
    nursery: trio.Nursery
    full: bool = False
    endpoint: str = ""
    _told: trio.Event = field(factory=trio.Event)

    def post(self, data: bytes) -> None:
        self.nursery.start_soon(self._carry, data)

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()

    def speak(self, era: Era) -> None:
        pass

    async def confirmed(self) -> None:
        await self._told.wait()

    async def _carry(self, data: bytes) -> None:
        frame = _decode(data)
        try:
            async with self.http.send("POST", {"Content-Type": JSON}, data, url=self.endpoint) as response:
                if not response.is_success:
                    raise await self.http.refusal(response)
        except Exception as error:  # noqa: BLE001 - the caller sees it
            if "method" in frame and "id" in frame:
                with suppress(LinkClosed):
                    await self.receiver.deliver(failure(frame["id"], error))
            else:
                logger.warning("%s did not arrive: %s", frame.get("method", "an answer"), error)
        finally:
            if frame.get("method") == "notifications/initialized":
                self._told.set()

    async def hear(self, *, task_status: trio.TaskStatus[str]) -> None:
        """Read the stream. Its first event says where to post to; everything else is a message."""
        started = False
        reader = SseReader(self.http.config.max_event)
        try:
            async with self.http.send("GET", {"Accept": EVENTS}) as response:
                if not response.is_success:
                    raise await self.http.refusal(response)
                if kind_of(response) != EVENTS:
                    raise RemoteProtocolError(f"a stream was wanted, {kind_of(response) or 'nothing'} was given")

                async def take(chunk: bytes) -> bool:
                    nonlocal started
                    for event in reader.feed(chunk):
                        if event.event == "endpoint" and not started:
                            target = self._target(response, event.data.decode())
                            started = True
                            task_status.started(target)
                        elif event.event == "message" and event.data and started:
                            await self.receiver.deliver(decode(event.data))
                    return False

                await feed(response, take)
            if not started:
                raise RemoteProtocolError("the stream ended before it said where to post to")
            self.receiver.lost("the server closed the stream")
        except MCPTrioException as error:
            if not started:
                raise
            self.receiver.lost(str(error))

    def _target(self, response: httpx2.Response, reference: str) -> str:
        target = response.url.join(reference)
        here = response.url
        if (target.scheme, target.host, target.port) != (here.scheme, here.host, here.port):
            raise RemoteProtocolError("the server wants messages to be posted to another origin")
        return str(target)
