"""Transports of your own: the protocols `Link` and `Transport`, and the adapters for them.

A link is one open connection; `server.serve(link)` serves it. A transport opens links to a server;
`connect(transport)` uses it. Whatever moves messages of bytes can be one: a serial line, a message queue, a tunnel.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol

import trio
from attrs import define, frozen

from mcptrio.errors import RemoteProtocolError
from mcptrio.transports.client import NotDelivered, Receiver
from mcptrio.transports.pipe.client import PipeClientLink, open_client_link
from mcptrio.transports.pipe.server import Pipe

CUSTOM = "custom"
"""The name of such a transport in events, logs and `session.transport`."""


class Link(Protocol):
    """One connection that carries JSON-RPC messages as bytes, whole and in order, in both directions.

    Every `trio.abc.Channel[bytes]` is a link. One task sends and another one receives; a link is never used by two
    tasks in the same direction. It has to bound the size of a received message itself.
    """

    async def send(self, value: bytes) -> None:
        """Send one message; wait while the peer does not keep up.

        Raises:
            trio.BrokenResourceError: the connection is lost.
        """
        ...

    async def receive(self) -> bytes:
        """Wait for the next message.

        Raises:
            trio.EndOfChannel: the peer will send nothing more.
            trio.BrokenResourceError: the connection is lost.
        """
        ...


class Transport(Protocol):
    """A way to reach a server, for `connect(transport)`."""

    def open_link(self) -> AbstractAsyncContextManager[Link]:
        """Open a connection to the server, and close it when the block is left.

        A client that lost its connection calls this again.

        Raises:
            OSError: there is no connection to the server.
        """
        ...


@define(eq=False, repr=False)
class LinkPipe(Pipe):
    """The pipe that a link is for sessions and clients."""

    _link: Link
    _why: str = ""

    async def receive(self) -> Sequence[bytes | RemoteProtocolError]:
        try:
            return (await self._link.receive(),)
        except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._why = str(error)
            return ()

    async def send(self, messages: list[bytes]) -> None:
        for message in messages:
            await self._link.send(message)

    async def why(self) -> str:
        """Return the reason for the end."""
        return "the server closed the connection" + (f": {self._why}" if self._why else "")


@frozen
class LinkTransport:
    """A client transport over a user's `Transport`."""

    transport: Transport
    name: str = CUSTOM

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[PipeClientLink]:
        async with AsyncExitStack() as stack:
            try:
                pipe = LinkPipe(await stack.enter_async_context(self.transport.open_link()))
            except (OSError, trio.BrokenResourceError) as error:
                raise NotDelivered(f"no connection to the server: {error}") from error
            yield await stack.enter_async_context(open_client_link(pipe, receiver, why=pipe.why))
