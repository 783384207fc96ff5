"""Ways to reach an endpoint that look the same: in this process, and over a socket byte by byte."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Protocol

import trio
from attrs import define, field

from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain, Stream
from tests.transports.app_for_tests import exchange


class Answer(Protocol):
    """A response whose body is read piece by piece."""

    status: int
    headers: Mapping[str, str]

    async def next(self) -> bytes | None: ...

    def cut(self) -> None:
        """Lose the connection, now."""
        ...


class Wire(Protocol):
    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> Answer: ...

    def close(self) -> None: ...


# -- without a network


@define
class InnerAnswer:
    status: int
    headers: Mapping[str, str]
    _reply: Plain | Stream
    _read: bool = False

    async def next(self) -> bytes | None:
        if isinstance(self._reply, Stream):
            piece = await self._reply.events.next()
            if piece is None:
                self._reply.events.detach("done")
            return piece
        if self._read:
            return None
        self._read = True
        return self._reply.body or None

    def cut(self) -> None:
        if isinstance(self._reply, Stream):
            self._reply.events.detach("disconnected")


@define
class InnerWire:
    """Call the endpoint as an engine does."""

    endpoint: Endpoint

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> InnerAnswer:
        fields = [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in headers.items())]
        head = HttpRequest(method=method, path="/mcp", headers=fields)
        reply = await exchange(self.endpoint, head, body)
        got = {name.decode(): value.decode() for name, value in reply.headers}
        return InnerAnswer(reply.status, got, reply)

    def close(self) -> None:
        pass


# -- sockets


class Broken(Exception):
    """The connection ended in the middle of a response."""


@define
class SocketAnswer:
    status: int
    headers: Mapping[str, str]
    wire: SocketWire
    _stream: trio.SocketStream
    _buffer: bytearray
    _left: int
    _chunked: bool
    done: bool = False

    async def next(self) -> bytes | None:
        if self.done:
            return None
        if self._chunked:
            while b"\r\n" not in self._buffer:
                await self._more()
            line, _, _ = self._buffer.partition(b"\r\n")
            size = int(line, 16)
            while len(self._buffer) < len(line) + size + 4:
                await self._more()
            piece = bytes(self._buffer[len(line) + 2 : len(line) + 2 + size])
            del self._buffer[: len(line) + size + 4]
            if size:
                return piece
        elif self._left:
            if not self._buffer:
                await self._more()
            piece = bytes(self._buffer[: self._left])
            del self._buffer[: self._left]
            self._left -= len(piece)
            return piece
        self.done = True
        if self.headers.get("connection") == "close":
            self._stream.socket.close()
        else:
            self.wire.give_back(self._stream)
        return None

    async def _more(self) -> None:
        data = await receive(self._stream)
        self._buffer += data

    def cut(self) -> None:
        if not self.done:
            self.done = True
            self.wire.hang_up(self._stream)


async def receive(stream: trio.SocketStream) -> bytes:
    try:
        data = await stream.receive_some(65536)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        raise Broken from None
    if not data:
        raise Broken
    return bytes(data)


IDLE_FOR = 30.0
"""Seconds after which a connection is not used again: a server closes it after 75."""


@define
class SocketWire:
    """HTTP/1.1 by hand. Connections are kept and used again, as a client's pool does."""

    port: int
    reset: bool = False
    """Whether losing a connection is an RST or a FIN; turns with every loss."""
    receive_buffer: int | None = None
    """How much the kernel may hold for a client that does not read."""
    _idle: list[tuple[float, trio.SocketStream]] = field(factory=list)
    """Connections, and since when they are idle."""

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> SocketAnswer:
        if self._idle and trio.current_time() - self._idle[-1][0] > IDLE_FOR:
            self.close()  # the others are idle for longer
        stream = self._idle.pop()[1] if self._idle else await trio.open_tcp_stream("127.0.0.1", self.port)
        if self.receive_buffer is not None:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
        lines = [f"{method} /mcp HTTP/1.1", f"host: 127.0.0.1:{self.port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if method == "POST":
            lines.append(f"content-length: {len(body)}")
        try:
            await stream.send_all("\r\n".join([*lines, "", ""]).encode() + body)
            return await self._read_head(stream)
        except BaseException:
            stream.socket.close()
            raise

    async def _read_head(self, stream: trio.SocketStream) -> SocketAnswer:
        buffer = bytearray()
        while b"\r\n\r\n" not in buffer:
            buffer += await receive(stream)
        head, _, rest = buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        got = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split(" ")[1])
        length, chunked = int(got.get("content-length", 0)), "transfer-encoding" in got
        answer = SocketAnswer(status, got, self, stream, rest, length, chunked)
        if not chunked and not length:
            await answer.next()
        return answer

    def give_back(self, stream: trio.SocketStream) -> None:
        self._idle.append((trio.current_time(), stream))

    def hang_up(self, stream: trio.SocketStream) -> None:
        self.reset = not self.reset
        if self.reset:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.socket.close()

    def close(self) -> None:
        for _, stream in self._idle:
            stream.socket.close()
        self._idle.clear()


@define
class SpreadWire:
    """Requests go to one worker after the other, and are repeated where a worker asks for it with 503."""

    wires: list[SocketWire]
    repeated: int = 0
    _sent: int = 0

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> SocketAnswer:
        while True:
            self._sent += 1
            answer = await self.wires[self._sent % len(self.wires)].send(method, headers, body)
            if answer.status != 503:
                return answer
            while await answer.next() is not None:
                pass
            self.repeated += 1
            await trio.sleep(0.2)

    def close(self) -> None:
        for wire in self.wires:
            wire.close()
