"""Cases on a pipe: a server with standard input and output, as a host starts it."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .catalogue import Case, to_bytes
from .speaker import Speaker
from .verdicts import judge
from .wire import TIMEOUT, Reply

ROOT = Path(__file__).parents[2]


class PipedServer:
    """A server that speaks one revision with us."""

    def __init__(self, date: str) -> None:
        command = [sys.executable, "-m", "tests.bad_inputs.program", "stdio"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.speaker = Speaker(0, date)
        self._heard = b""
        self._asked = 0

    def open(self) -> None:
        """Send `initialize`, where the revision has it."""
        if not self.speaker.modern:
            self.write(self.speaker.initialize() + b"\n")
            assert self.next()["result"]["protocolVersion"] == self.speaker.date
            self.write(self.speaker.message("notifications/initialized", None, None) + b"\n")
        assert self.replies() == []

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) or 0 :]

    def next(self) -> Any:
        """The next message; every line must be one."""
        assert self.process.stdout is not None
        end = time.monotonic() + TIMEOUT
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._heard:
                assert ready.select(end - time.monotonic()), "the server says nothing"
                piece = self.process.stdout.read(1 << 16)
                assert piece, f"the server is gone: {self.process.poll()}"
                self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def replies(self, at_least: int = 0) -> list[Any]:
        """Return the messages so far: those before the answer to one more good request, and those still due."""
        self._asked += 1
        sign = f"sign {self._asked}"
        self.write(self.speaker.message("tools/call", {"name": "echo", "arguments": {"text": sign}}, sign) + b"\n")
        found = []
        while True:
            message = self.next()
            if isinstance(message, dict) and message.get("id") == sign:
                assert message["result"]["content"][0]["text"] == sign
                while len(found) < at_least:
                    found.append(self.next())
                return found
            found += message if isinstance(message, list) else [message]

    def exit_code(self, within: float) -> int:
        return self.process.wait(within)

    def errors(self) -> str:
        """Everything on standard error, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


class PipedServers:
    """One server for each revision, for cases that leave it as it was."""

    def __init__(self) -> None:
        self._running: dict[str, PipedServer] = {}

    def run(self, case: Case) -> None:
        server = self._running.pop(case.date, None)
        if server is None:
            server = PipedServer(case.date)
            server.open()
        try:
            before = descriptors(server)
            server.write(to_bytes(case.data["line"], server.speaker) + b"\n")
            judge(as_reply(server.replies(case.expect["count"])), {"status": 200, **case.expect})
            assert descriptors(server) == before
        except BaseException:
            server.close()
            raise
        self._running[case.date] = server

    def close(self) -> None:
        while self._running:
            self._running.popitem()[1].close()


def as_reply(messages: list[Any]) -> Reply:
    reply = Reply()
    reply.status = 200
    reply.headers = {"content-type": "application/json"}
    reply.body = json.dumps(messages).encode()
    return reply


def descriptors(server: PipedServer) -> int:
    folder = Path(f"/proc/{server.process.pid}/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


# -- cases that end their process, or need one of their own

Ending = Callable[[Case, PipedServer], Reply]
ENDINGS: dict[str, Ending] = {}


def ending(fn: Ending) -> Ending:
    ENDINGS[fn.__name__] = fn
    return fn


def run_alone(case: Case) -> None:
    server = PipedServer(case.date)
    try:
        judge(ENDINGS[case.data["pipe"]](case, server), {"status": 200, **case.expect})
    finally:
        server.close()


@ending
def end_of_input(case: Case, server: PipedServer) -> Reply:
    """Standard input ends while a call runs: the process leaves soon, with 0."""
    server.open()
    for number in range(case.data["calls"]):
        call = {"name": "wait", "arguments": {"seconds": 60}}
        server.write(server.speaker.message("tools/call", call, number) + b"\n")
    if case.data.get("half"):
        server.write(b'{"jsonrpc":"2.0","id":1,"meth')
    assert server.replies() == [] or case.data.get("half")
    assert server.process.stdin is not None
    server.process.stdin.close()
    assert server.exit_code(2) == 0
    assert "Traceback" not in server.errors()
    return as_reply([])


@ending
def closed_output(case: Case, server: PipedServer) -> Reply:
    """The client closed its end: the process exits, without a storm of tracebacks."""
    server.open()
    assert server.replies() == []
    assert server.process.stdout is not None
    server.process.stdout.close()
    try:
        for number in range(case.data["calls"]):
            server.write(server.speaker.message("tools/list", None, number) + b"\n")
    except BrokenPipeError:
        pass  # it has left already
    assert server.exit_code(3) in (0, 75)
    assert "Traceback" not in server.errors()
    return as_reply([])


@ending
def never_reads(case: Case, server: PipedServer) -> Reply:
    """A host that asks and does not read is made to wait; when it reads again it finds every answer."""
    server.open()
    assert server.replies() == []
    assert server.process.stdin is not None
    os.set_blocking(server.process.stdin.fileno(), False)
    text = "x" * case.data["size"]
    sent, waiting = 0, b""
    end = time.monotonic() + TIMEOUT
    quiet = time.monotonic()
    while time.monotonic() < end and time.monotonic() - quiet < 0.5:  # until it takes no more
        if not waiting:
            call = {"name": "echo", "arguments": {"text": text}}
            waiting = server.speaker.message("tools/call", call, sent) + b"\n"
            sent += 1
        taken = server.process.stdin.write(waiting)
        if taken:
            waiting = waiting[taken:]
            quiet = time.monotonic()
        else:
            time.sleep(0.01)
    assert time.monotonic() < end, "the server took everything and never waited for its reader"
    seen = set()
    while len(seen) < sent:
        if waiting:
            waiting = waiting[server.process.stdin.write(waiting) or 0 :]
        message = server.next()
        assert message["result"]["content"][0]["text"] == text
        seen.add(message["id"])
    assert seen == set(range(sent))
    os.set_blocking(server.process.stdin.fileno(), True)
    return as_reply(server.replies())


@ending
def cancelled_opening(case: Case, server: PipedServer) -> Reply:
    """Cancel `initialize` in the same write."""
    cancel = server.speaker.message("notifications/cancelled", {"requestId": 0}, None)
    server.write(server.speaker.initialize() + b"\n" + cancel + b"\n")
    return as_reply([server.next()])
