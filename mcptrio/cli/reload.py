"""`mcptrio run --reload`: one worker at a time, replaced when a file changes. For development.

The socket stays open meanwhile, so a client that connects in between waits instead of being refused. Sessions end with
their worker: the client initializes again.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final

from attrs import define, field

from mcptrio._workers.control import Assignment
from mcptrio._workers.spawn import WorkerProcess, start_worker
from mcptrio.cli.exit_codes import Failure
from mcptrio.cli.settings import folder_of
from mcptrio.cli.workers import check_platform, listening, read_http, worker_command

if TYPE_CHECKING:
    import socket

    from mcptrio.cli.settings import RunSettings

logger = logging.getLogger("mcptrio.reload")

_LOOK_EVERY: Final = 200  # milliseconds
_GRACE: Final = 1.5


def run_reloading(settings: RunSettings, argv: Sequence[str]) -> int:
    """Serve, and start again after changes, until a signal arrives; return the exit code.

    Raises:
        Failure: the settings cannot be used.
    """
    check_platform("--reload")
    if settings.workers is not None:
        raise Failure(2, "--reload serves with one process: leave --workers out while you develop")
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        needed = 'pip install "mcptrio[reload]", or in a checkout pip install ".[reload]"'
        raise Failure(2, f"file changes are noticed by watchfiles: {needed}") from None
    http, _ = read_http(settings)
    folder = folder_of(settings)
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    with listening(http) as (sockets, url):
        served = _ReloadedWorker(sockets, argv, settings.drain_timeout)
        served.start()
        logger.info("serving at %s; %s is watched for changes", url, os.path.relpath(folder))
        for changes in watch(
            folder, watch_filter=PythonFilter(), stop_event=stop, rust_timeout=_LOOK_EVERY, yield_on_timeout=True
        ):
            if changes:
                names = sorted({os.path.relpath(path) for _, path in changes})
                logger.info("%s changed: starting again", ", ".join(names[:3]))
                served.end(hurry=True)
                served.start()
            else:
                served.look()
        served.end(hurry=False)
    return 0


@define(eq=False)
class _ReloadedWorker:
    """The present worker. One that dies stays dead until a file changes."""

    sockets: Sequence[socket.socket]
    argv: Sequence[str]
    drain_timeout: float
    _process: WorkerProcess | None = field(default=None, init=False)

    def start(self) -> None:
        alone = Assignment(slot=0, workers=1, stuck_after=0, alone=True)
        self._process = start_worker(
            alone, self.sockets, lambda control, fds: worker_command(control, fds, self.argv), fork=False
        )

    def look(self) -> None:
        """Report a worker that has ended by itself."""
        process = self._process
        if process is None or (code := process.poll()) is None:
            return
        try:
            said = process.connection.recv(65536)
        except OSError:
            said = b""
        why = [str(message["line"]) for message in process.lines.feed(said) if message.get("type") == "refused"]
        logger.error("%s; waiting for a change", why[0] if why else f"the server ended with exit code {code}")
        self._forget(process)

    def end(self, *, hurry: bool) -> None:
        """End the worker; with `hurry`, without waiting for running calls."""
        process = self._process
        if process is None:
            return
        process.send("drain", handover=False, hurry=hurry)
        deadline = time.monotonic() + self.drain_timeout + _GRACE
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.signal(signal.SIGKILL)
            time.sleep(0.01)
        self._forget(process)

    def _forget(self, process: WorkerProcess) -> None:
        process.connection.close()
        self._process = None
