"""A user at a terminal: a command on a pseudo-terminal, its output, and the typed keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

TIMEOUT = 30.0
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """The text on the screen so far, and the keyboard."""

    def __init__(self, fd: int, process: subprocess.Popen[bytes]) -> None:
        self.fd = fd
        self.process = process
        self.raw = ""
        self._seen = 0
        self._tail = b""

    @property
    def shown(self) -> str:
        """Everything that was written, without colours and movements."""
        return _ESCAPE.sub("", self.raw).replace("\r\n", "\n")

    def wait_for(self, text: str) -> None:
        """Wait until a text is shown, behind the one that was waited for before."""
        deadline = time.monotonic() + TIMEOUT
        while text not in self.shown[self._seen :]:
            assert time.monotonic() < deadline, f"{text!r} never came; there was: {self.shown}"
            assert self._read(0.2) is not None, f"it ended without {text!r}: {self.shown}"
        self._seen = self.shown.index(text, self._seen) + len(text)

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def end(self) -> int:
        """Wait for the end; the exit code."""
        deadline = time.monotonic() + TIMEOUT
        while self._read(0.2) is not None:
            assert time.monotonic() < deadline, f"it does not end: {self.shown}"
        return self.process.wait(TIMEOUT)

    def _read(self, timeout: float) -> bytes | None:
        """Some output, perhaps none yet; None when there is no more."""
        if not select.select([self.fd], [], [], timeout)[0]:
            return b"" if self.process.poll() is None else None
        try:
            data = os.read(self.fd, 4096)
        except OSError:  # how Linux reports that the other end is closed
            return None
        self._tail += data
        try:
            self.raw += self._tail.decode()
            self._tail = b""
        except UnicodeDecodeError:
            pass  # the rest of a character follows
        return data or None


@contextmanager
def terminal(command: Sequence[str], env: Mapping[str, str], cwd: str | None = None) -> Iterator[Terminal]:
    """Run a command with a terminal for all three of its streams."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=dict(env), cwd=cwd, start_new_session=True
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)
