"""The stdio transport, client side: the server is a child process, with one message per line on its standard streams.

The child gets its argument list unchanged (never through a shell), an environment of a few harmless variables, and its
own process group, so that its children can be ended with it. Its standard error is drained all the time, can be passed
on line by line, and its last lines are part of the error when the child dies.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import trio
from attrs import define, field, frozen

from mcptrio._wire.lines import LineReader, LineTooLong
from mcptrio.errors import DeclarationError
from mcptrio.telemetry.log import escape
from mcptrio.transports.client import NotDelivered, Receiver
from mcptrio.transports.pipe.client import MAX_MESSAGE, PipeClientLink, open_client_link
from mcptrio.transports.stdio.process import Process, spawn
from mcptrio.transports.stdio.server import READ_SIZE, LinePipe, read_when_ready

logger = logging.getLogger("mcptrio.client.subprocess")
stderr_logger = logging.getLogger("mcptrio.client.stderr")

MAX_STDERR: Final = 1024 * 1024
"""Bytes of a child's standard error that are passed on within `STDERR_WINDOW`; more are read and dropped."""
STDERR_WINDOW: Final = 60.0
"""Seconds."""
_LAST_LINES: Final = 5
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has only one way

# Variables that programs need to start; none of them holds a secret.
SAFE_NAMES: Final = (
    ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
    if sys.platform != "win32"
    else (
        "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "OS", "PATH",
        "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP",
        "USERNAME", "USERPROFILE", "WINDIR",
    )
)  # fmt: skip


def minimal_environment() -> dict[str, str]:
    """Return the variables of this process that every child may see."""
    # A value that begins with () is an exported shell function, which old shells execute (Shellshock).
    return {
        name: value for name in SAFE_NAMES if (value := os.environ.get(name)) is not None and not value.startswith("()")
    }


def _as_tuple(argv: Sequence[str]) -> tuple[str, ...]:
    return tuple(argv)


def _check_argv(_: object, __: object, argv: tuple[str, ...]) -> None:
    if not argv or not all(isinstance(part, str) for part in argv) or not argv[0]:
        raise DeclarationError("a command is a list of strings, the program first")
    if any("\0" in part for part in argv):
        raise DeclarationError("a command must not contain NUL")
    script = argv[0].lower().endswith((".cmd", ".bat"))
    if script and any(set(part) & set('&|<>^%"!\r\n') for part in argv[1:]):
        # Windows runs these through cmd.exe, whose quoting cannot be done reliably.
        raise DeclarationError("arguments of a .cmd or .bat file must not contain characters that its shell interprets")


@frozen(kw_only=True)
class StdioTransport:
    """Transport to a server that is started as a child process, a new one for every link."""

    argv: tuple[str, ...] = field(converter=_as_tuple, validator=_check_argv)
    env: Mapping[str, str | os.PathLike[str]] = field(factory=dict)
    """Added to the minimal environment."""
    cwd: str | os.PathLike[str] | None = None
    on_stderr: Callable[[str], None] | None = None
    """Gets each line of the child's standard error; without it they go to the logger `mcptrio.client.stderr`."""
    exit_timeout: float = 2.0
    """Seconds that the child may take to exit after its standard input is closed, and again after SIGTERM."""
    name: str = "stdio"

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[PipeClientLink]:
        child = await self._start()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child.drain_stderr)
                async with open_client_link(child.pipe, receiver, why=child.obituary) as link:
                    yield link
                with trio.CancelScope(shield=True):
                    await child.end(self.exit_timeout)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await child.end(self.exit_timeout)

    async def _start(self) -> _Child:
        environment = {**minimal_environment(), **{name: os.fspath(value) for name, value in self.env.items()}}
        try:
            process = await spawn(self.argv, env=environment, cwd=None if self.cwd is None else os.fspath(self.cwd))
        except OSError as error:
            raise NotDelivered(f"{self.argv[0]!r} could not be started: {error.strerror or error}") from error
        return _Child(process, self.argv[0], self.on_stderr)


@define(eq=False, repr=False)
class _Child:
    """A running server."""

    process: Process
    program: str
    on_stderr: Callable[[str], None] | None
    pipe: LinePipe = field(init=False)
    _last: deque[str] = field(factory=partial(deque, maxlen=_LAST_LINES))
    _ended: bool = False

    def __attrs_post_init__(self) -> None:
        stdin, stdout = self.process.stdin, self.process.stdout
        lines = LineReader(MAX_MESSAGE)
        if sys.platform == "win32":
            self.pipe = LinePipe(partial(stdout.receive_some, READ_SIZE), stdin.send_all, lines)
        else:
            self.pipe = LinePipe(
                partial(read_when_ready, stdout.fileno), stdin.send_all, lines, fifo=stdin.fileno, one_per_read=True
            )

    async def drain_stderr(self) -> None:
        """Read the child's standard error for as long as it lives, because a full pipe would block the child.

        The last lines are always kept for the error that reports its end.
        """
        stream = self.process.stderr
        lines, room, until = LineReader(READ_SIZE), MAX_STDERR, trio.current_time() + STDERR_WINDOW
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await stream.receive_some(READ_SIZE):
                if trio.current_time() >= until:
                    room, until = MAX_STDERR, trio.current_time() + STDERR_WINDOW
                self._keep(lines.feed(bytes(data)), hand_on=room > 0)
                if room > 0 >= room - len(data):
                    logger.warning(
                        "%s: more than %d bytes on standard error within %g s; the rest is dropped",
                        self.program, MAX_STDERR, STDERR_WINDOW,
                    )  # fmt: skip
                room -= len(data)
        self._keep(lines.eof(), hand_on=room > 0)

    def _keep(self, lines: Sequence[bytes | LineTooLong], *, hand_on: bool) -> None:
        for line in lines:
            text = line.decode(errors="replace") if isinstance(line, bytes) else f"(more than {line.limit} bytes)"
            self._last.append(text[:500])
            if not hand_on:
                continue
            if self.on_stderr is None:
                stderr_logger.info("%s", escape(text, READ_SIZE))
                continue
            try:
                self.on_stderr(text)
            except Exception:
                logger.exception("the callback for standard error failed")

    async def obituary(self) -> str:
        """Describe how the child ended; called when its standard output has ended."""
        with trio.move_on_after(0.05):
            await self.process.wait()
            await trio.lowlevel.checkpoint()
        code = self.process.returncode
        if code is None:
            end = "the server closed its standard output"
        elif code < 0:
            end = f"the server was killed by signal {-code}"
        else:
            end = f"the server exited with code {code}"
        return end + (f"; it said last: {' | '.join(self._last)}" if self._last and code else "")

    async def end(self, timeout: float) -> None:
        """Close its input, wait, send SIGTERM, kill its group: the order of the specification."""
        if self._ended:
            return
        self._ended = True
        process = self.process
        await process.stdin.aclose()
        with trio.move_on_after(timeout):
            await process.wait()
        if process.returncode is None:
            self._signal(signal.SIGTERM)
            with trio.move_on_after(timeout):
                await process.wait()
        self._signal(_KILL)  # the whole group, including processes that the child left behind
        await process.wait()
        # A grandchild in another group may hold the pipes open: close this side's ends.
        for stream in (process.stdout, process.stderr):
            await stream.aclose()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                os.kill(self.process.pid, number)
            else:
                os.killpg(self.process.pid, number)
