"""A pipe inside one process: what `connect(server)` and tests use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from attrs import define

from mcptrio._actors.runtime import Runtime
from mcptrio.errors import LinkClosed, RemoteProtocolError
from mcptrio.transports.pipe import PipeLimits, serve_pipe


@define(eq=False, repr=False)
class MemoryEnd:
    """The client's end: encoded frames in and out. Both directions are bounded; a full one makes the sender wait."""

    _outgoing: trio.MemorySendChannel[bytes]
    _incoming: trio.MemoryReceiveChannel[bytes]

    async def send(self, frame: bytes) -> None:
        """Send one message.

        Raises:
            LinkClosed: the other end is gone, or this one was closed.
        """
        try:
            await self._outgoing.send(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise LinkClosed("the memory link is closed") from None

    def send_nowait(self, frame: bytes) -> bool:
        """Send one message if there is room for it."""
        return _send_nowait(self._outgoing, frame)

    async def receive(self) -> bytes:
        """The next message.

        Raises:
            LinkClosed: the other end is gone, or this one was closed.
        """
        try:
            return await self._incoming.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise LinkClosed("the memory link is closed") from None

    def close(self) -> None:
        """Hang up. Messages that were not received yet are lost."""
        self._outgoing.close()
        self._incoming.close()


@define(eq=False, repr=False)
class _ServerEnd:
    _outgoing: trio.MemorySendChannel[bytes]
    _incoming: trio.MemoryReceiveChannel[bytes]

    async def receive(self) -> Sequence[bytes | RemoteProtocolError]:
        try:
            return (await self._incoming.receive(),)
        except trio.EndOfChannel:
            return ()

    def send_nowait(self, message: bytes) -> bool:
        return _send_nowait(self._outgoing, message)

    async def send(self, messages: list[bytes]) -> None:
        for message in messages:
            await self._outgoing.send(message)


def _send_nowait(channel: trio.MemorySendChannel[bytes], frame: bytes) -> bool:
    try:
        channel.send_nowait(frame)
    except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
        return False  # full, or gone: whoever may wait will see
    return True


@asynccontextmanager
async def open_memory_link(
    runtime: Runtime, *, max_frames: int = 64, principal: Any = None, limits: PipeLimits | None = None
) -> AsyncIterator[MemoryEnd]:
    """A session of `runtime`, and the end of its pipe that a client holds. Leaving hangs up and ends the session.

    Raises:
        Overloaded: there are too many sessions, or the process is about to end.
    """
    to_server = trio.open_memory_channel[bytes](max_frames)
    to_client = trio.open_memory_channel[bytes](max_frames)
    client = MemoryEnd(to_server[0], to_client[1])
    serve = partial(serve_pipe, transport="memory", principal=principal, limits=limits)
    runtime.supervisor.check_room()

    async def serve_and_hang_up() -> None:
        with to_server[1], to_client[0]:
            await serve(runtime, _ServerEnd(to_client[0], to_server[1]))

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
        raise group.exceptions[0] from None  # what the caller's own block raised, as it raised it
