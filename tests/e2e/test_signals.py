"""Signals to a server process in every phase, and what `python server.py` shares with `mcptrio run`."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT = 45.0


def start(log: Path, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=output,
            env={**os.environ, **env},
        )


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


@pytest.mark.defect("D04")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_signal_cancels_a_lifespan_that_is_starting(tmp_path: Path, transport: str, number: signal.Signals) -> None:
    log = tmp_path / "log"
    where = ["--transport", "http", "--port", "0"] if transport == "http" else []
    program = str(PROGRAMS / "slow_start.py")
    with start(log, "-m", "mcptrio", "run", program, "--drain-timeout", "15", *where) as process:
        wait_for(log, "starting")
        process.send_signal(number)
        try:
            assert process.wait(10) == 0
        finally:
            process.kill()
    assert "start cancelled" in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.defect("D04")
def test_the_exit_timer_runs_while_the_start_blocks_the_event_loop(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = str(PROGRAMS / "slow_start.py")
    with start(log, "-m", "mcptrio", "run", program, "--drain-timeout", "0.2", BLOCKING="1") as process:
        wait_for(log, "starting")
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(TIMEOUT) == 75
        finally:
            process.kill()
    said = log.read_text()
    assert "the server did not stop in time" in said
    assert 'slow_start.py", line' in said, "the stack names the line that blocks"


def test_a_server_file_logs_like_the_command(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text('from mcptrio import Server\nserver = Server("plain")\nserver.run("http", port=0)\n')
    log = tmp_path / "log"
    with start(log, str(file)) as process:
        wait_for(log, "plain is served at http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(10) == 0
        finally:
            process.kill()
    (line,) = [line for line in log.read_text().splitlines() if "is served at" in line]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO +mcptrio\.serving: plain is served", line), line


def test_a_server_file_whose_port_is_in_use_ends_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(f'from mcptrio import Server\nserver = Server("plain")\nserver.run("http", port={port})\n')
        done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"mcptrio: cannot listen on 127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}; "
        "choose another port (--port, port=), or any free one with 0\n"
    )
