"""The accepting side of a cluster link: requests of other workers, answered by this one."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeAlias

import trio

from mcptrio.cluster.channel import BROKEN, FrameChannel, LinkIdentity
from mcptrio.cluster.config import ClusterConfig
from mcptrio.cluster.frames import (
    AnswerFrame,
    ClientGone,
    CloseRemote,
    Detach,
    Forward,
    Forwarded,
    Leaving,
    LinkError,
)
from mcptrio.cluster.sockets import open_link_listener
from mcptrio.errors import INTERNAL_ERROR
from mcptrio.transports.http_server.endpoint.message import Plain, overloaded, refuse

logger = logging.getLogger("mcptrio.cluster")

GREET_WITHIN: Final = 1.0
LEAVE_WITHIN: Final = 1.0
"""Seconds in which other workers close their links to one that leaves."""
MAX_RUNNING: Final = 1024
"""Requests of one peer that are being answered.

A peer keeps the same bound, but requests that it has given up may still be ending here.
"""
MAX_LINKS: Final = 1024
_FAILED: Final = refuse(500, "the request failed", code=INTERNAL_ERROR)
_BUSY: Final = overloaded("too many requests of another worker", 1, limit="forward")


def _refused(request: Forward, refusal: Plain) -> Forwarded:
    return Forwarded(request.id, refusal.status, refusal.headers, refusal.body)


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
        self._channel.send_nowait(CloseRemote(number, retry))

    async def serve(self) -> None:
        """Answer requests until the connection ends. What still runs then has lost its client."""
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                nursery.start_soon(self._write)
                while (frame := await self._channel.receive()) is not None:
                    self._receive(frame, nursery)
                nursery.cancel_scope.cancel()
        finally:
            streams, self._streams = self._streams, {}
            for stream in streams.values():
                stream.detach("disconnected")

    def _receive(self, frame: object, nursery: trio.Nursery) -> None:
        match frame:
            case Forward():
                if frame.id in self._running or frame.id in self._streams:
                    raise LinkError(f"worker {self.worker} sent one number twice")
                if len(self._running) >= MAX_RUNNING:
                    if not self._channel.send_nowait(_refused(frame, _BUSY)):
                        raise LinkError(f"worker {self.worker} sends requests and does not read the answers")
                    return
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
                try:
                    answer, stream = await self._answer(request, self)
                    if stream is not None:
                        self._streams[request.id] = stream
                    await self._channel.send(answer)
                    if stream is not None:
                        stream.announce()
                except LinkError:
                    raise
                except Exception:  # a guard: the failure of one request must not end the link
                    logger.exception("a request of worker %s failed", self.worker)
                    await self._channel.send(_refused(request, _FAILED))
        finally:
            del self._running[request.id]

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
        self._channels: set[FrameChannel] = set()
        self._accepting = trio.CancelScope()
        self._closed = trio.lowlevel.ParkingLot()

    @asynccontextmanager
    async def open(self, config: ClusterConfig) -> AsyncIterator[None]:
        """Accept connections during the block.

        Raises:
            OSError: the address cannot be used.
        """
        async with open_link_listener(config) as (listener, self.address), trio.open_nursery() as nursery:
            nursery.start_soon(self._accept, listener, nursery)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    async def leave(self) -> None:
        """Accept no more connections, and have the other workers close theirs.

        A worker closes its link when everything that it has sent is answered. So no request is on its way when this
        worker exits, and none gets the error that it may have been done.
        """
        self._accepting.cancel()
        for channel in self._channels:
            channel.send_nowait(Leaving())
        with trio.move_on_after(LEAVE_WITHIN):
            while self._channels:
                await self._closed.park()

    async def _accept(self, listener: trio.abc.Listener[trio.abc.Stream], nursery: trio.Nursery) -> None:
        with self._accepting:
            async with listener:  # a connection that waits to be accepted is refused: nothing was sent on it
                await trio.serve_listeners(self._serve, [listener], handler_nursery=nursery)

    async def _serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection. This is a guard: what a peer does ends its connection only."""
        if len(self._channels) >= MAX_LINKS or self._accepting.cancel_called:
            await trio.aclose_forcefully(stream)
            return
        channel = FrameChannel(stream, self._identity(), dialled=False)
        self._channels.add(channel)
        try:
            with trio.fail_after(GREET_WITHIN):
                worker = await channel.greet()
            await AcceptedLink(worker, channel, self._answer).serve()
        except* (trio.TooSlowError, *BROKEN) as errors:
            for error in errors.exceptions:
                if isinstance(error, LinkError):
                    logger.warning("a link was closed: %s", error)
        except* Exception:
            logger.exception("a link failed")
        finally:
            self._channels.discard(channel)
            self._closed.unpark_all()
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
