"""Starting a child process that does not outlive us.

On Linux the kernel ends the child when the thread that started it is gone, also when that was killed. Trio starts
processes in worker threads, which come and go, so there the child is started from the event loop's own thread; that
blocks for the few milliseconds of a fork. Elsewhere a child notices by its standard input that nobody is left.
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
    # Between fork and exec the child only makes two system calls, with what was looked up before.
    started = subprocess.Popen(list(argv), bufsize=0, preexec_fn=tether, **options)  # noqa: ASYNC220
    return Tethered(started)


def _tether() -> Callable[[], None] | None:
    """What the child runs first: have itself ended when its parent is."""
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
        if os.getppid() != parent:  # it was gone before the kernel knew
            os._exit(1)

    return tether


@define(eq=False, repr=False)
class Tethered:
    """A child that ends with us."""

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
        """Wait until it has ended."""
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
