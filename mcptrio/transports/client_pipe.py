"""What the client's ends of all pipes have in common: one task reads, one writes, both end with the line.

The server on the other end is not trusted: what is no message is skipped with a warning (a banner on standard output),
a message that is too long ends the line, since the answer that somebody waits for may have been in it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio
from attrs import define, field

from mcptrio._actors.link import Outbox
from mcptrio._peer.era import Era
from mcptrio._wire.jsonrpc import Response, decode
from mcptrio.errors import LinkClosed, RemoteProtocolError
from mcptrio.transports.carrier import Receiver, failure
from mcptrio.transports.pipe import Pipe

logger = logging.getLogger("mcptrio.client.pipe")

MAX_MESSAGE: Final = 16 * 1024 * 1024
_MOST_UNSENT: Final = 4 * MAX_MESSAGE
_WARNINGS: Final = 5


@define(eq=False, repr=False)
class PipeLine:
    """A line over a pipe.

    Requests wait for room. Cancels and answers to the server do not, and the reader goes on whatever waits, or two
    sides that wait for each other to read would do so for ever: so a server that only sends is hung up on.
    """

    hang_up: Callable[[str], None]
    outbox: Outbox = field(factory=Outbox)
    send_nowait: Callable[[bytes], bool] | None = None
    """Sends one message at once if the pipe takes it whole; None where that cannot be known."""
    full: bool = False

    def post(self, data: bytes) -> None:
        if self.send_nowait is None or not self.outbox.idle or not self.send_nowait(data):
            self.outbox.put(data)
            self.full = self.outbox.full
            if self.outbox.weight > _MOST_UNSENT:
                self.hang_up("the server does not read")

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()
        await self.outbox.room()

    def speak(self, era: Era) -> None:
        pass

    async def confirmed(self) -> None:
        await trio.lowlevel.checkpoint()  # a pipe keeps the order


async def _nothing_to_add() -> str:
    return "the server closed the connection"


@asynccontextmanager
async def open_pipe_line(
    pipe: Pipe,
    receiver: Receiver,
    *,
    why: Callable[[], Awaitable[str]] = _nothing_to_add,
    flush_timeout: float = 1.0,
) -> AsyncIterator[PipeLine]:
    """Carry frames over `pipe` until the block is left. `why` says what became of the server once it is gone."""
    line = PipeLine(receiver.lost, send_nowait=getattr(pipe, "send_nowait", None))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read, pipe, receiver, why)
        written = trio.Event()
        nursery.start_soon(_write, pipe, line, receiver, written)
        try:
            yield line
        finally:
            line.outbox.close()
            with trio.move_on_after(flush_timeout, shield=True):
                await written.wait()
            nursery.cancel_scope.cancel()


def take_answer(receiver: Receiver, message: bytes) -> bool:
    """Deliver a message if it is an answer that can be taken at once; the reader sees to all others."""
    try:
        frame = decode(message)
    except RemoteProtocolError:
        return False
    return type(frame) is Response and receiver.deliver_nowait(frame)


async def _write(pipe: Pipe, line: PipeLine, receiver: Receiver, written: trio.Event) -> None:
    outbox = line.outbox
    try:
        while True:
            messages = await outbox.take_all()
            line.full = False
            await pipe.send(messages)
    except LinkClosed:
        pass  # the line was left
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        outbox.close()
        # The reader sees the end too, and knows more about it; a server that only stopped reading gets no answer out.
        with trio.move_on_after(0.05):
            await trio.sleep_forever()
        receiver.lost("the server stopped reading")
    finally:
        written.set()


async def _read(pipe: Pipe, receiver: Receiver, why: Callable[[], Awaitable[str]]) -> None:
    skipped = 0
    try:
        while messages := await pipe.receive():
            for message in messages:
                if isinstance(message, RemoteProtocolError):
                    receiver.lost(message.message)
                    return
                try:
                    frame = decode(message)
                except RemoteProtocolError as error:
                    if error.request_id is not None:
                        await receiver.deliver(failure(error.request_id, error))
                        continue
                    skipped += 1
                    if skipped <= _WARNINGS:
                        logger.warning("the server wrote something that is no message: %.200r", message[:200])
                    continue
                if type(frame) is not Response or not receiver.deliver_nowait(frame):
                    await receiver.deliver(frame)
        receiver.lost(await why())
    except LinkClosed:
        with suppress(trio.ClosedResourceError):
            receiver.lost("the session is over")
