"""One connection's stream with its bounds, and the guard that keeps its crash to itself.

Theory of operation. A `GuardedStream` is what the server behind it takes for the socket. One task reads from it, all
the time, so its reads carry every deadline of the inbound side: the head must come in time, an idle connection ends.
Its writes carry a deadline of their own, inside any shield of the caller: a peer that stops reading cannot hold a task.
Closing under a peer that is still sending would reset the connection and take the response with it; so the write side
closes first, and what still comes is read away for a moment (RFC 9112 section 9.6).
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Final, TypeAlias, cast

import trio
from attrs import frozen

from .deadlines import Deadlines, Timed
from .framing import Head, Refusal, is_plain
from .gate import Phase, RequestGate
from .serve import ListenerConfig

_READ_MAX: Final = 64 * 1024
_WRITE_PIECE: Final = 64 * 1024
_LINGER: Final = 2.0  # for a peer that has not sent all of its request
_LINGER_BRIEFLY: Final = 0.25  # for one that has, and sends more perhaps
_LINGER_BYTES: Final = 16 * 1024 * 1024
_CAN_WRITE: Final = sys.platform != "win32"  # a socket there is no file descriptor
TOO_SLOW: Final = Refusal(408, "the request head took too long")
_FRESH_GRACE: Final = 0.25  # at drain, for the first request of a connection just opened: it may be under way

SocketOrTLS: TypeAlias = "trio.SocketStream | trio.SSLStream[trio.SocketStream]"


# -- what a listener tells


@frozen(kw_only=True)
class ConnectionOpened:
    """A connection was accepted."""

    client: str


@frozen(kw_only=True)
class ConnectionEnded:
    """A connection is gone."""

    client: str
    requests: int


@frozen(kw_only=True)
class ConnectionRefused:
    """A connection was turned away at the door: too many are open."""

    client: str


@frozen(kw_only=True)
class RequestRefused:
    """A request was answered by the framing checks, and its connection closed."""

    client: str
    status: int
    reason: str


@frozen(kw_only=True)
class HandshakeFailed:
    """A TLS handshake failed or took too long."""

    client: str


@frozen(kw_only=True)
class WriteTimedOut:
    """A peer did not take bytes in time; its connection was cut."""

    client: str


@frozen(kw_only=True)
class MessageTooLarge:
    """A message on a WebSocket was longer than allowed; the socket was closed."""

    client: str


@frozen(kw_only=True)
class AppFailed:
    """The app raised instead of answering."""

    client: str
    error: BaseException


@frozen(kw_only=True)
class GuardCaught:
    """Something that should not happen ended one connection, and only that one."""

    client: str
    error: BaseException


@frozen(kw_only=True)
class AcceptFailed:
    """The operating system could not give us the next connection, for want of files or memory mostly."""

    error: OSError


ListenerEvent: TypeAlias = (
    ConnectionOpened
    | ConnectionEnded
    | ConnectionRefused
    | RequestRefused
    | HandshakeFailed
    | WriteTimedOut
    | MessageTooLarge
    | AppFailed
    | GuardCaught
    | AcceptFailed
)
Report: TypeAlias = Callable[[ListenerEvent], None]


async def contain(run: Callable[[], Awaitable[None]], report: Report, client: str) -> bool:
    """The connection guard: whatever `run` raises stops here, only `Cancelled` goes through. True if nothing was."""
    try:
        await run()
        return True
    except trio.Cancelled:
        raise
    except BaseExceptionGroup as group:
        cancelled, rest = group.split(trio.Cancelled)
        if rest is not None:
            report(GuardCaught(client=client, error=rest))
        if cancelled is not None:
            raise cancelled from None
    except BaseException as error:  # noqa: BLE001  one of the four guards: SystemExit in an app ends its connection
        report(GuardCaught(client=client, error=error))
    return False


class GuardedStream(Timed):
    """A connection's bytes, checked on the way in and timed on the way out. Read by one task only.

    Owns: the socket, the gate.
    """

    def __init__(
        self, stream: SocketOrTLS, gate: RequestGate, config: ListenerConfig, report: Report, deadlines: Deadlines
    ) -> None:
        super().__init__(deadlines)
        self.gate = gate
        self.tls = isinstance(stream, trio.SSLStream)
        self.socket = stream.transport_stream.socket if isinstance(stream, trio.SSLStream) else stream.socket
        self.client = _peer_name(self.socket)
        self.turn = 0  # whose it is: a task that began with another number has lost it
        self._stream = stream
        self._config = config
        self._report = report
        self.wait_until(trio.current_time() + config.header_timeout)
        self._reading = trio.CancelScope()
        self.interrupted = False  # whoever reads has to leave the scope of `reading`
        self._woken = False
        self._waits = False  # for the peer, in `_reading`
        self._finished = False
        self._pushed_back = b""
        if hasattr(socket, "TCP_USER_TIMEOUT") and self.socket.family != getattr(socket, "AF_UNIX", None):
            with suppress(OSError):  # the kernel ends what we may no longer be there to end
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(config.write_timeout * 1000))

    def client_certificate(self) -> str | None:
        """The client's certificate (PEM), where one was asked for and checked."""
        if not self.tls or self._config.client_ca is None:
            return None
        der: bytes | None = cast("trio.SSLStream[trio.SocketStream]", self._stream).getpeercert(binary_form=True)
        return None if der is None else ssl.DER_cert_to_PEM_cert(der)

    @property
    def address(self) -> tuple[str, int] | None:
        """The peer's host and port; None where it has none."""
        try:
            name = self.socket.getpeername()
        except OSError:
            return None
        return (name[0], name[1]) if isinstance(name, tuple) else None

    async def handshake(self) -> bool:
        """Begin TLS where there is any; False when it failed."""
        if not isinstance(self._stream, trio.SSLStream):
            return True
        with trio.move_on_after(self._config.handshake_timeout):
            try:
                await self._stream.do_handshake()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            else:
                self.wait_until(trio.current_time() + self._config.header_timeout)
                return True
        self._report(HandshakeFailed(client=self.client))
        return False

    # -- inbound

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next bytes the gate lets through; b"" when the peer is gone, out of time, or was refused."""
        part = await self.receive_part()
        return self.gate.rewritten(part) if type(part) is Head else cast(bytes, part)

    async def receive_part(self, scope: trio.CancelScope | None = None) -> Head | bytes:
        """The same, but a plain request's head is given as it was read; its body has to be taken from the gate.

        Whoever stays in a scope of `reading` gives it along, and asks `look_again` when it was cancelled.
        """
        gate = self.gate
        while True:
            if self._finished:
                await self._read_away()
                return b""
            if self._pushed_back:
                pushed_back, self._pushed_back = self._pushed_back, b""
                return pushed_back
            step: Head | Refusal | bytes | None = None
            if gate.phase is not Phase.IDLE:
                step = gate.next_head() if gate.phase is Phase.HEAD else gate.next()
            if step:
                if isinstance(step, Refusal):
                    await self._refuse(step)
                    continue
                self.deadline = inf
                self.is_late = False
                return gate.rewritten(step) if type(step) is Head and not is_plain(step) else step
            data = await self._read() if scope is None else await self._read_in(scope)
            if data is None:
                continue
            if not data:
                return b""
            if gate.phase is Phase.IDLE:
                found = gate.feed_whole(data)
                if found is not None:
                    self.deadline = inf
                    self.is_late = False
                    return found
                self.wait_until(trio.current_time() + self._config.header_timeout)
            gate.feed(data)

    def reading(self) -> trio.CancelScope:
        """A scope for whoever reads again and again to stay in: it ends when the peer is late, or to look again."""
        self._reading = trio.CancelScope()
        self.interrupted = self.is_late
        if self.is_late:
            self._reading.cancel()
        return self._reading

    async def next_head(self, scope: trio.CancelScope) -> Head | Refusal | None:
        """The next request's head, or why it is not served; None when the peer is done. For plain sockets only."""
        self._reading = scope
        gate = self.gate
        found: Head | Refusal | None = gate.next_head() if gate.phase is Phase.HEAD else None
        while found is None:
            data = await self._read_at_once()
            if not data:
                return None
            if gate.phase is not Phase.IDLE:
                gate.feed(data)
                found = gate.next_head()
            elif (found := gate.feed_whole(data)) is None:
                gate.feed(data)
                found = gate.next_head()
                if found is None:
                    self.wait_until(trio.current_time() + self._config.header_timeout)
        self.deadline = inf
        return found

    def late(self) -> None:
        self._interrupt()

    async def _read_at_once(self) -> bytes:
        """The same as the stream's own `receive_some`, without trying before there is anything to read."""
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
        """The peer took too long: tell it so if it was in the middle of something."""
        if self.gate.phase is Phase.HEAD:
            await self.refuse(TOO_SLOW)

    def push_back(self, head: Head) -> None:
        """What `next_head` gave is for another to read, as bytes, together with what is there of the body."""
        self._pushed_back = self.gate.rewritten(head)

    def next_request(self) -> None:
        """The response is complete; let the next request through, or wait for one. Another task is reading."""
        self.release()
        if self.gate.held:
            self._wake()

    def release(self) -> None:
        """The same where nobody is reading meanwhile."""
        self.gate.release()
        waiting = self._config.header_timeout if self.gate.held else self._config.keep_alive_timeout
        self.wait_until(trio.current_time() + waiting)

    def switch(self) -> None:
        """The WebSocket was accepted."""
        self.gate.switch()
        self._wake()

    def drain(self) -> None:
        """No further request is waited for."""
        if self.gate.phase is Phase.IDLE:
            grace = 0 if self.gate.requests else _FRESH_GRACE
            self.wait_until(min(self.deadline, trio.current_time() + grace))

    async def look_again(self) -> bool:
        """The wait for the peer was interrupted: whether there may be something to read, or the peer is out of time."""
        if not self._woken and self.gate.phase is Phase.HEAD:
            await self._refuse(TOO_SLOW)
        woken, self._woken = self._woken, False  # once: whoever is late by now would be woken for ever
        return woken

    async def _read(self) -> bytes | None:
        """What the peer sends next; b"" at its end or out of time, None when there is a reason to look again."""
        with self.reading() as scope:
            return await self._read_in(scope)
        return None if await self.look_again() else b""

    async def _read_in(self, scope: trio.CancelScope) -> bytes:
        self._reading = scope
        if not self.interrupted:  # or the next wait ends at once, for the same reason
            self._woken = False
        self._waits = True
        try:
            if self.gate.phase is not Phase.IDLE and self.gate.full:
                await trio.sleep_forever()
            if not self.tls:
                return await self._read_at_once()
            return bytes(await self._stream.receive_some(_READ_MAX))
        finally:
            self._waits = False

    async def _read_away(self) -> None:
        with trio.CancelScope(deadline=self.deadline) as self._reading:
            left = _LINGER_BYTES
            while left > 0 and (data := await self._stream.receive_some(_READ_MAX)):
                left -= len(data)

    def _wake(self) -> None:
        self._woken = True
        if self._waits:  # or whoever reads is not waiting, and will look anyway
            self._interrupt()

    def _interrupt(self) -> None:
        self.interrupted = True
        self._reading.cancel()

    # -- outbound

    async def send_all(self, data: bytes) -> None:
        """Write, and cut the connection if the peer does not take it in time.

        Raises:
            trio.BrokenResourceError: the peer is gone, or was cut.
        """
        if len(data) <= _WRITE_PIECE:
            await self._send_piece(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), _WRITE_PIECE):  # a slow peer that makes progress is no stalled one
            await self._send_piece(view[start : start + _WRITE_PIECE])

    async def send_soon(self, data: bytes) -> None:
        """The same, without a turn of the scheduler if the socket takes it at once."""
        data = self.send_now(data)
        if data:
            await self.send_all(data)

    def send_now(self, data: bytes) -> bytes:
        """Write what the socket takes at once, and give back the rest."""
        if self.tls or self._finished or not _CAN_WRITE:
            return data
        try:
            sent = os.write(self.socket.fileno(), data)
        except BlockingIOError:
            return data
        except OSError as error:
            raise trio.BrokenResourceError("the peer is gone") from error
        return b"" if sent == len(data) else data[sent:]

    async def _send_piece(self, piece: bytes | memoryview) -> None:
        with trio.move_on_after(self._config.write_timeout) as scope:
            await self._stream.send_all(piece)
        if scope.cancelled_caught:
            self.kill()
            self._report(WriteTimedOut(client=self.client))
            raise trio.BrokenResourceError("the peer did not read in time")

    async def _refuse(self, refusal: Refusal) -> None:
        self._report(RequestRefused(client=self.client, status=refusal.status, reason=refusal.reason))
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
        more = self.gate.unread or self.gate.held  # else it may be sending all the same: nobody looks meanwhile
        self.wait_until(trio.current_time() + (_LINGER if more else _LINGER_BRIEFLY))
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        self._wake()

    async def send_eof(self) -> None:
        await self.finish()

    async def aclose(self) -> None:
        self.kill()
        await trio.lowlevel.checkpoint()

    def kill(self) -> None:
        """Close at once. Whoever waits on the stream is told."""
        self._finished = True
        self.forget_deadline()
        self.socket.close()


def _peer_name(sock: trio.socket.SocketType) -> str:
    try:
        name = sock.getpeername()
    except OSError:
        return "gone"
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unix"
