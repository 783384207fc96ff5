"""The parent process: starts the workers, and keeps their number until SIGTERM or SIGINT.

One thread, one selector. Signals arrive as bytes in a socket (`signal.set_wakeup_fd`), messages of workers as lines in
theirs; everything else is a time. Nothing here waits for a worker: each step leaves a state, and the loop goes on.
"""

from __future__ import annotations

import logging
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Final

from attrs import define, field

from .control import Assignment
from .restarts import EXIT_NOT_STARTED, GiveUp, RestartPolicy
from .spawn import CAN_FORK, HANDLED, Closeable, Command, WorkerPhase, WorkerProcess, has_one_thread, start_worker

logger = logging.getLogger("mcptrio.workers")

_EXIT_STUCK: Final = 75
_TURN: Final = 1.0  # seconds; the loop looks at the time at least this often
_SUSPENDED: Final = 5.0  # a loop that is this late was stopped itself, and beats of that time mean nothing
_ABORT_GRACE: Final = 2.0  # for the stacks that SIGABRT writes
_DRAIN_GRACE: Final = 1.5  # a worker ends itself 0.9 s after its drain timeout


@define(eq=False, kw_only=True)
class ParentProcess:
    """The workers of one endpoint.

    Owns: the worker processes and their control connections, the handlers of its signals.
    Borrows: the listening sockets.
    """

    workers: int
    sockets: Sequence[socket.socket]
    url: str
    command: Command
    drain_timeout: float = 25.0
    stuck_after: float = 30.0
    keys: tuple[str, ...] = ()
    hint: str = ""
    """A line for the log, once all workers serve."""
    _processes: list[WorkerProcess] = field(factory=list, init=False)
    _due: dict[int, float] = field(factory=dict, init=False)
    """Slot -> when its next worker is started."""
    _to_replace: deque[int] = field(factory=deque, init=False)
    """Slots whose workers are replaced, one after the other; the first one is under way."""
    _replacement: WorkerProcess | None = field(default=None, init=False)
    _policy: RestartPolicy = field(init=False)
    _restarts: int = field(default=0, init=False)
    _stopping: bool = field(default=False, init=False)
    _code: int = field(default=0, init=False)
    _announced: bool = field(default=False, init=False)
    _name: str = field(default="", init=False)
    _selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector, init=False)
    _signals: tuple[socket.socket, socket.socket] = field(factory=socket.socketpair, init=False)
    _turned: float = field(factory=time.monotonic, init=False)

    def __attrs_post_init__(self) -> None:
        self._policy = RestartPolicy(self.workers)

    def run(self) -> int:
        """Serve until a signal ends it, or too many workers died; return the exit code.

        Raises:
            BecameWorker: in a forked worker.
        """
        for end in self._signals:
            end.setblocking(False)
        self._selector.register(self._signals[0], selectors.EVENT_READ)
        signal.set_wakeup_fd(self._signals[1].fileno(), warn_on_full_buffer=False)
        for number in HANDLED:
            signal.signal(number, lambda *_: None)  # the number arrives in the socket
        if CAN_FORK and not has_one_thread():
            logger.warning("this process has several threads, so each worker is a new interpreter: it starts slower")
        self._due[0] = time.monotonic()  # the others follow when the first one is ready: a broken file fails once
        while self._processes or self._due:
            self._turn()
        return self._code

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._wait()):
            if key.data is None:
                self._read_signals()
            else:
                self._read_messages(key.data)
        now = time.monotonic()
        if now - self._turned > _SUSPENDED:
            for worker in self._processes:
                worker.last_beat = now
        self._turned = now
        for worker in list(self._processes):
            if (code := worker.poll()) is not None:
                self._read_messages(worker)  # what it said last
                self._on_exit(worker, code, now)
        self._check_times(now)

    def _wait(self) -> float:
        times = [*self._due.values(), *(worker.kill_at for worker in self._processes if worker.kill_at is not None)]
        return max(0.0, min(_TURN, *(at - time.monotonic() for at in times))) if times else _TURN

    # -- signals

    def _read_signals(self) -> None:
        for number in self._signals[0].recv(4096):
            if number in (signal.SIGTERM, signal.SIGINT):
                self._stop(0)
            elif number == signal.SIGHUP:
                self._replace_all()
            elif number == signal.SIGUSR1:
                for worker in self._processes:
                    worker.send("reload")  # of TLS certificates

    def _stop(self, code: int) -> None:
        """Drain all workers; the second time, let them end running calls."""
        if not self._stopping:
            self._code = code
        self._due.clear()
        self._to_replace.clear()
        for worker in self._processes:
            self._drain(worker, hurry=self._stopping)
        self._stopping = True

    def _drain(self, worker: WorkerProcess, *, handover: bool = False, hurry: bool = False) -> None:
        if worker.phase is not WorkerPhase.DRAINING:
            worker.phase = WorkerPhase.DRAINING
            worker.kill_at = time.monotonic() + self.drain_timeout + _DRAIN_GRACE
        elif not hurry:
            return
        worker.send("drain", handover=handover, hurry=hurry)

    # -- messages

    def _read_messages(self, worker: WorkerProcess) -> None:
        try:
            data = worker.connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if worker.connection.fileno() in self._selector.get_map():
                self._selector.unregister(worker.connection)  # its exit follows
            return
        for message in worker.lines.feed(data):
            worker.last_beat = time.monotonic()
            match message:
                case {"type": "ready", "worker": str(worker_id), "name": str(name)}:
                    worker.worker_id, self._name = worker_id, name
                    self._on_ready(worker)
                case {"type": "refused", "line": str(line)}:
                    worker.refusal = line

    def _on_ready(self, worker: WorkerProcess) -> None:
        if worker.phase is not WorkerPhase.STARTING:
            return
        worker.phase = WorkerPhase.READY
        logger.debug("worker %s is ready", worker.worker_id)
        if not self._policy.served:
            self._due.update(dict.fromkeys(range(1, self.workers), time.monotonic()))
        self._policy = self._policy.ready()
        if not self._announced and self._count_ready() == self.workers:
            self._announced = True
            logger.info("%s is served at %s by %d workers", self._name, self.url, self.workers)
            if self.hint:
                logger.info(self.hint)
        if worker is self._replacement:
            self._replacement = None
            for one in self._in_slot(worker.slot):
                if one is not worker:
                    self._drain(one, handover=True)
            if not self._drains(worker.slot):
                self._replace_next()

    def _count_ready(self) -> int:
        return sum(worker.phase is WorkerPhase.READY for worker in self._processes)

    def _in_slot(self, slot: int) -> list[WorkerProcess]:
        return [worker for worker in self._processes if worker.slot == slot]

    def _drains(self, slot: int) -> bool:
        return any(worker.phase is WorkerPhase.DRAINING for worker in self._in_slot(slot))

    # -- replacing the workers one by one

    def _replace_all(self) -> None:
        if self._stopping:
            return
        running = bool(self._to_replace)
        under_way = [self._to_replace[0]] if running else []
        self._to_replace = deque([*under_way, *range(self.workers)])
        logger.info("replacing %d workers, one at a time", self.workers)
        if not running:
            self._start_replacement()

    def _start_replacement(self) -> None:
        """Start a second worker in the first slot of the queue; the old one is drained when it is ready."""
        slot = self._to_replace[0]
        self._due.pop(slot, None)
        self._replacement = self._start(slot)
        if self._replacement is None:
            self._to_replace.clear()

    def _replace_next(self) -> None:
        if not self._to_replace:
            return
        self._to_replace.popleft()
        if self._to_replace:
            self._start_replacement()
        else:
            logger.info("all workers were replaced")

    # -- starts and ends

    def _start(self, slot: int) -> WorkerProcess | None:
        """Start a worker; if the system has no room for a process, it is tried again."""
        assignment = Assignment(
            slot=slot,
            workers=self.workers,
            restarts=self._restarts,
            stuck_after=self.stuck_after,
            keys=self.keys,
        )
        private: tuple[Closeable, ...] = (
            self._selector,
            *self._signals,
            *(worker.connection for worker in self._processes),
        )
        try:
            worker = start_worker(assignment, self.sockets, self.command, private=private)
        except OSError as error:
            logger.error("cannot start worker %d: %s; trying again", slot, error)
            if not self._in_slot(slot):
                self._due[slot] = time.monotonic() + _TURN
            return None
        self._processes.append(worker)
        self._selector.register(worker.connection, selectors.EVENT_READ, worker)
        return worker

    def _on_exit(self, worker: WorkerProcess, code: int, now: float) -> None:
        self._processes.remove(worker)
        if worker.connection.fileno() in self._selector.get_map():
            self._selector.unregister(worker.connection)
        worker.connection.close()
        if worker.phase is WorkerPhase.DRAINING:
            if self._stopping and code not in (0, _EXIT_STUCK) and worker.worker_id:
                logger.warning("worker %s had to be killed", worker.worker_id)
            if self._stopping and code and not self._code:
                self._code = _EXIT_STUCK
            if self._replacement is None and not self._drains(worker.slot):
                self._replace_next()
            return
        if worker.refusal and not self._policy.served:
            print(f"mcptrio: {worker.refusal}", file=sys.stderr)
            self._stop(EXIT_NOT_STARTED)
            return
        logger.error("%s", _obituary(worker, code))
        if worker is self._replacement:
            self._replacement = None
            self._to_replace.clear()
            logger.error("the workers are not replaced: the new one cannot start; the old ones go on")
            if self._in_slot(worker.slot):
                return
        self._restart(worker, now)

    def _restart(self, worker: WorkerProcess, now: float) -> None:
        self._policy, then = self._policy.died(
            worker.slot, now, was_ready=worker.phase is WorkerPhase.READY, others_ready=self._count_ready() > 0
        )
        if isinstance(then, GiveUp):
            print(f"mcptrio: {then.reason}; stopping", file=sys.stderr)
            self._stop(then.code)
            return
        self._restarts += 1
        for other in self._processes:
            other.send("dead", worker=worker.worker_id, restarts=self._restarts)
        if self._replacement is None or self._replacement.slot != worker.slot:
            self._due[worker.slot] = now + then.delay

    def _check_times(self, now: float) -> None:
        for worker in self._processes:
            if worker.kill_at is not None:
                if now >= worker.kill_at:
                    worker.kill_at = inf  # once is enough
                    worker.signal(signal.SIGKILL)
            elif self._is_stuck(worker, now):
                text = "worker %s has blocked its event loop for %g s (--stuck-after): its stacks follow, and it ends"
                logger.error(text, worker.worker_id, self.stuck_after)
                worker.kill_at = now + _ABORT_GRACE
                worker.signal(signal.SIGABRT)
        for slot in [slot for slot, at in self._due.items() if now >= at]:
            del self._due[slot]
            self._start(slot)

    def _is_stuck(self, worker: WorkerProcess, now: float) -> bool:
        """Return whether a worker has been silent for too long; one that starts or drains has other deadlines."""
        silent = now - worker.last_beat
        return 0 < self.stuck_after < silent and worker.phase is WorkerPhase.READY


def _obituary(worker: WorkerProcess, code: int) -> str:
    name = f"worker {worker.worker_id or worker.slot}"
    if worker.refusal:
        return f"{name} cannot serve: {worker.refusal}"
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"{name} {how}" if worker.phase is WorkerPhase.READY else f"{name} {how} before it was ready"
