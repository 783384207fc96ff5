"""One connection's stream with its bounds.

Theory of operation. An engine uses a `GuardedStream` in place of the socket. One task reads from it all the time, so
its reads carry every deadline of the inbound side: the head must arrive in time, an idle connection ends. Its writes
have a deadline of their own, inside any shield of the caller: a peer that stops reading cannot hold a task. Closing
under a peer that is still sending would reset the connection and lose the response; so the write side closes first,
and what still arrives is read and dropped for a moment (RFC 9112 section 9.6).
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Final, TypeAlias, cast

import trio

from mcptrio import telemetry
from mcptrio._actors.shares import owner_of
from mcptrio._actors.timers import Timer, Timers
from mcptrio._actors.turns import Turns
from mcptrio._actors.unread import COPIES, Unread
from mcptrio.transports.http_server.config import HttpConfig

from .framing import FramingLimits, Refusal
from .gate import RawRequest, ReadPhase, RequestGate

_READ_MAX: Final = 64 * 1024
WRITE_PIECE: Final = 64 * 1024
_LARGE_PIECE: Final = 16 * 1024  # bytes whose reading and decoding takes about as long as a request
_LARGE_PHASES: Final = (ReadPhase.BODY, ReadPhase.RAW)
_LINGER: Final = 2.0  # for a peer that has not sent all of its request
_LINGER_BRIEFLY: Final = 0.25  # for one that has, and sends more perhaps
_LINGER_BYTES: Final = 16 * 1024 * 1024
_CAN_WRITE: Final = sys.platform != "win32"  # a socket there is no file descriptor
TOO_SLOW: Final = Refusal(408, "the request head took too long")
_FRESH_GRACE: Final = 0.25  # at drain, for the first request of a connection just opened: it may be under way

_LIMITS: Final = {408: "header_timeout", 413: "max_body", 414: "headers", 431: "headers"}  # by the status of a refusal

SocketOrTLS: TypeAlias = "trio.SocketStream | trio.SSLStream[trio.SocketStream]"
Serve: TypeAlias = "Callable[[GuardedStream], Awaitable[None]]"
"""Serves one connection until it ends: an engine."""


class GuardedStream:
    """A connection's bytes, checked on the way in and timed on the way out. Read by one task only.

    Owns: the socket, the gate.
    """

    def __init__(
        self,
        stream: SocketOrTLS,
        config: HttpConfig,
        hub: telemetry.Hub,
        timers: Timers,
        *,
        turns: Turns | None = None,
        unread: Unread | None = None,
    ) -> None:
        self.timer = Timer(timers, self._interrupt)
        self.gate = RequestGate(
            FramingLimits(
                max_header_bytes=config.max_header_bytes, max_headers=config.max_headers, max_body=config.max_body
            )
        )
        self.tls = isinstance(stream, trio.SSLStream)
        self.socket = stream.transport_stream.socket if isinstance(stream, trio.SSLStream) else stream.socket
        self.address = _peer_address(self.socket)
        """The peer's host and port; None where it has none."""
        unnamed = "unix" if self.socket.family == getattr(socket, "AF_UNIX", None) else "gone"
        self.client = unnamed if self.address is None else f"{self.address[0]}:{self.address[1]}"
        self.hub = hub
        self.draining = False
        """The listener stops: no further request is served on this connection."""
        self._stream = stream
        self._config = config
        self.timer.set(trio.current_time() + config.header_timeout)
        self._reading = trio.CancelScope()
        self.interrupted = False  # the reader has to leave the scope of `reading`
        self._woken = False
        self._waits = False  # for the peer, in `_reading`
        self._finished = False
        self._pushed_back = b""
        self.owner = owner_of(self.address)
        """The owner of what the connection uses: the caller of the request that is served, else its address."""
        self._turns = turns
        self._unread = unread
        if hasattr(socket, "TCP_USER_TIMEOUT") and self.socket.family != getattr(socket, "AF_UNIX", None):
            with suppress(OSError):  # the kernel ends what we may no longer be there to end
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(config.write_timeout * 1000))

    def client_certificate(self) -> str | None:
        """Return the client's verified TLS certificate (PEM), if one was requested."""
        if not self.tls or self._config.client_ca is None:
            return None
        der: bytes | None = cast("trio.SSLStream[trio.SocketStream]", self._stream).getpeercert(binary_form=True)
        return None if der is None else ssl.DER_cert_to_PEM_cert(der)

    def report(self, kind: str, detail: str = "", *, limit: str | None = None) -> None:
        """Emit what happened to this connection, and the limit that caused it."""
        if self.hub:
            self.hub.emit(telemetry.ConnectionEvent(kind=kind, client=self.client, detail=detail))
            if limit is not None:
                self.hub.emit(telemetry.LimitHit(name=limit))

    async def handshake(self) -> bool:
        """Do the TLS handshake, if there is TLS; return whether it succeeded."""
        if not isinstance(self._stream, trio.SSLStream):
            return True
        reason = f"it took longer than {self._config.handshake_timeout:g} s (HttpConfig.handshake_timeout)"
        with trio.move_on_after(self._config.handshake_timeout):
            try:
                await self._stream.do_handshake()
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                reason = str(getattr(error.__cause__, "reason", None) or "the client closed the connection")
            else:
                self.timer.set(trio.current_time() + self._config.header_timeout)
                return True
        self.report("handshake_failed", reason)  # OpenSSL's name, such as TLSV1_ALERT_UNKNOWN_CA or HTTP_REQUEST
        return False

    # -- inbound

    async def receive_some(self) -> bytes:
        """Return the next bytes that pass the gate; b"" when the peer is gone, too slow, or was refused."""
        gate = self.gate
        while True:
            if self._finished:
                await self._read_away()
                return b""
            if self._pushed_back:
                pushed_back, self._pushed_back = self._pushed_back, b""
                return pushed_back
            step = gate.next() if gate.buffer else b""
            if isinstance(step, Refusal):
                await self._refuse(step)
                continue
            if step:
                self.timer.deadline = inf
                self.timer.expired = False
                return step
            data = await self._read(hold=step is None)
            if data is None:
                continue
            if not data:
                return b""
            if gate.phase is ReadPhase.IDLE:
                found = gate.feed_whole(data)
                if found is not None:
                    self.timer.deadline = inf
                    self.timer.expired = False
                    return found.encode()
                self.timer.set(trio.current_time() + self._config.header_timeout)
            elif gate.phase in _LARGE_PHASES:
                await self._take_turn(data)
            gate.feed(data)

    def reading(self) -> trio.CancelScope:
        """Return a scope for reading; it is cancelled when the peer is too slow, or when the reader must look again."""
        self._reading = trio.CancelScope()
        self.interrupted = self.timer.expired
        if self.timer.expired:
            self._reading.cancel()
        return self._reading

    async def next_request(self, scope: trio.CancelScope) -> RawRequest | Refusal | None:
        """Wait for the next request, or why it is not served; None when the peer is done. For plain sockets only."""
        self._reading = scope
        gate = self.gate
        found: RawRequest | Refusal | None = gate.next_request() if gate.phase is ReadPhase.HEAD else None
        while found is None:
            data = await self._read_at_once()
            if not data:
                return None
            if gate.phase is not ReadPhase.IDLE:
                gate.feed(data)
                found = gate.next_request()
            elif (found := gate.feed_whole(data)) is None:
                gate.feed(data)
                found = gate.next_request()
                if found is None:
                    self.timer.set(trio.current_time() + self._config.header_timeout)
        self.timer.deadline = inf
        return found

    async def _read_at_once(self) -> bytes:
        """Read like the stream's own `receive_some`, without trying before there is anything to read."""
        if not _CAN_WRITE:
            return bytes(await self._stream.receive_some(_READ_MAX))
        while True:
            await trio.lowlevel.wait_readable(self.socket)
            try:
                return os.read(self.socket.fileno(), _READ_MAX)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError("the peer is gone") from error

    async def refuse(self, refusal: Refusal) -> None:
        """Answer without serving, and close; a peer that is still sending gets the time to read it."""
        await self._refuse(refusal)
        await self._read_away()

    async def give_up(self) -> None:
        """Answer 408 if the peer took too long to send a head."""
        if self.gate.phase is ReadPhase.HEAD:
            await self.refuse(TOO_SLOW)

    def push_back(self, request: RawRequest) -> None:
        """Let `receive_some` return a request again, as bytes: another engine serves it."""
        self._pushed_back = request.encode()

    def response_done(self) -> None:
        """Accept the next request after a response, while another task is reading."""
        self.release()
        if self.gate.buffer:
            self._wake()

    def release(self) -> None:
        """Accept the next request after a response; no task is reading."""
        self.gate.release()
        self.owner = owner_of(self.address)  # the next request may be of another caller
        waiting = self._config.header_timeout if self.gate.buffer else self._config.keep_alive_timeout
        self.timer.set(trio.current_time() + waiting)

    def switch(self) -> None:
        """Pass everything through, because the WebSocket was accepted."""
        self.gate.switch()
        self._wake()

    def set_owner(self, owner: str) -> None:
        """Note who uses the connection from now on: the caller of the request that is served."""
        self.owner = owner

    def drain(self, grace: float = 0.0) -> None:
        """Wait at most `grace` seconds for one more request."""
        self.draining = True
        if self.gate.phase is ReadPhase.IDLE:
            grace = grace if self.gate.requests else max(grace, _FRESH_GRACE)
            self.timer.set(min(self.timer.deadline, trio.current_time() + grace))

    async def _read(self, *, hold: bool) -> bytes | None:
        """Read from the socket, or only wait (`hold`).

        Return b"" at the peer's end or deadline, None when the gate must be asked again.
        """
        with self.reading():
            if not self.interrupted:  # otherwise this wait ends at once, for the same reason
                self._woken = False
            self._waits = True
            try:
                if hold:
                    await trio.sleep_forever()
                if not self.tls:
                    return await self._read_at_once()
                return bytes(await self._stream.receive_some(_READ_MAX))
            finally:
                self._waits = False
        woken, self._woken = self._woken, False  # once: a stream that is also late would be woken for ever
        if woken:
            return None
        if self.gate.phase is ReadPhase.HEAD:
            await self._refuse(TOO_SLOW)
        return b""

    async def _read_away(self) -> None:
        with trio.CancelScope(deadline=self.timer.deadline) as self._reading:
            left = _LINGER_BYTES
            while left > 0 and (data := await self._stream.receive_some(_READ_MAX)):
                left -= len(data)
                await self._take_turn(data)

    async def _take_turn(self, data: bytes | bytearray) -> None:
        """After a large piece, leave the loop to others: with a hundred connections, pieces would fill its turns."""
        if self._turns is not None and len(data) >= _LARGE_PIECE:
            await self._turns.take(self.owner)

    def _wake(self) -> None:
        self._woken = True
        if self._waits:  # otherwise the reader looks again anyway
            self._interrupt()

    def _interrupt(self) -> None:
        self.interrupted = True
        self._reading.cancel()

    # -- outbound

    async def send_all(self, data: bytes, start: int = 0) -> None:
        """Write the bytes from `start` on, and cut the connection if the peer does not take them in time.

        Raises:
            trio.BrokenResourceError: the peer is gone, or was cut.
            trio.ClosedResourceError: it was cut because its owner has most unread.
        """
        view = memoryview(data)
        with self.keeping(COPIES * len(data)):
            for at in range(start, len(data), WRITE_PIECE):  # a slow peer that makes progress is no stalled one
                await self._send_piece(view[at : at + WRITE_PIECE])
                if self._unread is not None:
                    self._unread.take(self)

    @contextmanager
    def keeping(self, size: int) -> Iterator[None]:
        """Count bytes that are kept while they are written. A large body is written in pieces, so it exists once."""
        if self._unread is None:
            yield
            return
        self._unread.add(self, size)
        try:
            yield
        finally:
            self._unread.take(self, size)

    async def send_soon(self, data: bytes) -> None:
        """Write like `send_all`, without a task switch if the socket takes everything at once."""
        sent = self.send_now(data)
        if sent < len(data):
            await self.send_all(data, sent)

    def send_now(self, data: bytes) -> int:
        """Write what the socket takes at once, and return the number of those bytes."""
        if self.tls or self._finished or not _CAN_WRITE:
            return 0
        try:
            return os.write(self.socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError("the peer is gone") from error

    async def _send_piece(self, piece: bytes | memoryview) -> None:
        with trio.move_on_after(self._config.write_timeout) as scope:
            await self._stream.send_all(piece)
        if scope.cancelled_caught:
            self.kill()
            self.report("write_timeout", limit="write_timeout")
            raise trio.BrokenResourceError("the peer did not read in time")

    async def _refuse(self, refusal: Refusal) -> None:
        limit = _LIMITS.get(refusal.status)
        self.report("request_refused", f"{refusal.status} {refusal.reason}", limit=limit)
        self.gate.refuse()
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.send_all(refusal.encode())
        await self.finish()

    async def turn_away(self, refusal: Refusal) -> None:
        """Answer a connection that will not be served, whatever it asks, and close it."""
        self.gate.refuse()
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.send_all(refusal.encode())
            await self.finish()
            await self._read_away()

    # -- the end

    async def finish(self) -> None:
        """Close after the last response; a peer that is still sending gets the time to read it."""
        if self._finished:
            return
        self._finished = True
        more = self.gate.unread or self.gate.buffer  # otherwise it may still be sending, unnoticed
        self.timer.set(trio.current_time() + (_LINGER if more else _LINGER_BRIEFLY))
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        self._wake()

    def cut(self) -> None:
        """Close the connection, because its peer does not read and its owner has most unread."""
        self.report("not_read")
        self.kill()

    def kill(self) -> None:
        """Close at once; tasks that wait on the stream get `trio.ClosedResourceError`."""
        self._finished = True
        self.timer.close()
        self.socket.close()


def _peer_address(sock: trio.socket.SocketType) -> tuple[str, int] | None:
    try:
        name = sock.getpeername()
    except OSError:
        return None
    return (name[0], name[1]) if isinstance(name, tuple) else None
