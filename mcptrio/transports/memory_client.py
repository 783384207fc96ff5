"""The client's end of a pipe inside one process: carries frames to anything with `open_memory_link()`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Protocol

import trio
from attrs import frozen

from mcptrio.errors import LinkClosed, RemoteProtocolError
from mcptrio.transports.carrier import Receiver
from mcptrio.transports.client_pipe import PipeLine, open_pipe_line, take_answer


class End(Protocol):
    """One end of a memory link."""

    def send_nowait(self, frame: bytes) -> bool: ...
    async def send(self, frame: bytes) -> None: ...
    async def receive(self) -> bytes: ...


class HasMemoryLink(Protocol):
    """A server in this process."""

    def open_memory_link(self) -> AbstractAsyncContextManager[End]: ...


class _MemoryPipe:
    def __init__(self, end: End) -> None:
        self._end = end
        self.send_nowait = end.send_nowait

    async def receive(self) -> Sequence[bytes | RemoteProtocolError]:
        try:
            return (await self._end.receive(),)
        except LinkClosed:
            return ()

    async def send(self, messages: list[bytes]) -> None:
        try:
            for message in messages:
                await self._end.send(message)
        except LinkClosed as error:
            raise trio.BrokenResourceError from error


@frozen
class MemoryCarrier:
    """Reaches a server object in this process; every line is a session of its own."""

    server: HasMemoryLink
    name: str = "memory"

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[PipeLine]:
        async with self.server.open_memory_link() as end:
            if (hand_to := getattr(end, "hand_to", None)) is not None:
                hand_to(partial(take_answer, receiver))
            async with open_pipe_line(_MemoryPipe(end), receiver) as line:
                yield line
