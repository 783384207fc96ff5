"""A TCP proxy that does to connections what networks do: delay, cut after so many bytes, reset, swallow, corrupt."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import trio

Ending = Literal["fin", "rst", "black hole"]


@dataclass(frozen=True)
class Fault:
    """What happens to one connection. The bytes are counted from the server's side, after the first `clean` ones."""

    delay: float = 0.0
    """Seconds that each piece from the server is held back."""
    cut_after: int | None = None
    """So many bytes of the server's get through, then `ending`."""
    ending: Ending = "fin"
    corrupt_at: int | None = None
    """The byte at this place is changed."""
    refuse: bool = False
    """Closed as soon as it is accepted."""


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
        self._open.add(client)
        try:
            server = await trio.open_tcp_stream("127.0.0.1", self.target)
            async with client, server, trio.open_nursery() as nursery:
                nursery.start_soon(self._up, client, server, nursery.cancel_scope)
                await self._down(server, client, fault)
                nursery.cancel_scope.cancel()
        except OSError:
            pass
        finally:
            self._open.discard(client)

    async def _up(self, client: trio.SocketStream, server: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            while data := await client.receive_some(65536):
                await server.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()

    async def _down(self, server: trio.SocketStream, client: trio.SocketStream, fault: Fault) -> None:
        passed = 0
        try:
            while data := await server.receive_some(65536):
                if fault.delay:
                    await trio.sleep(fault.delay)
                if fault.corrupt_at is not None and passed <= fault.corrupt_at < passed + len(data):
                    place = fault.corrupt_at - passed
                    data = data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]
                if fault.cut_after is not None and passed + len(data) >= fault.cut_after:
                    await client.send_all(bytes(data[: fault.cut_after - passed]))
                    if fault.ending == "black hole":
                        await trio.sleep_forever()
                    if fault.ending == "rst":
                        reset(client)
                    return
                passed += len(data)
                await client.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def reset_all(self) -> None:
        """Cut every open connection, now."""
        for stream in tuple(self._open):
            reset(stream)
            stream.socket.close()


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
