"""The server under test: start it, read its figures, and keep a canary session open."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .program import token_of
from .speaker import Speaker
from .wire import Connection

ROOT = Path(__file__).parents[2]
SETTLE = 15.0
"""How long tasks, descriptors and sessions of a case may take to be gone."""


class ServerUnderTest:
    """A process, the figures it had when nothing was wrong, and the canary."""

    def __init__(self, settings: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "tests.bad_inputs.program", json.dumps(settings)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        port = self._process.stdout.readline()
        if not port:
            raise RuntimeError("the server under test does not start; its standard error says why")
        self.port = int(port)
        self.named = bool(settings.get("named"))
        self.bearer = "bearer" in settings
        self._canary = Canary(self)
        self._canary.check()
        self.baseline = self._quiet_state()

    def speaker(self, date: str, name: str = "ann") -> Speaker:
        """Return a client; with a token, if the server asks for one."""
        speaker = Speaker(self.port, date)
        if self.named:
            speaker.authorization = f"Bearer {token_of(name)}"
        elif self.bearer:
            from .tokens import good

            speaker.authorization = f"Bearer {good(sub=name)}"
        return speaker

    def state(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the server is gone: {self._process.poll()}"
        state: dict[str, Any] = json.loads(line)
        return state

    def _quiet_state(self) -> dict[str, Any]:
        """Return the state once it has settled: the task that watches a stream starts a little later."""
        states = [self.state()]
        while len(states) < 4 or len({state["tasks"] for state in states[-4:]}) > 1:
            time.sleep(0.1)
            states.append(self.state())
        return states[-1]

    def check_unharmed(self, *, may_log: bool = False) -> None:
        """Check that the process lives, the canary is well, the case left nothing behind, and no bug was logged."""
        self._canary.check()
        end = time.monotonic() + SETTLE
        pause = itertools.chain((0.0, 0.002, 0.005, 0.02), itertools.repeat(0.05))
        errors: list[str] = []
        while True:
            time.sleep(next(pause))
            state = self.state()
            errors += state["errors"]
            over = {
                name: (self.baseline[name], state[name])
                for name in ("tasks", "fds", "sessions")
                if state[name] > self.baseline[name]
            }
            if not over or time.monotonic() > end:
                break
        assert state["pid"] == self.baseline["pid"] == self._process.pid
        assert not over, f"left behind: {over}: {state['names']}"
        assert may_log or not errors, errors

    def close(self) -> None:
        self._canary.close()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Servers:
    """The servers of one engine that cases share, by the name of their settings."""

    def __init__(self, settings: Mapping[str, dict[str, Any] | Callable[[], dict[str, Any]]], engine: str) -> None:
        self._settings = settings
        self._engine = engine
        self._running: dict[str, ServerUnderTest] = {}
        self._broken: RuntimeError | None = None

    @contextmanager
    def use(self, name: str) -> Iterator[ServerUnderTest]:
        """Return a healthy server; one that a case harmed is not used again."""
        server = self._running.pop(name, None) or self._start(name)
        try:
            yield server
        except BaseException:
            server.close()
            raise
        self._running[name] = server

    def _start(self, name: str) -> ServerUnderTest:
        if self._broken is not None:  # a thousand cases would fail one by one, each after its own attempt
            raise self._broken
        try:
            settings = self._settings[name]
            return ServerUnderTest({**(settings() if callable(settings) else settings), "engine": self._engine})
        except RuntimeError as error:
            self._broken = error
            raise

    def close(self) -> None:
        while self._running:
            self._running.popitem()[1].close()


class Canary:
    """An idle session: every case uses the same ids as it does."""

    def __init__(self, server: ServerUnderTest) -> None:
        self._speaker = server.speaker("2025-11-25", "canary")
        self._speaker.open_session()
        self._word = f"canary {id(self):x}"
        self._keep(text=self._word)
        self._stream = Connection(server.port)
        self._stream.send(self._speaker.head("GET", headers={"content-length": None}))
        self._heard = self._stream.read_until(self._stream.read_start("GET"), b"\n\n").body

    def _keep(self, **arguments: str) -> str:
        reply = self._speaker.ask("tools/call", {"name": "keep", "arguments": arguments}, request_id=1)
        assert reply.status == 200, reply
        assert reply.answer["id"] == 1
        text: str = reply.answer["result"]["content"][0]["text"]
        return text

    def check(self) -> None:
        """Check that the session has its state, and that nothing came on its stream."""
        assert self._keep() == self._word
        self._stream.socket.setblocking(False)
        try:
            heard = self._stream.socket.recv(65536)
        except BlockingIOError:
            return
        assert heard.replace(b"3\r\n:\n\n\r\n", b"") == b"", f"the canary heard {heard!r}"

    def close(self) -> None:
        self._speaker.close()
        self._stream.socket.close()
