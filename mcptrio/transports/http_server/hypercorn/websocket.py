"""Hypercorn's WebSocket with bounds: closes the connection of a peer that breaks a rule, with the code that says which.

Frames cost far more than their bytes, so a flood of small ones (pings, empty fragments) must not hold the event loop
and has limits of its own. A peer that does not answer a ping is gone. A large message needs memory before it is read to
its end (`MessageMemory`), and a deadline from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import trio
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.ws_stream import FrameTooLargeError, WebsocketBuffer, WSStream
from wsproto.connection import ConnectionState as WebSocketState
from wsproto.events import CloseConnection, Event, Message, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason

from mcptrio.transports.http_server.endpoint.admission import SMALL
from mcptrio.transports.http_server.endpoint.message_memory import MessageMemory
from mcptrio.transports.http_server.listener.guarded_stream import WRITE_PIECE

_FRAMES_AT_ONCE: Final = 8  # frames of one read that are processed before other tasks run
_MAX_FRAGMENTS: Final = 4096  # frames of one message: 1 KiB each for a message of 4 MiB
_MAX_CONTROL: Final = 100  # pings and pongs within a second; a usual peer sends one in many seconds
_SLOW_DELIVERY: Final = 0.05  # seconds in which nothing was read: the answer to a ping may still be in the socket
_TRY_AGAIN_LATER: Final = 1013  # in the IANA registry of close codes, not in wsproto's


class ByteBuffer(WebsocketBuffer):
    """A WebSocket message in the making; its limit counts bytes, also in text."""

    def extend(self, event: Message[Any]) -> None:
        if isinstance(event, TextMessage) and not event.data.isascii():
            self.length += len(event.data.encode()) - len(event.data)
        super().extend(event)


class WebSocket(WSStream):
    """Hypercorn's WebSocket, which closes the connection on frames that are not acceptable."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.buffer = ByteBuffer(self.config.websocket_max_message_size)
        self.on_limit: Callable[[str, str | None], None] | None = None
        """Called with the kind of event and the limit that the peer exceeded."""
        self.set_deadline: Callable[[float], None] | None = None
        """Called with the deadline of the next read, while a message holds memory."""
        self.keeping: Callable[[int], AbstractContextManager[None]] | None = None
        """Counts bytes that are kept while they are written, see `GuardedStream.keeping`."""
        self._memory: MessageMemory | None = None
        self._reserved = False  # the message that is arriving holds memory
        self._fragments = 0
        self._control_since = 0.0
        self._control = 0
        self._alive = False  # a pong, or a part of a long frame, arrived since the last ping
        self._paused = False  # nothing is read: a pong may wait, unread

    def use_memory(self, memory: MessageMemory) -> None:
        """Bound the size and the memory of messages; called by the application before it accepts the handshake."""
        self._memory = memory
        self.buffer.max_length = min(self.buffer.max_length, memory.size)

    async def _handle_events(self) -> None:
        for frames, event in enumerate(self.connection.events(), 1):
            if frames % _FRAMES_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
                if self.closed:
                    return
            if not await self._handle_event(event):
                return
        # Also after other frames: a read without a deadline would follow.
        if self._reserved and self._memory is not None and self.set_deadline is not None and not self.closed:
            self.set_deadline(self._memory.deadline(self.buffer.length))

    async def _handle_event(self, event: Event) -> bool:
        """Process one frame, or a part of a long one; return False after the connection was closed."""
        if isinstance(event, Message):
            return await self._take(event)
        if isinstance(event, CloseConnection):
            if self.connection.state is WebSocketState.REMOTE_CLOSING:
                await self._send_wsproto_event(event.response())
                await self.send(StreamClosed(stream_id=self.stream_id))
            else:  # wsproto could not parse a frame: it says so by an event of its own
                await self._hang_up(event.code)
            return False
        if self._has_too_many_control_frames():
            return await self._exceed("too_many_frames", "websocket_control", CloseReason.POLICY_VIOLATION)
        if isinstance(event, Ping):
            await self._send_wsproto_event(event.response())
        elif isinstance(event, Pong):
            self._alive = True
        return True

    async def _take(self, event: Message[Any]) -> bool:
        if event.frame_finished:
            self._fragments += 1
            if self._fragments > _MAX_FRAGMENTS:
                return await self._exceed("too_many_frames", "websocket_fragments", CloseReason.POLICY_VIOLATION)
        else:
            self._alive = True  # a peer cannot send a pong before the end of a frame
        try:
            self.buffer.extend(event)
        except FrameTooLargeError:
            return await self._exceed("message_too_large", "websocket_message", CloseReason.MESSAGE_TOO_BIG)
        memory = self._memory
        if memory is not None and not self._reserved and self.buffer.length > SMALL and not await self._reserve(memory):
            return False
        if event.message_finished:
            if memory is not None and self._reserved:
                memory.complete(self.buffer.length)
                self._reserved = False
            message = self.buffer.to_message()
            self.buffer.clear()
            self._fragments = 0
            await self._deliver(message)
        return True

    async def _send_wsproto_event(self, event: Event) -> None:
        """Send an event. A large message is sent in fragments, so that nothing copies the whole of it."""
        if not isinstance(event, TextMessage) or len(event.data) <= WRITE_PIECE or self.keeping is None:
            await super()._send_wsproto_event(event)
            return
        text = event.data
        with self.keeping(sys.getsizeof(text)):
            for at in range(0, len(text), WRITE_PIECE):
                last = at + WRITE_PIECE >= len(text)
                await super()._send_wsproto_event(TextMessage(text[at : at + WRITE_PIECE], message_finished=last))

    async def _reserve(self, memory: MessageMemory) -> bool:
        with self._pause():
            self._reserved = await memory.reserve()
        if self._reserved:
            return True
        if not memory.closed:
            return await self._exceed("no_memory", "max_body_memory", _TRY_AGAIN_LATER)
        await self._hang_up(CloseReason.GOING_AWAY)  # the session has ended, and takes no more messages
        return False

    async def handle(self, event: StreamEvent) -> None:
        await super().handle(event)
        if isinstance(event, StreamClosed):
            self.forget()  # a part of a message must not be kept for as long as the peer lingers

    def forget(self) -> None:
        """Free what has arrived of a message; wsproto's parser is in a cycle, and would keep the last frame."""
        self.buffer.clear()
        connection = getattr(self, "connection", None)  # none if the handshake was refused
        if connection is not None:
            connection._proto._parse_more.close()

    async def close_late(self) -> None:
        """Close the connection, because a message did not arrive by the deadline."""
        await self._exceed("message_timeout", "body_timeout", CloseReason.POLICY_VIOLATION)

    async def _deliver(self, message: Any) -> None:
        if self.app_put is None:
            raise RuntimeError("a WebSocket message arrived before the handshake")
        with self._pause():
            await self.app_put(message)

    @contextmanager
    def _pause(self) -> Iterator[None]:
        """Expect no pong while the reader waits for something else than the peer."""
        since = trio.current_time()
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
        if trio.current_time() - since > _SLOW_DELIVERY:
            self._alive = True

    def _has_too_many_control_frames(self) -> bool:
        now = trio.current_time()
        if now - self._control_since >= 1:
            self._control_since, self._control = now, 0
        self._control += 1
        return self._control > _MAX_CONTROL

    async def _send_pings(self) -> None:
        """Send pings, and close the connection when one of them is not answered before the next is due."""
        interval = self.config.websocket_ping_interval
        if interval is None:
            return
        while not self.closed:
            self._alive = False
            await self._send_wsproto_event(Ping())
            await trio.sleep(interval)
            if not self._alive and not self._paused and not self.closed:
                await self._exceed("ping_unanswered", None, CloseReason.INTERNAL_ERROR)

    async def _exceed(self, kind: str, limit: str | None, code: int) -> bool:
        if self.on_limit is not None:
            self.on_limit(kind, limit)
        await self._hang_up(code)
        return False

    async def _hang_up(self, code: int) -> None:
        await self._send_wsproto_event(CloseConnection(code=code))
        await self.send(StreamClosed(stream_id=self.stream_id))
