"""`mcptrio run` as a real process, for tests that send it signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import trio

from mcptrio.transports.http_server.listener.sockets import BoundAddress
from tests import engines
from tests.deadlines import Stopwatch
from tests.ports import free_port

PROGRAMS = Path(__file__).parent / "programs"


class ServerProcess:
    """A running server. `connect` is all that `HttpClient` needs of it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.address = BoundAddress(host="127.0.0.1", port=port)
        self.log = log
        self.closing = ExitStack()

    async def connect(self) -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self.closing.callback(stream.socket.close)
        return stream

    async def wait_ready(self, within: float = 60) -> None:
        with trio.fail_after(within):
            while True:
                try:
                    async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                        await stream.send_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                        if b" 200" in await stream.receive_some():
                            return
                except (OSError, trio.BrokenResourceError):
                    if self.process.poll() is not None:
                        raise RuntimeError(self.log.read_text()) from None
                await trio.sleep(0.02)

    async def wait_draining(self, within: float = 30) -> None:
        with trio.fail_after(within):
            while b"draining" not in self.log.read_bytes():
                await trio.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def wait(self, within: float) -> int:
        """Return the exit code; fails if it takes longer, not counting the time without a processor."""
        watch = Stopwatch.of(self.process.pid)
        while (code := self.process.poll()) is None:
            assert watch.read() <= within, f"the server is still there: {self.log.read_text()[-2000:]}"
            await trio.sleep(0.01)
        return code


@contextmanager
def running(
    program: str,
    log: Path,
    *arguments: str,
    port: int | None = None,
    command: tuple[str, ...] = ("-m", "mcptrio", "run"),
) -> Iterator[ServerProcess]:
    """Serve `programs/NAME` over HTTP on a port of its own, on the test's engine; killed at the end if it still runs.

    Without a `command` the program is run by itself, with the port as its argument.
    """
    port = port or free_port()
    usual = ("--transport", "http", "--port", str(port), "--engine", engines.current())
    options = usual if command else (str(port),)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, *command, str(PROGRAMS / program), *options, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    server = ServerProcess(process, port, log)
    try:
        with server.closing:
            yield server
    finally:
        process.kill()
        process.wait()
