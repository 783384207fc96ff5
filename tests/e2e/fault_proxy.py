"""Network faults: delay, throttle, cut after so many bytes, half-close, reset, swallow, corrupt.

`carry` does it to any stream: between two sockets in a `FaultProxy`, between memory streams in a `faulty_pair`, where
time may be virtual.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import trio
from trio.testing import memory_stream_pair

Ending = Literal["fin", "rst", "black hole"]


@dataclass(frozen=True)
class Fault:
    """The faults of one connection. The bytes are counted from the server's side, after the first `clean` ones."""

    delay: float = 0.0
    """Seconds that each piece from the server is held back."""
    cut_after: int | None = None
    """The number of bytes of the server that pass before `ending`."""
    ending: Ending = "fin"
    corrupt_at: int | None = None
    """The byte at this place is changed."""
    rate: float | None = None
    """The number of bytes of the server that pass in a second."""
    half_close_after: int | None = None
    """After so many bytes of the client, half-close the connection to the server; its responses still pass."""
    refuse: bool = False
    """Closed as soon as it is accepted."""
    status: int | None = None
    """Answered with this HTTP status, as by a proxy whose server is away, and closed."""


NONE = Fault()


@dataclass
class FaultProxy:
    """Forwards to a port; `plan` gives the fault of each connection, by its number."""

    target: int
    plan: Callable[[int], Fault]
    port: int = 0
    connections: int = 0
    _open: set[trio.SocketStream] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, self._carry, 0)
            self.port = listeners[0].socket.getsockname()[1]
            task_status.started()

    async def _carry(self, client: trio.SocketStream) -> None:
        fault = self.plan(self.connections)
        self.connections += 1
        if fault.refuse:
            reset(client)
            await client.aclose()
            return
        if fault.status is not None:
            await answer(client, fault.status)
            return
        self._open.add(client)
        try:
            server = await trio.open_tcp_stream("127.0.0.1", self.target)
            if fault.rate is not None or fault.ending == "black hole":  # what is not taken waits where it came from
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            async with client, server:
                if await join(client, server, fault) == "rst":
                    reset(client)
        except OSError:
            pass
        finally:
            self._open.discard(client)

    def reset_all(self) -> None:
        """Cut every open connection, now."""
        for stream in tuple(self._open):
            reset(stream)
            stream.socket.close()


async def answer(client: trio.SocketStream, status: int) -> None:
    """Read the head of a request and answer it with a status and no body."""
    head = b"HTTP/1.1 %d Away\r\nContent-Length: 0\r\nRetry-After: 0\r\nConnection: close\r\n\r\n" % status
    received = b""
    async with client:
        try:
            while b"\r\n\r\n" not in received and (data := await client.receive_some(65536)):
                received += data
            await client.send_all(head)
            await client.send_eof()
            while await client.receive_some(65536):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


async def join(client: trio.abc.HalfCloseableStream, server: trio.abc.HalfCloseableStream, fault: Fault) -> Ending:
    """Carry bytes both ways until either side is done; gives how the client's connection is to end."""
    ending: Ending = "fin"
    async with trio.open_nursery() as nursery:

        async def up() -> None:
            if not await _up(client, server, fault):
                nursery.cancel_scope.cancel()

        nursery.start_soon(up)
        ending = await carry(server, client, fault)
        nursery.cancel_scope.cancel()
    return ending


async def _up(client: trio.abc.ReceiveStream, server: trio.abc.HalfCloseableStream, fault: Fault) -> bool:
    """The client's bytes; True if the way back is to stay open after them."""
    left = fault.half_close_after
    try:
        while data := await client.receive_some(65536):
            await server.send_all(data)
            if left is not None:
                left -= len(data)
                if left <= 0:
                    await server.send_eof()
                    return True
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    return False


async def carry(source: trio.abc.ReceiveStream, sink: trio.abc.SendStream, fault: Fault) -> Ending:
    """The server's bytes, with what happens to them on the way; gives how they end."""
    passed = 0
    try:
        while data := bytes(await source.receive_some(65536)):
            if fault.delay:
                await trio.sleep(fault.delay)
            if fault.corrupt_at is not None and passed <= fault.corrupt_at < passed + len(data):
                place = fault.corrupt_at - passed
                data = data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]
            ends = fault.cut_after is not None and passed + len(data) >= fault.cut_after
            if ends:
                data = data[: (fault.cut_after or 0) - passed]
            passed += len(data)
            await _send(sink, data, fault.rate)
            if ends:
                if fault.ending == "black hole":
                    await trio.sleep_forever()
                return fault.ending
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    return "fin"


async def _send(sink: trio.abc.SendStream, data: bytes, rate: float | None) -> None:
    if rate is None:
        await sink.send_all(data)
        return
    step = max(1, int(rate))
    for at in range(0, len(data), step):
        piece = data[at : at + step]
        await trio.sleep(len(piece) / rate)
        await sink.send_all(piece)


Half = trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]


def faulty_pair(nursery: trio.Nursery, fault: Fault) -> tuple[Half, Half]:
    """Two ends of a stream in memory, the client's and the server's, with a network between them."""
    client, near = memory_stream_pair()
    far, server = memory_stream_pair()

    async def network() -> None:
        await join(near, far, fault)
        await near.aclose()
        await far.aclose()

    nursery.start_soon(network)
    return client, server


def reset(stream: trio.SocketStream) -> None:
    """Have closing send RST instead of FIN."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@asynccontextmanager
async def fault_proxy(target: int, plan: Callable[[int], Fault]) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(target, plan)
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.serve)
        try:
            yield proxy
        finally:
            nursery.cancel_scope.cancel()
