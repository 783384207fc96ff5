"""`mcptrio run --reload` with a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mcptrio.cli import main
from tests.ports import free_port
from tests.tiers import exhaustive

from .test_workers import TIMEOUT, Cluster, command, wait_until

pytest.importorskip("watchfiles")

WEATHER = str(Path(__file__).resolve().parents[2] / "examples" / "weather.py")
SERVER = """
from mcptrio import Server
server = Server("reloaded")

@server.tool
async def pid() -> int:
    return {word}
"""


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["run", WEATHER, *arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_stdio_cannot_be_reloaded_and_one_line_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "--reload")
    assert "--reload needs --transport http: over stdio the host holds the pipes" in said


def test_workers_are_not_reloaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert "leave --workers out" in refused(capsys, "--transport", "http", "--reload", "--workers", "2")


def test_without_watchfiles_the_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert 'pip install "mcptrio[reload]"' in refused(capsys, "--transport", "http", "--reload")


@exhaustive
def test_a_server_starts_again_when_its_file_changes(tmp_path: Path) -> None:
    file, log, port = tmp_path / "server.py", tmp_path / "log", free_port()
    file.write_text(SERVER.format(word=1))
    with log.open("wb") as output:
        process = subprocess.Popen(command("--reload", "--port", str(port), app=str(file)), stderr=output)
    cluster = Cluster(process, port, log)

    def answers(word: int) -> Callable[[], bool]:
        def asked() -> bool:
            try:
                return cluster.pid() == word
            except RuntimeError as error:  # the old worker had accepted the connection, and ends
                if "shutting down" not in str(error):
                    raise
                return False

        return asked

    try:
        cluster.wait_for("is watched for changes")
        wait_until(answers(1), lambda: cluster.said)
        file.write_text(SERVER.format(word=22))
        cluster.wait_for("server.py changed: starting again")
        wait_until(answers(22), lambda: cluster.said)
        file.write_text("1 / 0\n")
        cluster.wait_for("ZeroDivisionError: division by zero; waiting for a change")
        file.write_text(SERVER.format(word=333))
        wait_until(answers(333), lambda: cluster.said)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
        assert time.monotonic() - began < TIMEOUT
    finally:
        for child in cluster.workers if process.poll() is None else ():
            os.kill(child, signal.SIGKILL)
        process.kill()
        process.wait()
