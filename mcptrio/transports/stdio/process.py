"""Start child processes that do not outlive this process.

On Linux the kernel ends the child when the thread that started it ends, even by a kill. Trio starts processes in worker
threads, which are short-lived, so on Linux the child is started in the event loop's thread; that blocks for the few
milliseconds of a fork. On other systems a child sees the end of its standard input.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import trio
from attrs import define, field

PR_SET_PDEATHSIG: Final = 1


class Process(Protocol):
    """A running child; `trio.Process` is one."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    @property
    def stdin(self) -> Any: ...
    @property
    def stdout(self) -> Any: ...
    @property
    def stderr(self) -> Any: ...

    async def wait(self) -> int: ...


async def spawn(argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> Process:
    """Start a program with pipes for its standard streams, in a process group of its own.

    Raises:
        OSError: it cannot be started.
    """
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    options: dict[str, Any] = {**pipes, "env": dict(env), "cwd": cwd}
    if sys.platform == "win32":
        return await trio.lowlevel.open_process(list(argv), **options)
    options["start_new_session"] = True
    tether = _tether() if sys.platform == "linux" else None
    if tether is None:
        return await trio.lowlevel.open_process(list(argv), **options)
    await trio.lowlevel.checkpoint()
    # Between fork and exec the child makes only two system calls, with values that were looked up before.
    started = subprocess.Popen(list(argv), bufsize=0, preexec_fn=tether, **options)  # noqa: ASYNC220
    return Tethered(started)


def _tether() -> Callable[[], None] | None:
    """Return a function for the child to run first: it makes the kernel end the child with its parent."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        import ctypes

        prctl = ctypes.CDLL(None, use_errno=False).prctl
    except (ImportError, OSError, AttributeError):
        return None
    parent, number = os.getpid(), int(signal.SIGTERM)

    def tether() -> None:
        prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # the parent was gone before the call
            os._exit(1)

    return tether


@define(eq=False, repr=False)
class Tethered:
    """A child process that ends with this process."""

    _process: subprocess.Popen[bytes]
    stdin: trio.lowlevel.FdStream = field(init=False)
    stdout: trio.lowlevel.FdStream = field(init=False)
    stderr: trio.lowlevel.FdStream = field(init=False)
    _pidfd: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pidfd = os.pidfd_open(self._process.pid)
        for name in ("stdin", "stdout", "stderr"):
            pipe = getattr(self._process, name)
            setattr(self, name, trio.lowlevel.FdStream(os.dup(pipe.fileno())))
            pipe.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    async def wait(self) -> int:
        """Wait until the process has ended."""
        if self._process.poll() is None:
            await trio.lowlevel.wait_readable(self._pidfd)
        else:
            await trio.lowlevel.checkpoint()
        code = self._process.wait()
        if self._pidfd >= 0:
            trio.lowlevel.notify_closing(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        return code
