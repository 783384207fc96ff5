"""The accepting side of a cluster link: requests of other workers, answered by this one."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeAlias

import trio
from msgspec.structs import replace

from mcptrio.cluster.channel import BROKEN, FrameChannel, LinkIdentity
from mcptrio.cluster.config import ClusterConfig
from mcptrio.cluster.frames import (
    AnswerFrame,
    ClientGone,
    CloseRemote,
    Detach,
    Forward,
    Forwarded,
    LinkError,
)
from mcptrio.cluster.sockets import open_link_listener

logger = logging.getLogger("mcptrio.cluster")

GREET_WITHIN: Final = 1.0
MAX_RUNNING: Final = 1024
"""Requests of one peer that are being answered; a peer keeps the same bound, so more is a violation."""
MAX_LINKS: Final = 1024
_FAILED: Final = Forwarded(0, 500, ((b"content-type", b"text/plain"),), b"the request failed\n")


class RemoteStream(Protocol):
    """A stream of this worker that a client follows at another one."""

    def announce(self) -> None:
        """Handle that the other worker knows the stream."""

    def detach(self, cause: str) -> None:
        """Handle the end of the client's connection."""


Answer: TypeAlias = Callable[[Forward, "AcceptedLink"], Awaitable[tuple[AnswerFrame, RemoteStream | None]]]
"""Answers a request; for a stream it also returns the object to notify when the client disconnects."""


class AcceptedLink:
    """One connection that another worker dialled.

    Owns: the tasks that answer its requests.   Borrows: the channel, `answer`.
    """

    def __init__(self, worker: str, channel: FrameChannel, answer: Answer) -> None:
        self.worker = worker
        self._channel = channel
        self._answer = answer
        self._running: dict[int, trio.CancelScope] = {}
        self._streams: dict[int, RemoteStream] = {}
        self._scope: trio.CancelScope | None = None

    def close_remote(self, number: int, *, retry: bool) -> None:
        """Have the other worker close the connection of a client that follows a stream."""
        self._send(CloseRemote(number, retry))

    async def serve(self) -> None:
        """Answer requests until the connection ends. What still runs then has lost its client."""
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                nursery.start_soon(self._write)
                while (frames := await self._channel.receive()) is not None:
                    for frame in frames:
                        self._receive(frame, nursery)
                nursery.cancel_scope.cancel()
        finally:
            streams, self._streams = self._streams, {}
            for stream in streams.values():
                stream.detach("disconnected")

    def _receive(self, frame: object, nursery: trio.Nursery) -> None:
        match frame:
            case Forward():
                if len(self._running) >= MAX_RUNNING or frame.id in self._running or frame.id in self._streams:
                    raise LinkError(f"worker {self.worker} sent too many requests, or one number twice")
                self._running[frame.id] = trio.CancelScope()
                nursery.start_soon(self._serve_one, frame, name=f"request of worker {self.worker}")
            case ClientGone(number):
                if number in self._running:
                    self._running[number].cancel()
            case Detach(number, cause):
                stream = self._streams.pop(number, None)
                if stream is not None:
                    stream.detach(cause)
            case _:
                raise LinkError(f"worker {self.worker} sent a frame that it must not send")

    async def _serve_one(self, request: Forward) -> None:
        try:
            with self._running[request.id]:
                answer, stream = await self._answer(request, self)
                if stream is not None:
                    self._streams[request.id] = stream
                self._send(answer)
                if stream is not None:
                    stream.announce()
        except Exception:  # a guard: the failure of one request must not end the link
            logger.exception("a request of worker %s failed", self.worker)
            self._send(replace(_FAILED, id=request.id))
        finally:
            del self._running[request.id]

    def _send(self, frame: AnswerFrame | CloseRemote) -> None:
        if not self._channel.send_nowait(frame) and self._scope is not None:
            logger.error("worker %s does not read: closing the link to it", self.worker)
            self._scope.cancel()

    async def _write(self) -> None:
        try:
            await self._channel.write()
        except BROKEN:
            if self._scope is not None:
                self._scope.cancel()


class LinkServer:
    """The socket for requests of other workers.

    Owns: the socket and the connections.   Borrows: `answer`.
    """

    def __init__(self, identity: Callable[[], LinkIdentity], answer: Answer) -> None:
        self.address = ""
        self._identity = identity
        self._answer = answer
        self._links = 0

    @asynccontextmanager
    async def open(self, config: ClusterConfig) -> AsyncIterator[None]:
        """Accept connections during the block.

        Raises:
            OSError: the address cannot be used.
        """
        async with open_link_listener(config) as (listener, self.address), trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._serve, [listener])
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    async def _serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection. This is a guard: what a peer does ends its connection only."""
        if self._links >= MAX_LINKS:
            await trio.aclose_forcefully(stream)
            return
        self._links += 1
        try:
            identity = self._identity()
            channel = FrameChannel(stream, identity.max_frame)
            with trio.fail_after(GREET_WITHIN):
                worker = await channel.greet(identity, dialled=False)
            await AcceptedLink(worker, channel, self._answer).serve()
        except* (trio.TooSlowError, *BROKEN) as errors:
            for error in errors.exceptions:
                if isinstance(error, LinkError):
                    logger.warning("a link was closed: %s", error)
        except* Exception:
            logger.exception("a link failed")
        finally:
            self._links -= 1
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
