"""In-process pipes, for `connect(server)` and tests.

Theory of operation. Each direction is a bounded queue of encoded frames, and both sides encode, decode and check as
they do over any other pipe. Only the last step of a response is shorter: if the client has nothing left to read, the
response is delivered in the task that sends it, since that never blocks (`MemoryEnd.hand_to`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from mcptrio._actors.outbox import Outbox
from mcptrio._actors.runtime import Runtime
from mcptrio.errors import ConnectionLost, RemoteProtocolError
from mcptrio.transports.pipe.server import Pipe, PipeLimits, serve_pipe

if TYPE_CHECKING:
    from mcptrio.auth.server.principal import Principal


@define(eq=False, repr=False)
class MemoryEnd:
    """The client's end: encoded frames in and out. Both directions are bounded; a full one makes the sender wait."""

    _outgoing: Outbox
    _incoming: Outbox
    _received: deque[bytes] = field(factory=deque)
    _take: Callable[[bytes], bool] | None = None

    async def send(self, frame: bytes) -> None:
        """Send one message.

        Raises:
            ConnectionLost: the other end is gone, or this one was closed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.send_nowait(frame):
            if self._outgoing.closed:
                raise ConnectionLost("the memory link is closed")
            await self._outgoing.room()
        await trio.lowlevel.cancel_shielded_checkpoint()  # after sending, to keep the order of calls

    def send_nowait(self, frame: bytes) -> bool:
        """Send one message if there is room for it; return whether it was sent."""
        outgoing = self._outgoing
        if outgoing.full or outgoing.closed:
            return False
        outgoing.put(frame)
        return True

    async def receive(self) -> bytes:
        """Return the next message.

        Raises:
            ConnectionLost: the other end is gone, or this one was closed.
        """
        if self._received:
            await trio.lowlevel.checkpoint()
        else:
            self._received.extend(await self._incoming.take_some())
        if not self._received:
            raise ConnectionLost("the memory link is closed")
        return self._received.popleft()

    def hand_to(self, take: Callable[[bytes], bool]) -> None:
        """Offer each response that has no unread message before it to `take`; those that it declines are received."""
        self._take = take

    def take(self, frame: bytes) -> bool:
        return self._take is not None and self._incoming.idle and self._take(frame)

    def close(self) -> None:
        """Close the link. Messages that were not received yet are lost."""
        self._received.clear()
        self._incoming.drop()
        self._outgoing.close()


@define(eq=False, repr=False)
class _ServerEnd(Pipe):
    _client: MemoryEnd
    _outgoing: Outbox
    _incoming: Outbox
    gathers = False

    async def receive(self) -> Sequence[bytes | RemoteProtocolError]:
        try:
            return await self._incoming.take_some()
        except ConnectionLost:
            return ()

    def send_nowait(self, message: bytes) -> bool:
        if self._client.take(message):
            return True
        if self._outgoing.full:
            return False
        self._outgoing.put(message)
        return True

    async def send(self, messages: list[bytes]) -> None:
        for message in messages:
            await self._outgoing.room()
            if self._outgoing.closed:
                raise trio.BrokenResourceError
            self._outgoing.put(message)


@asynccontextmanager
async def open_memory_link(
    runtime: Runtime, *, max_frames: int = 64, principal: Principal | None = None, limits: PipeLimits | None = None
) -> AsyncIterator[MemoryEnd]:
    """Open a session of `runtime`; yield the client's end of its pipe. Leaving closes both.

    Raises:
        Overloaded: there are too many sessions, or the process is about to end.
    """
    to_server, to_client = Outbox(max_items=max_frames), Outbox(max_items=max_frames)
    client = MemoryEnd(to_server, to_client)
    serve = partial(serve_pipe, transport="memory", principal=principal, limits=limits)
    runtime.supervisor.check_room()

    async def serve_and_hang_up() -> None:
        try:
            await serve(runtime, _ServerEnd(client, to_client, to_server))
        finally:
            to_server.close()
            to_client.close()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_and_hang_up)
            try:
                yield client
            finally:
                client.close()
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None  # unwrap the exception of the caller's block
