"""The forms of TARGET."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio.cli.exit_codes import Failure, UsageError
from mcptrio.cli.target import read_target, with_command

RUN = (sys.executable, "-P", "-m", "mcptrio", "run")


@pytest.mark.parametrize("url", ["http://x/mcp", "https://x", "ws://x", "wss://x/y", "HTTPS://X/"])
def test_a_url_is_taken_as_it_is(url: str) -> None:
    target = read_target(url)
    assert (target.url, target.argv) == (url, ())


@pytest.mark.parametrize("name", ["server.py", "my server.py", "a:b.py"])
@pytest.mark.parametrize("tail", ["", ":orders"])
def test_a_file_is_run_by_the_same_interpreter(
    name: str, tail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_SECRET", "42")
    Path(name).touch()
    target = read_target(name + tail)
    assert target.argv == (*RUN, name + tail, "--transport", "stdio")
    assert target.env["SOME_SECRET"] == "42"


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("npx -y 'some server' --flag", ("npx", "-y", "some server", "--flag")),
        ("server", ("server",)),
        ("python server.py", ("python", "server.py")),
        ("sh; rm -rf /tmp/x && echo $HOME", ("sh;", "rm", "-rf", "/tmp/x", "&&", "echo", "$HOME")),
        ("x http://y", ("x", "http://y")),
    ],
)
def test_anything_else_is_a_command_that_no_shell_sees(text: str, argv: tuple[str, ...]) -> None:
    target = read_target(text)
    assert (target.argv, target.url, target.env) == (argv, None, {})


def test_a_server_of_a_hosts_configuration_is_a_target(tmp_path: Path) -> None:
    file = tmp_path / "my mcp.json"
    web = {"url": "https://example.org/mcp", "headers": {"X-Key": "v"}}
    files = {"command": "npx", "args": ["-y", "files"], "env": {"KEY": "v"}, "cwd": "/tmp"}
    file.write_text(json.dumps({"mcpServers": {"web": web, "files": files}}))
    found = read_target(f"{file}:web")
    assert (found.url, found.headers, found.argv) == ("https://example.org/mcp", {"X-Key": "v"}, ())
    found = read_target(f"{file}:files")
    assert (found.url, found.argv, found.env, found.cwd) == (None, ("npx", "-y", "files"), {"KEY": "v"}, "/tmp")
    for wrong, text in ((str(file), "the servers are web, files"), (f"{file}:x", "no server 'x'")):
        with pytest.raises(Failure, match=text) as caught:
            read_target(wrong)
        assert caught.value.code == 3
    with pytest.raises(Failure, match=r"nope\.json cannot be read"):
        read_target("nope.json:web")


def test_a_command_line_with_such_a_file_is_a_command() -> None:
    assert read_target("server --config mcp.json:x").argv == ("server", "--config", "mcp.json:x")
    assert read_target("server mcp.json").argv == ("server", "mcp.json")


@pytest.mark.parametrize("text", ["", " ", "ftp://x", "file:///x", "'", "''"])
def test_any_other_target_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        read_target(text)


@pytest.mark.parametrize("text", ["localhost", "localhost:8000/mcp", "127.0.0.1:8000", "example.org/mcp", "[::1]:80/x"])
def test_an_address_without_a_scheme_is_a_usage_error_that_says_so(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"write http://{text}")):
        read_target(text)


@pytest.mark.parametrize("text", ["nope.py", "nope.py:server", "folder/nope.py"])
def test_a_file_that_is_not_there_is_no_server(text: str) -> None:
    with pytest.raises(Failure, match=r"nope\.py: no such file") as caught:
        read_target(text)
    assert caught.value.code == 3


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@given(before=st.lists(words.filter(lambda word: word != "--")), command=st.lists(words, min_size=1))
def test_a_command_behind_the_dashes_is_the_target_as_it_stands(before: list[str], command: list[str]) -> None:
    first, *rest = with_command([*before, "--", *command])
    assert rest == before
    if command[0]:
        assert read_target(first).argv == tuple(command)
    else:
        with pytest.raises(UsageError):
            read_target(first)


@given(st.lists(words.filter(lambda word: word != "--")))
def test_without_dashes_nothing_changes(arguments: list[str]) -> None:
    assert with_command(arguments) == arguments


def test_a_command_line_may_be_longer_than_a_name_of_a_file() -> None:
    argv = ("serve", *("word" for _ in range(100)), "last.py")
    assert read_target(" ".join(argv)).argv == argv


@given(st.lists(words.filter(bool), min_size=2))
def test_a_command_line_is_split_as_it_was_joined(argv: list[str]) -> None:
    text = shlex.join(argv)
    if "://" not in text:
        assert read_target(text).argv == tuple(argv)
