"""Errors of `mcptrio run` where it cannot serve, and its output at a terminal."""

from __future__ import annotations

import io
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcptrio import Server
from mcptrio.cli import main
from mcptrio.server.program import greet
from tests.redis_server import running_server

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WEATHER = str(EXAMPLES / "weather.py")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    """The exit code, and the one line that says why."""
    try:
        code: object = main(["run", *arguments])
    except SystemExit as left:
        code = left.code
    out, said = capsys.readouterr()
    assert out == ""
    assert said.startswith("mcptrio: ")
    assert said.count("\n") == 1
    return code, said


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "FILE[:NAME], or -m MODULE[:NAME]; one of them. See mcptrio run --help"),
        ([WEATHER, "-m", "json"], "FILE[:NAME], or -m MODULE[:NAME]; one of them. See mcptrio run --help"),
        ([WEATHER, "--portt=1"], "--portt=1. Did you mean --port? See"),
        ([WEATHER, "--prot", "1"], "Did you mean --p"),
        ([WEATHER, "--zzz"], "unrecognized arguments: --zzz. See mcptrio run --help"),
        ([WEATHER, "--port", "many"], "--port"),
        ([WEATHER, "--transport", "htp"], "'htp'"),
        ([WEATHER, "--port", "8000"], "--port is an HTTP option: add --transport http"),
        ([WEATHER, "--json-only"], "--json-only is an HTTP option: add --transport http"),
        ([WEATHER, "--allow-host", "a"], "--allow-host is an HTTP option: add --transport http"),
        ([str(EXAMPLES)], "this is a folder; give the Python file"),
        ([WEATHER.removesuffix(".py")], "no such file; did you mean "),
        ([str(EXAMPLES / "whether.py")], "whether.py: no such file\n"),
        ([str(EXAMPLES.parent / "README.md")], "; is this a Python file?\n"),
    ],
    ids=lambda value: " ".join(map(str, value))[-40:] if isinstance(value, list) else None,
)
def test_a_command_line_that_cannot_be_used_is_answered_in_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = refused(capsys, *arguments)
    assert code == 2
    assert line in said


@pytest.mark.parametrize("call", ["server.run()", 'server.run("http", port=0)'])
def test_a_file_that_serves_itself_while_it_is_loaded_is_refused_with_a_hint(
    call: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would serve at an address that was not asked for, and ignore the command line."""
    file = tmp_path / "eager.py"
    file.write_text(f"from mcptrio import Server\nserver = Server('eager')\n{call}\n")
    code, said = refused(capsys, str(file), "--transport", "http", "--port", "0")
    assert code == 2
    assert "eager.py:3: " in said
    assert 'put the call behind `if __name__ == "__main__":`' in said
    assert Server.run.__name__ == "run", "other code can serve afterwards"


def test_a_port_that_is_taken_is_answered_with_what_to_do(taken: int, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refused(capsys, WEATHER, "--transport", "http", "--port", str(taken))
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{taken}: " in said
    assert "Errno" not in said
    assert said.endswith("choose another port (--port, port=), or any free one with 0\n")


def test_an_address_of_another_machine_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refused(capsys, WEATHER, "--transport", "http", "--host", "192.0.2.1", "--port", "0")
    assert code == 1
    assert "cannot listen on 192.0.2.1: " in said
    assert "Errno" not in said


def test_a_missing_file_of_keys_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refused(capsys, WEATHER, "--transport", "http", "--state-key-file", "nowhere")
    assert code == 1
    assert said.startswith("mcptrio: --state-key-file nowhere: ")


def test_a_level_in_the_environment_that_does_not_exist_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MCPTRIO_LOG_LEVEL", "trace")
    code, said = refused(capsys, WEATHER)
    assert code == 2
    assert said == "mcptrio: MCPTRIO_LOG_LEVEL must be one of debug, info, warning, error, got 'trace'\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("at_terminal", [True, False])
def test_a_terminal_shows_that_the_server_waits_for_a_host(
    at_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal() if at_terminal else io.StringIO())
    greet(WEATHER)
    said = capsys.readouterr().err
    assert ("waiting for a host" in said and f"mcptrio inspect {WEATHER}" in said) == at_terminal
    assert bool(said) == at_terminal


# -- a store that cannot be used

HTTP = (WEATHER, "--transport", "http", "--port", "0", "--store")


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("redis://127.0.0.1:1", "cannot reach the Redis server 127.0.0.1:1"),
        ("redis+unix:///nowhere/r.sock", "cannot reach the Redis server /nowhere/r.sock"),
        ("redis://:secret@host/orders", "not the URL of a Redis store (the number of a database"),
        ("reddis://host", "is not a store: write memory, sqlite:///relative.db"),
    ],
)
def test_a_store_that_cannot_be_used_is_answered_in_one_line(
    url: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = refused(capsys, *HTTP, url)
    assert code == 1
    assert line in said
    assert "secret" not in said


def test_the_password_of_a_store_comes_from_a_file(
    tmp_path: Path, taken: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    monkeypatch.setenv("MCPTRIO_STORE_PASSWORD_FILE", str(file))
    with running_server("--requirepass", "right") as server:
        assert "No such file" in refused(capsys, *HTTP, server.url)[1]
        file.touch(0o600)
        file.write_bytes(b"\xff")
        assert "not a text file in UTF-8" in refused(capsys, *HTTP, server.url)[1]
        file.write_text("\n")
        assert "is empty: write the password into it" in refused(capsys, *HTTP, server.url)[1]
        file.write_text("wrong\n")
        said = refused(capsys, *HTTP, server.url)[1]
        assert "refused user 'default': check name and password" in said
        assert "wrong" not in said
        file.write_text("right\n")
        assert "choose another port" in refused(capsys, *HTTP, server.url, "--port", str(taken))[1]  # it got further


def test_without_hiredis_the_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hiredis", None)
    assert 'pip install "mcptrio[redis]"' in refused(capsys, *HTTP, "redis://localhost")[1]
