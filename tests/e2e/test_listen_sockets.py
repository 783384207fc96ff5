"""`mcptrio run` on a Unix socket, and on sockets that a service manager passes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

WEATHER = str(Path(__file__).resolve().parents[2] / "examples" / "weather.py")
SERVE = (sys.executable, "-m", "mcptrio", "run", WEATHER, "--transport", "http")
ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""
TIMEOUT = 60.0

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets and inherited descriptors")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:  # the path of a Unix socket must be short
        yield Path(name)


@contextmanager
def started(log: Path, *command: str, pass_fds: tuple[int, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=pass_fds)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


def status(sock: socket.socket) -> bytes:
    with sock:
        sock.settimeout(TIMEOUT)
        sock.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return sock.recv(4096).partition(b"\r\n")[0]


def through(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    return sock


def test_a_unix_socket_is_served_and_removed(folder: Path) -> None:
    path, log = folder / "s", folder / "log"
    with started(log, *SERVE, "--unix-socket", str(path)) as process:
        wait_for(log, f"is served at unix:{path}")
        assert status(through(path)).startswith(b"HTTP/1.1 200")
        assert path.stat().st_mode & 0o777 == 0o600
        second = subprocess.run([*SERVE, "--unix-socket", str(path)], capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert second.stderr == f"mcptrio: cannot listen on {path}: another process serves {path}\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
    assert not path.exists()


def test_sockets_of_systemd_are_served(folder: Path) -> None:
    log = folder / "log"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd, port = listener.fileno(), listener.getsockname()[1]
        with started(log, sys.executable, "-c", ACTIVATE, str(fd), *SERVE, pass_fds=(fd,)) as process:
            wait_for(log, f"is served at http://127.0.0.1:{port}/mcp")
            assert status(socket.create_connection(("127.0.0.1", port))).startswith(b"HTTP/1.1 200")
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT) == 0


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ("LISTEN_PID=$$ LISTEN_FDS=many", "mcptrio: LISTEN_FDS must be a number of sockets, got 'many'\n"),
        ("LISTEN_PID=$$ LISTEN_FDS=1", "mcptrio: LISTEN_FDS: descriptor 3 cannot be used: "),
    ],
)
def test_descriptors_that_are_no_listening_sockets_are_refused(variables: str, line: str, folder: Path) -> None:
    command = ["sh", "-c", f'{variables} exec "$@" 3</dev/null', "sh", *SERVE, "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1


def test_descriptors_of_another_process_are_ignored(folder: Path) -> None:
    log = folder / "log"
    command = ["env", "LISTEN_PID=1", "LISTEN_FDS=1", *SERVE, "--port", "0"]
    with started(log, *command):
        wait_for(log, "is served at http://127.0.0.1:")


def test_a_unix_socket_has_no_host_and_port() -> None:
    done = subprocess.run(
        [*SERVE, "--unix-socket", "x", "--port", "1"], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "mcptrio: --unix-socket cannot be combined with --host or --port\n"
