"""The dialling side of a cluster link: requests that another worker answers.

One connection carries any number of requests. It is opened when the first one is forwarded, and again when it was lost.
A request that was handed to the connection may have been served, whatever happens then: it is never sent twice (R5).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from msgspec.structs import replace

from mcptrio._actors.future import Reply
from mcptrio._actors.shares import Shares
from mcptrio.cluster.channel import BROKEN, FrameChannel, LinkIdentity
from mcptrio.cluster.frames import (
    AnswerFrame,
    ClientGone,
    CloseRemote,
    Detach,
    Forward,
    Forwarded,
    ForwardedStream,
    Leaving,
    LinkError,
    NotHome,
)
from mcptrio.errors import MCPTrioError, Overloaded

logger = logging.getLogger("mcptrio.cluster")

MAX_PENDING: Final = 1024
DIAL_WITHIN: Final = 1.0


class Unreachable(MCPTrioError):
    """A worker cannot be connected to; nothing was sent."""


class LinkBroken(MCPTrioError):
    """The connection was lost, or the worker died, after a request was sent: the request may have been served."""


class PeerLink:
    """The connection to one other worker.

    Owns: the socket.   Borrows: the nursery that its task runs in, `dial`, and `on_close`, which is called with the
    number of a stream whose connection is to be closed, and whether the client is to come back.
    """

    def __init__(
        self,
        worker: str,
        identity: LinkIdentity,
        nursery: trio.Nursery,
        dial: Callable[[], Awaitable[trio.abc.Stream]],
        on_close: Callable[[int, bool], None],
    ) -> None:
        self.worker = worker
        self.dead = False
        self.leaving = False
        """Whether the worker has said that it leaves: it gets no more requests, and answers those that it has."""
        self._identity = identity
        self._nursery = nursery
        self._dial = dial
        self._on_close = on_close
        self._channel: FrameChannel | None = None
        self._scope: trio.CancelScope | None = None
        self._problem = ""
        self._connecting = trio.lowlevel.ParkingLot()
        self._last = 0  # the number of the newest request
        self.lost = 0
        """The newest request that a lost connection carried. The other worker takes the clients of its streams, and
        of those before it, for gone."""
        self._pending: dict[int, Reply] = {}
        self._places = Shares(MAX_PENDING)

    @property
    def connected(self) -> bool:
        return self._channel is not None and not self.leaving

    @property
    def pending(self) -> int:
        """The number of requests that wait for an answer."""
        return len(self._pending)

    async def forward(self, request: Forward, owner: str = "") -> AnswerFrame:
        """Send a request of an owner and return the answer. A caller that is cancelled tells the other worker.

        Raises:
            Unreachable: it could not be sent.
            LinkBroken: it was sent, and there will be no answer.
            Overloaded: too much waits for this worker.
        """
        if not self._places.take(owner):
            raise Overloaded("too many requests wait for another worker", retry_after=1, limit="forward")
        try:
            channel = self._channel or await self._connect()
            if self.leaving:
                raise Unreachable(f"worker {self.worker} leaves")
            return await self._send(request, channel)
        finally:
            self._places.give_back(owner)

    async def _send(self, request: Forward, channel: FrameChannel) -> AnswerFrame:
        self._last += 1
        number, reply = self._last, Reply()
        if not channel.send_nowait(replace(request, id=number)):
            raise Overloaded("another worker does not keep up", retry_after=1, limit="forward")
        self._pending[number] = reply
        try:
            answer: AnswerFrame = await reply.wait()
        except trio.Cancelled:
            if channel is self._channel:
                channel.send_nowait(ClientGone(number))
            raise
        finally:
            del self._pending[number]
            self._close_if_left()
        return answer

    def detach(self, number: int, cause: str) -> None:
        """Say that the client of a stream follows it no longer."""
        if self._channel is not None:
            self._channel.send_nowait(Detach(number, cause))

    def give_up(self, reason: str) -> None:
        """Fail everything that waits: the worker is dead."""
        self.dead = True
        self._lost(reason)
        if self._scope is not None:
            self._scope.cancel()

    async def _connect(self) -> FrameChannel:
        if self.dead:
            raise Unreachable(f"worker {self.worker} is dead")
        if self._scope is None:
            self._scope = trio.CancelScope()
            self._nursery.start_soon(self._run, self._scope, name=f"link to worker {self.worker}")
        await self._connecting.park()
        if self._channel is None:
            raise Unreachable(self._problem)
        return self._channel

    async def _run(self, scope: trio.CancelScope) -> None:
        """Connect and serve the connection. This is a guard: whatever happens to a link ends that link only."""
        stream: trio.abc.Stream | None = None
        reason = f"the link to worker {self.worker} was closed"
        try:
            with scope:
                with trio.fail_after(DIAL_WITHIN):
                    stream = await self._dial()
                    channel = FrameChannel(stream, self._identity, dialled=True)
                    await channel.greet(expected=self.worker)
                self._channel, self._problem = channel, ""
                self._connecting.unpark_all()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(channel.write)
                    await self._read(channel)
                    nursery.cancel_scope.cancel()
        except* trio.TooSlowError:
            reason = f"worker {self.worker} did not answer within {DIAL_WITHIN:g} s"
        except* BROKEN as errors:
            # an error of TLS is the cause of one without a text
            texts = (str(error) or str(error.__cause__ or "broken") for error in errors.exceptions)
            reason = f"worker {self.worker}: {'; '.join(texts)}"
        except* Exception:
            logger.exception("the link to worker %s failed", self.worker)
        finally:
            self._scope = None
            if self._channel is None and not self.dead and reason != self._problem:
                logger.info("%s", reason)  # once per outage, not once per attempt
            self._lost(reason)
            if stream is not None:
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(stream)

    async def _read(self, channel: FrameChannel) -> None:
        while (frame := await channel.receive()) is not None:
            if isinstance(frame, Forwarded | ForwardedStream | NotHome):
                waiting = self._pending.get(frame.id)
                if waiting is not None:
                    waiting.settle(frame)
                elif isinstance(frame, ForwardedStream):
                    channel.send_nowait(Detach(frame.id, "disconnected"))
            elif isinstance(frame, CloseRemote):
                self._on_close(frame.id, frame.retry)
            elif isinstance(frame, Leaving):
                self.leaving = True
                self._close_if_left()
            else:
                raise LinkError(f"worker {self.worker} sent a frame that it must not send")

    def _close_if_left(self) -> None:
        if self.leaving and not self._pending and self._scope is not None:
            self._scope.cancel()

    def _lost(self, reason: str) -> None:
        self._channel, self._problem, self.lost = None, reason, self._last
        self._connecting.unpark_all()
        for reply in self._pending.values():
            reply.settle(error=LinkBroken(reason))
