"""The stdio transport, server side: one message per line on standard input and output.

Theory of operation. Messages use private duplicates of the two descriptors. While serving, descriptor 1 points to
standard error and descriptor 0 to the null device, so that a handler that prints, or a child process that inherits
them, can neither write to the message stream nor consume its input (2025-11-25 basic/transports: the server MUST NOT
write anything to its stdout that is not a valid MCP message).
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from msgspec import field

from mcptrio._actors.runtime import Runtime
from mcptrio._struct import Entity
from mcptrio._wire.lines import MAX_LINE, LineReader
from mcptrio.errors import INVALID_REQUEST, RemoteProtocolError
from mcptrio.transports.pipe.server import PipeLimits, serve_pipe

if TYPE_CHECKING:
    from mcptrio.auth.server.principal import Principal

READ_SIZE: Final = 64 * 1024
READ_WITHIN: Final = 0.05
"""Seconds that a result waits for the client to read the progress before it."""
LIMITS: Final = PipeLimits(linger=0.25)
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"  # some programs on Windows begin with it
_ATOMIC: Final = getattr(select, "PIPE_BUF", 512)  # POSIX: writes of up to so many bytes to a pipe are atomic


async def serve_stdio(
    runtime: Runtime,
    *,
    stdin_fd: int | None = None,
    stdout_fd: int | None = None,
    principal: Principal | None = None,
    max_line: int = MAX_LINE,
    limits: PipeLimits = LIMITS,
) -> int:
    """Serve one client until it closes standard input or stops reading; return the number of handlers left behind.

    If there are any (blocked threads, handlers that ignore cancellation), leaving the runtime would wait for them: a
    program that wants to end calls `os._exit` instead.

    With `stdin_fd` and `stdout_fd` those two are used as they are (see `private_stdio`); they stay open.
    """
    if stdin_fd is None or stdout_fd is None:
        with private_stdio() as (wire_in, wire_out):
            return await serve_stdio(
                runtime, stdin_fd=wire_in, stdout_fd=wire_out, principal=principal, max_line=max_line, limits=limits
            )
    async with AsyncExitStack() as stack:
        read = await _open_reader(stdin_fd, stack)
        write = await _open_writer(stdout_fd, stack)
        atomic = _can_wait(stdout_fd) and stat.S_ISFIFO(os.fstat(stdout_fd).st_mode)
        fifo = (lambda: stdout_fd) if atomic else None
        pipe = LinePipe(read, write, LineReader(max_line), fifo=fifo, unread=_unread_counter(stdout_fd))
        session = await serve_pipe(runtime, pipe, transport="stdio", principal=principal, limits=limits)
    return session.handlers.left_behind


@contextmanager
def private_stdio() -> Iterator[tuple[int, int]]:
    """Reserve standard input and output for messages; yield two private descriptors.

    Enter this before loading other code, so that output printed while it loads does not reach the message stream.
    """
    wire_in, wire_out = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        if sys.platform == "win32":
            import msvcrt

            for fd in (wire_in, wire_out):
                msvcrt.setmode(fd, os.O_BINARY)
        os.dup2(nowhere, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # standard error is closed
            os.dup2(nowhere, 1)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # as standard error: what is printed stands in the log at once
        yield wire_in, wire_out
    finally:
        with suppress(OSError, ValueError):
            if sys.stdout is not None:
                sys.stdout.flush()  # before the descriptor is restored
        os.dup2(wire_in, 0)
        os.dup2(wire_out, 1)
        for fd in (wire_in, wire_out, nowhere):
            os.close(fd)


class LinePipe(Entity):
    """A pipe of newline-delimited messages over two functions that read and write bytes."""

    _read: Callable[[], Awaitable[bytes]]
    """Returns at least one byte, or none at the end."""
    _write: Callable[[bytes], Awaitable[None]]
    _lines: LineReader = field(default_factory=LineReader)
    fifo: Callable[[], int] | None = None
    """The descriptor to write to, if small writes to it are atomic."""
    unread: Callable[[], int] | None = None
    """Returns how much of what was written the peer has not read; None if the system does not tell."""
    one_per_read: bool = False
    """Write at most one message directly after each read, so that the others of a burst share one write."""
    _first: bool = True
    _eof: bool = False
    _wrote: bool = False
    """Whether a message was written directly since the last read."""
    gathers = True

    @property
    def paced(self) -> bool:
        return self.unread is not None

    def send_nowait(self, message: bytes) -> bool:
        """Write one message if the pipe takes it at once; return whether it did."""
        if self.fifo is None or (self.one_per_read and self._wrote) or len(message) >= _ATOMIC or b"\n" in message:
            return False
        try:
            os.write(self.fifo(), message + b"\n")
        except OSError:
            return False  # full or closed: the writer will find out
        self._wrote = True
        return True

    async def drained(self) -> None:
        """Wait until the peer has read everything, at most `READ_WITHIN` seconds."""
        until = trio.current_time() + READ_WITHIN
        while self.unread is not None and self.unread() and trio.current_time() < until:  # noqa: ASYNC110  # no event
            await trio.sleep(0.0005)

    async def receive(self) -> Sequence[bytes | RemoteProtocolError]:
        while not self._eof:
            try:
                data = await self._read()
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                data = b""
            self._eof, self._wrote = not data, False
            found = self._lines.feed(data) if data else self._lines.eof()
            if found:
                if self._first and isinstance(found[0], bytes):
                    found[0] = found[0].removeprefix(_BYTE_ORDER_MARK)
                self._first = False
                return [line if isinstance(line, bytes) else _too_long(line.limit) for line in found]
        return ()

    async def send(self, messages: list[bytes]) -> None:
        # In JSON a newline is always whitespace (in strings it is escaped), so a space can replace it.
        lines = [line.replace(b"\n", b" ") if b"\n" in line else line for line in messages]
        lines.append(b"")
        try:
            await self._write(b"\n".join(lines))
        except OSError as error:
            raise trio.BrokenResourceError("standard output is closed") from error


def _too_long(limit: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"a line may have at most {limit} bytes", code=INVALID_REQUEST, limit="line")


# -- reading and writing bytes


async def _open_reader(fd: int, stack: AsyncExitStack) -> Callable[[], Awaitable[bytes]]:
    if _can_wait(fd):
        stream = await stack.enter_async_context(trio.lowlevel.FdStream(os.dup(fd)))
        return partial(read_when_ready, stream.fileno)
    limiter = trio.CapacityLimiter(1)
    return lambda: trio.to_thread.run_sync(os.read, fd, READ_SIZE, abandon_on_cancel=True, limiter=limiter)


async def read_when_ready(fileno: Callable[[], int]) -> bytes:
    """Read like `FdStream.receive_some`, but wait for data first instead of trying at once.

    Raises:
        OSError, trio.ClosedResourceError: the stream of `fileno` was closed.
    """
    while (fd := fileno()) >= 0:
        await trio.lowlevel.wait_readable(fd)
        try:
            return os.read(fd, READ_SIZE)
        except BlockingIOError:
            continue
    raise trio.ClosedResourceError


async def _open_writer(fd: int, stack: AsyncExitStack) -> Callable[[bytes], Awaitable[None]]:
    if _can_wait(fd):
        stream = await stack.enter_async_context(trio.lowlevel.FdStream(os.dup(fd)))
        return stream.send_all
    limiter = trio.CapacityLimiter(1)
    return lambda data: trio.to_thread.run_sync(_write_all, fd, data, abandon_on_cancel=True, limiter=limiter)


def _unread_counter(fd: int) -> Callable[[], int] | None:
    """Return a function that tells how much of what was written to a descriptor was not read; None if it cannot."""
    try:
        import fcntl
        import termios
    except ImportError:  # Windows
        return None
    # A pipe has one buffer, which both ends can count. A socket counts what it has sent; Node's pipes are sockets.
    command = termios.FIONREAD if stat.S_ISFIFO(os.fstat(fd).st_mode) else termios.TIOCOUTQ

    def unread() -> int:
        try:
            return int.from_bytes(fcntl.ioctl(fd, command, bytes(4)), sys.byteorder)
        except OSError:  # closed, or of another kind
            return 0

    return unread


def _can_wait(fd: int) -> bool:
    """Return whether the event loop can wait for this descriptor: pipes and sockets, not files, terminals or Windows.

    That needs non-blocking mode, which all holders of the open file share. A terminal is shared with the shell, and a
    pipe that is also standard error with everything that logs; both are left in blocking mode.
    """
    if sys.platform == "win32":
        return False
    here = os.fstat(fd)
    if not stat.S_ISFIFO(here.st_mode) and not stat.S_ISSOCK(here.st_mode):
        return False
    try:
        return not os.path.samestat(here, os.fstat(2))
    except OSError:
        return True


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
