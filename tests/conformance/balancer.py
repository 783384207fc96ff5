"""A load balancer without sticky routing: the requests of a client go to one server after the other.

    python -m tests.conformance.balancer PORT SERVER_PORT SERVER_PORT …

Each request has a connection of its own to the next server, also those that share a connection of the client.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence

import h11
import trio

LOST = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError)
HOP_BY_HOP = (b"connection", b"keep-alive")


class BalancedConnection:
    """One connection of a client."""

    def __init__(self, stream: trio.SocketStream, ports: Iterator[int]) -> None:
        self.stream = stream
        self.ports = ports
        self.http = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        while (request := await self._next()) is not None and isinstance(request, h11.Request):
            body = b""
            while isinstance(part := await self._next(), h11.Data):
                body += part.data
            await self._pass_on(request, body)
            if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
                return
            self.http.start_next_cycle()

    async def _next(self) -> object:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.stream.receive_some(65536))
        return None if isinstance(event, h11.ConnectionClosed) else event

    async def _pass_on(self, request: h11.Request, body: bytes) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", next(self.ports)) as server:
            there = h11.Connection(h11.CLIENT)
            kept = [pair for pair in request.headers.raw_items() if pair[0].lower() not in HOP_BY_HOP]
            head = h11.Request(method=request.method, target=request.target, headers=[*kept, (b"Connection", b"close")])
            parts = [head, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
            await server.send_all(b"".join(there.send(part) or b"" for part in parts))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                await self._pass_back(server, there)
                nursery.cancel_scope.cancel()

    async def _pass_back(self, server: trio.SocketStream, there: h11.Connection) -> None:
        while True:
            event = there.next_event()
            if event is h11.NEED_DATA:
                there.receive_data(await server.receive_some(65536))
                continue
            if isinstance(event, h11.Response | h11.InformationalResponse):
                kept = [pair for pair in event.headers.raw_items() if pair[0].lower() not in HOP_BY_HOP]
                event = type(event)(status_code=event.status_code, headers=kept, reason=event.reason)
            if isinstance(event, h11.Response | h11.InformationalResponse | h11.Data | h11.EndOfMessage):
                await self.stream.send_all(self.http.send(event) or b"")
            if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return

    async def _watch(self, scope: trio.CancelScope) -> None:
        """Disconnect from the server when the client is gone."""
        try:
            data = await self.stream.receive_some(65536)
        except LOST:
            data = b""
        if data:
            self.http.receive_data(data)  # the next request, sent early
        else:
            scope.cancel()


async def balance(port: int, ports: Sequence[int]) -> None:
    """Serve until cancelled."""
    turns = itertools.cycle(ports)

    async def serve(stream: trio.SocketStream) -> None:
        try:
            await BalancedConnection(stream, turns).serve()
        except* LOST:
            pass

    await trio.serve_tcp(serve, port, host="127.0.0.1")


if __name__ == "__main__":
    trio.run(balance, int(sys.argv[1]), [int(number) for number in sys.argv[2:]])
