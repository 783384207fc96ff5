"""Hypercorn's WebSocket, which tells a peer that breaks a rule why, and closes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.ws_stream import FrameTooLargeError, WebsocketBuffer, WSStream
from wsproto.connection import ConnectionState as WebSocketState
from wsproto.events import CloseConnection, Message, Ping, TextMessage
from wsproto.frame_protocol import CloseReason


class ByteBuffer(WebsocketBuffer):
    """A WebSocket message in the making; its limit counts bytes, also in text."""

    def extend(self, event: Message[Any]) -> None:
        if isinstance(event, TextMessage) and not event.data.isascii():
            self.length += len(event.data.encode()) - len(event.data)
        super().extend(event)


class WebSocket(WSStream):
    """Hypercorn's WebSocket, which also closes the connection on a message or a frame that is not acceptable."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.buffer = ByteBuffer(self.config.websocket_max_message_size)
        self.on_too_large: Callable[[], None] | None = None

    async def _handle_events(self) -> None:
        for event in self.connection.events():
            if isinstance(event, Message):
                try:
                    self.buffer.extend(event)
                except FrameTooLargeError:
                    if self.on_too_large is not None:
                        self.on_too_large()
                    await self._hang_up(CloseReason.MESSAGE_TOO_BIG)
                    return
                if event.message_finished:
                    assert self.app_put is not None  # the handshake is over
                    await self.app_put(self.buffer.to_message())
                    self.buffer.clear()
            elif isinstance(event, Ping):
                await self._send_wsproto_event(event.response())
            elif isinstance(event, CloseConnection):
                if self.connection.state is WebSocketState.REMOTE_CLOSING:
                    await self._send_wsproto_event(event.response())
                    await self.send(StreamClosed(stream_id=self.stream_id))
                else:  # wsproto could not parse a frame: it says so by an event of its own
                    await self._hang_up(event.code)
                return

    async def _hang_up(self, code: int) -> None:
        await self._send_wsproto_event(CloseConnection(code=code))
        await self.send(StreamClosed(stream_id=self.stream_id))
