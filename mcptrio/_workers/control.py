"""The control connection between the parent and a worker: JSON lines in both directions.

Theory of operation. A worker reads its end in a thread, not in the event loop, so that the end of the parent is noticed
in every phase: while the user's file is loaded, and while a handler blocks the event loop. End of file means that the
parent died; the worker then drains and exits, because an orphan would keep the port.

Beats come from the event loop, since they show that it turns.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec
from attrs import define, field, frozen

_LINE_MAX: Final = 64 * 1024
BEATS_PER_LIMIT: Final = 6
"""Beats that a worker sends within the time after which it counts as stuck."""
_LONGEST_PAUSE: Final = 5.0  # seconds between two beats


@frozen(kw_only=True)
class Assignment:
    """The part of a worker in its cluster, which the parent gives it at the start."""

    slot: int
    workers: int
    restarts: int = 0
    """Workers that were restarted so far."""
    stuck_after: float = 30.0
    keys: tuple[str, ...] = ()
    """Keys of request states that all workers share, unless the user configured some."""
    alone: bool = False
    """Whether no other worker serves at the same time."""

    @property
    def beat_every(self) -> float:
        return min(_LONGEST_PAUSE, self.stuck_after / BEATS_PER_LIMIT) if self.stuck_after else _LONGEST_PAUSE


def encode(kind: str, **fields: Any) -> bytes:
    """Encode one message."""
    return msgspec.json.encode({"type": kind, **fields}) + b"\n"


class ControlLines:
    """The incoming side of a control connection: bytes in, messages out. A line that is no message is dropped."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Mapping[str, Any]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_MAX:
            self._rest = b""
        for line in lines:
            try:
                message = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            if isinstance(message, dict) and isinstance(message.get("type"), str):
                yield message


class Controlled(Protocol):
    """The program that a worker runs; its methods are called in the thread of the control connection."""

    def drain(self, *, handover: bool, hurry: bool) -> None:
        """Finish running calls and exit; with `hurry`, cancel them. With `handover`, other workers go on serving."""
        ...

    def reload(self) -> None:
        """Read the TLS certificates again."""
        ...

    def worker_died(self, worker: str) -> None:
        """Handle the death of another worker."""
        ...


@define(eq=False)
class WorkerControl:
    """The worker's end of the control connection.

    Owns: the socket and the thread that reads it.   Borrows: the program, once it serves.
    """

    assignment: Assignment
    _socket: socket.socket
    worker_id: str = field(init=False)
    restarts: int = field(init=False)
    """Workers that the parent has restarted, for the metrics."""
    _program: Controlled | None = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.worker_id = f"{self.assignment.slot}-{os.getpid()}-{secrets.token_hex(4)}"
        self.restarts = self.assignment.restarts

    @classmethod
    def adopt(cls, fd: int) -> WorkerControl:
        """Make the control connection of a new interpreter, from the descriptor that it was started with."""
        connection = socket.socket(fileno=fd)
        os.set_inheritable(fd, False)
        line = b""
        while not line.endswith(b"\n"):  # the first line, and nothing else yet
            data = connection.recv(1)
            if not data:
                os._exit(0)  # the parent died
            line += data
        return cls(msgspec.convert(msgspec.json.decode(line)["assignment"], Assignment), connection)

    @property
    def slot(self) -> int:
        return self.assignment.slot

    @property
    def workers(self) -> int:
        return self.assignment.workers

    @property
    def keys(self) -> tuple[str, ...]:
        return self.assignment.keys

    @property
    def alone(self) -> bool:
        return self.assignment.alone

    @property
    def beat_every(self) -> float:
        return self.assignment.beat_every

    def watch(self) -> None:
        """Start the thread. Until a program is attached, the process ends with its parent or when it is asked to."""
        threading.Thread(target=self._read, name="mcptrio control", daemon=True).start()

    def attach(self, program: Controlled) -> None:
        with self._lock:
            self._program = program

    def ready(self, name: str) -> None:
        self._send(encode("ready", worker=self.worker_id, name=name))

    def beat(self) -> None:
        self._send(encode("beat"))

    def refused(self, line: str) -> None:
        """Tell why this worker cannot serve; the parent prints it."""
        self._send(encode("refused", line=line[: _LINE_MAX // 8]))

    def _send(self, line: bytes) -> None:
        with suppress(OSError):  # the parent is gone, or stopped for so long that the buffer is full
            self._socket.send(line, socket.MSG_DONTWAIT)

    def _read(self) -> None:
        lines = ControlLines()
        while True:
            try:
                data = self._socket.recv(4096)
            except OSError:
                data = b""
            if not data:
                self._drain()
                return
            for message in lines.feed(data):
                self._on_message(message)

    def _on_message(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"type": "drain"}:
                self._drain(handover=message.get("handover") is True, hurry=message.get("hurry") is True)
            case {"type": "reload"} if self._program is not None:
                self._program.reload()
            case {"type": "dead", "restarts": int(restarts)}:
                self.restarts = restarts
                worker = message.get("worker")
                if isinstance(worker, str) and self._program is not None:
                    self._program.worker_died(worker)

    def _drain(self, *, handover: bool = False, hurry: bool = False) -> None:
        with self._lock:
            if self._program is None:
                os._exit(0)  # nothing is served yet, so there is nothing to finish
            self._program.drain(handover=handover, hurry=hurry)
