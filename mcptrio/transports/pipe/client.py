"""The client's end of all pipes: one task reads, one writes, both end with the link.

The server on the other end is not trusted: output that is not a message (a banner on standard output) is skipped with a
warning. A message that is too long ends the link, since it may have contained the response to a pending request.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio
from attrs import define, field

from mcptrio._actors.outbox import Outbox
from mcptrio._peer.era import Era
from mcptrio._wire.jsonrpc import Response, decode
from mcptrio.errors import ConnectionLost, RemoteProtocolError
from mcptrio.transports.client import Receiver, hand_over
from mcptrio.transports.pipe.server import Pipe

logger = logging.getLogger("mcptrio.client.pipe")

MAX_MESSAGE: Final = 16 * 1024 * 1024
_MOST_UNSENT: Final = 4 * MAX_MESSAGE
_WARNINGS: Final = 5
_FLUSH_TIMEOUT: Final = 1.0


@define(eq=False, repr=False)
class PipeClientLink:
    """A link over a pipe.

    Requests wait for room. Cancellations and responses to the server do not, and the reader never waits for the writer:
    otherwise both sides could block on each other for ever. The link to a server that sends without reading is closed.
    """

    pipe: Pipe
    hang_up: Callable[[str], None]
    outbox: Outbox = field(factory=Outbox)
    full: bool = False

    def post(self, data: bytes) -> None:
        if not self.outbox.idle or not self.pipe.send_nowait(data):
            self.outbox.put(data)
            self.full = self.outbox.full
            if self.outbox.weight > _MOST_UNSENT:
                self.hang_up("the server does not read")

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()
        await self.outbox.room()

    def use_era(self, era: Era) -> None:
        pass

    async def confirmed(self) -> None:
        await trio.lowlevel.checkpoint()  # a pipe keeps the order


async def _nothing_to_add() -> str:
    return "the server closed the connection"


@asynccontextmanager
async def open_client_link(
    pipe: Pipe,
    receiver: Receiver,
    *,
    why: Callable[[], Awaitable[str]] = _nothing_to_add,
) -> AsyncIterator[PipeClientLink]:
    """Carry frames over `pipe` until the block is left. `why` returns the reason once the server is gone."""
    link = PipeClientLink(pipe, receiver.lost)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read, pipe, receiver, why)
        written = trio.Event()
        nursery.start_soon(_write, pipe, link, receiver, written)
        try:
            yield link
        finally:
            link.outbox.close()
            with trio.move_on_after(_FLUSH_TIMEOUT, shield=True):
                await written.wait()
            nursery.cancel_scope.cancel()


def take_answer(receiver: Receiver, message: bytes) -> bool:
    """Deliver a message if it is a response that can be taken without waiting; the reader handles all others."""
    try:
        frame = decode(message, receiver.json_limits)
    except RemoteProtocolError:
        return False
    return type(frame) is Response and receiver.deliver_nowait(frame)


async def _write(pipe: Pipe, link: PipeClientLink, receiver: Receiver, written: trio.Event) -> None:
    outbox = link.outbox
    try:
        while True:
            messages = await outbox.take_some()
            link.full = False
            await pipe.send(messages)
    except ConnectionLost:
        pass  # the link was left
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        outbox.close()
        # The reader sees the end too, and knows its reason. A server that only stopped reading cannot be answered.
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
                if isinstance(await hand_over(receiver, message), RemoteProtocolError):
                    skipped += 1
                    if skipped <= _WARNINGS:
                        logger.warning("the server wrote a line that is not a message: %.200r", message[:200])
        receiver.lost(await why())
    except ConnectionLost:
        with suppress(trio.ClosedResourceError):
            receiver.lost("the session is over")
