"""Start a worker process: a fork of the parent, or a new interpreter."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Final, NoReturn, Protocol, TypeAlias

import attrs
from attrs import define, field

from .control import Assignment, ControlLines, WorkerControl, encode

_NAMES: Final = ("SIGCHLD", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
HANDLED: Final = tuple(signal.Signals[name] for name in _NAMES if hasattr(signal, name))
"""The signals that the parent handles; Windows lacks some of them, and workers."""
CAN_FORK: Final = sys.platform == "linux"
"""Whether a fork of a process with imported libraries is safe; on macOS, system libraries do not support it."""

Command: TypeAlias = Callable[[int, Sequence[int]], Sequence[str]]
"""Makes the command line of a new interpreter from the descriptors of its control connection and its sockets."""


class Closeable(Protocol):
    """A descriptor of the parent."""

    def close(self) -> None: ...


class WorkerPhase(Enum):
    """The phase of a worker process, as the parent knows it."""

    STARTING = auto()
    READY = auto()
    DRAINING = auto()


class BecameWorker(BaseException):
    """Raised in a forked process, which has to leave the parent's code and serve."""

    def __init__(self, control: WorkerControl) -> None:
        super().__init__("this process is a worker now")
        self.control = control


@define(eq=False, kw_only=True)
class WorkerProcess:
    """A worker, as the parent sees it.

    Owns: the parent's end of the control connection.
    """

    slot: int
    pid: int
    connection: socket.socket
    last_beat: float = field(factory=time.monotonic)
    phase: WorkerPhase = WorkerPhase.STARTING
    worker_id: str = ""
    refusal: str = ""
    """Why it cannot serve, in its own words."""
    kill_at: float | None = None
    lines: ControlLines = field(factory=ControlLines)
    interpreter: subprocess.Popen[bytes] | None = None
    """The process, if it is a new interpreter; otherwise it is a fork."""

    def send(self, kind: str, **fields: object) -> None:
        with suppress(OSError):  # it died, or does not read: both are noticed elsewhere
            self.connection.send(encode(kind, **fields))

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        """Return the exit code if it has ended, negative for a signal."""
        if self.interpreter is not None:
            return self.interpreter.poll()
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        return os.waitstatus_to_exitcode(status) if pid else None


def has_one_thread() -> bool:
    """Return whether this process may fork: other threads would not exist in the child, but their locks would."""
    return threading.active_count() == 1


def start_worker(
    assignment: Assignment,
    sockets: Sequence[socket.socket],
    make: Command,
    *,
    private: Iterable[Closeable] = (),
    fork: bool = True,
) -> WorkerProcess:
    """Start a worker, a fork if it may be one; `private` is what only the parent may hold.

    Raises:
        BecameWorker: in the worker, if it is a fork.
    """
    ours, theirs = socket.socketpair()
    if fork and CAN_FORK and has_one_thread():
        pid = _fork(assignment, theirs, (ours, *private))
        interpreter = None
    else:
        fds = (theirs.fileno(), *(sock.fileno() for sock in sockets))
        interpreter = subprocess.Popen(make(fds[0], fds[1:]), pass_fds=fds)
        pid = interpreter.pid
    theirs.close()
    ours.setblocking(False)
    worker = WorkerProcess(slot=assignment.slot, pid=pid, connection=ours, interpreter=interpreter)
    if interpreter is not None:
        worker.send("start", assignment=attrs.asdict(assignment))
    return worker


def _fork(assignment: Assignment, theirs: socket.socket, private: Iterable[Closeable]) -> int:
    # A signal between the fork and the reset of its handlers would reach the parent through the shared wakeup socket.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    pid = os.fork()
    if pid == 0:
        _leave_parent(assignment, theirs, private, before)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _leave_parent(
    assignment: Assignment, theirs: socket.socket, private: Iterable[Closeable], mask: Iterable[int]
) -> NoReturn:
    """Undo what belongs to the parent, in the forked process."""
    signal.set_wakeup_fd(-1)
    for number in HANDLED:
        signal.signal(number, signal.SIG_DFL)
    for each in private:  # a copy of the parent's end would hide the end of the parent from other workers
        each.close()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    raise BecameWorker(WorkerControl(assignment, theirs))
