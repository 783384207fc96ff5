"""The client's end of an in-process pipe: carries frames to any object with `open_memory_link()`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Protocol

import trio
from attrs import frozen

from mcptrio.errors import ConnectionLost, RemoteProtocolError
from mcptrio.transports.client import Receiver
from mcptrio.transports.pipe.client import PipeClientLink, open_client_link, take_answer
from mcptrio.transports.pipe.server import Pipe


class MemoryLinkEnd(Protocol):
    """One end of a memory link."""

    def send_nowait(self, frame: bytes) -> bool: ...
    async def send(self, frame: bytes) -> None: ...
    async def receive(self) -> bytes: ...
    def hand_to(self, take: Callable[[bytes], bool]) -> None: ...


class HasMemoryLink(Protocol):
    """A server in this process."""

    def open_memory_link(self) -> AbstractAsyncContextManager[MemoryLinkEnd]: ...


class _MemoryPipe(Pipe):
    def __init__(self, end: MemoryLinkEnd) -> None:
        self._end = end

    def send_nowait(self, message: bytes) -> bool:
        return self._end.send_nowait(message)

    async def receive(self) -> Sequence[bytes | RemoteProtocolError]:
        try:
            return (await self._end.receive(),)
        except ConnectionLost:
            return ()

    async def send(self, messages: list[bytes]) -> None:
        try:
            for message in messages:
                await self._end.send(message)
        except ConnectionLost as error:
            raise trio.BrokenResourceError from error


@frozen
class MemoryTransport:
    """Transport to a server object in this process; every link is a session of its own."""

    server: HasMemoryLink
    name: str = "memory"

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[PipeClientLink]:
        async with self.server.open_memory_link() as end:
            end.hand_to(partial(take_answer, receiver))
            async with open_client_link(_MemoryPipe(end), receiver) as link:
                yield link
