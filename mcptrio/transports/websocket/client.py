"""The WebSocket transport, client side: one message per text frame, subprotocol `mcp`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import httpx2
import trio
from attrs import define, field, frozen

from mcptrio.errors import ConnectionLost, RemoteProtocolError
from mcptrio.transports.client import NotDelivered, Receiver
from mcptrio.transports.http_client.auth import AuthRequest, HttpAuth
from mcptrio.transports.http_client.http import (
    MAX_AUTH,
    HttpClientConfig,
    head_of,
    open_http,
    refusal_of,
    translated,
)
from mcptrio.transports.pipe.client import PipeClientLink, open_client_link
from mcptrio.transports.pipe.server import Pipe

SUBPROTOCOL: Final = "mcp"


@frozen(kw_only=True)
class WebSocketTransport:
    """Transport to a server with a ws or wss URL."""

    url: str
    headers: Mapping[str, str] = field(factory=dict)
    auth: HttpAuth | None = None
    config: HttpClientConfig = field(factory=HttpClientConfig)
    name: str = "websocket"

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[PipeClientLink]:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(open_http(self.config))
            socket = await self._shake_hands(client, stack)
            async with open_client_link(_SocketPipe(socket), receiver) as link:
                yield link

    async def _shake_hands(self, client: httpx2.AsyncClient, stack: AsyncExitStack) -> Any:
        """Open the socket; the authorization may sign in and try again, as for any other request.

        Raises:
            HttpRefused: the server refused.
            Overloaded: the server, or a proxy, cannot answer now.
            NotDelivered: no connection could be made.
        """
        from httpx2.websockets import HTTPXWSException, WebSocketUpgradeError

        about = AuthRequest(method="GET", url=self.url)
        attempts = 0
        while True:
            signed = await self.auth.authorize(about) if self.auth is not None else {}
            opening = client.websocket(
                self.url,
                headers={**self.headers, **signed},
                subprotocols=[SUBPROTOCOL],
                max_message_size_bytes=self.config.max_reply,
                # also for the response to the handshake; the connection itself may be idle
                timeout=httpx2.Timeout(self.config.connect_timeout, write=self.config.write_timeout),
            )
            try:
                with translated():
                    socket = await stack.enter_async_context(opening)
            except WebSocketUpgradeError as error:
                response = error.response
            except HTTPXWSException as error:
                raise NotDelivered(f"no connection to the server: {error}") from error
            except ConnectionLost as error:
                if not isinstance(error.__cause__, httpx2.ReadTimeout):
                    raise
                limit = f"{self.config.connect_timeout:g} s (connect_timeout)"
                raise NotDelivered(f"the WebSocket handshake was not answered within {limit}") from error
            else:
                if self.auth is not None and socket.response is not None:
                    await self.auth.on_response(head_of(about, socket.response))
                return socket
            if self.auth is not None and attempts < MAX_AUTH:
                attempts += 1
                if await self.auth.on_response(head_of(about, response)):
                    continue
            raise refusal_of(response, b"")


@define(eq=False, repr=False)
class _SocketPipe(Pipe):
    _socket: Any

    async def receive(self) -> Sequence[bytes | RemoteProtocolError]:
        from httpx2.websockets import HTTPXWSException, WebSocketInvalidTypeReceived

        try:
            return ((await self._socket.receive_text()).encode(),)
        except WebSocketInvalidTypeReceived:
            return (RemoteProtocolError("the server sent a message that is not text"),)
        except (HTTPXWSException, httpx2.TransportError, trio.ClosedResourceError, trio.BrokenResourceError):
            return ()

    async def send(self, messages: list[bytes]) -> None:
        from httpx2.websockets import HTTPXWSException

        try:
            for message in messages:
                await self._socket.send_text(message.decode())
        except (HTTPXWSException, httpx2.TransportError, ConnectionLost) as error:
            raise trio.BrokenResourceError from error
