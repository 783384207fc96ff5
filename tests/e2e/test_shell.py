"""`mcptrio shell` as a program: lines from a pipe, and a person with Tab, Ctrl-C and Ctrl-D at a terminal."""

from __future__ import annotations

import json
import signal
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_cli import TALKATIVE, at_terminal, fill_in, mcptrio

pytestmark = pytest.mark.slow


def test_lines_of_a_pipe_are_run_and_the_first_failure_is_the_exit_code(tmp_path: Path) -> None:
    lines = [
        "call add a=2 b=0.5",
        'call add {"a": 1}',
        "",
        "read talk://number/7",
        "prompt greet name=Ada",
        "call fail",
        "call nope",
        'call add a="1',
        "what",
        "read",
        "help",
        "exit",
        "call add a=9",
    ]
    done = mcptrio("shell", TALKATIVE, stdin="\n".join(lines).encode())
    assert done.returncode == 1, done.stderr
    assert "2.5" in done.stdout
    assert "10.0" not in done.stdout, "nothing runs after exit"
    assert "Ada" in done.stdout
    assert "Tab completes" in done.stdout
    errors = done.stderr.splitlines()
    assert any("the tool 'fail' failed" in line for line in errors)
    assert any("unknown tool 'nope'; the server has: add" in line for line in errors)
    assert any("No closing quotation: write call TOOL" in line for line in errors)
    assert any("unknown command 'what'; there are call, read" in line for line in errors)
    assert any("write read URI" in line for line in errors)


def test_results_can_be_json() -> None:
    done = mcptrio("shell", TALKATIVE, "--json", stdin=b"call add a=2 b=1\nlist\n")
    assert done.returncode == 0, done.stderr
    decoder, text, found = json.JSONDecoder(), done.stdout, list[Any]()
    while text.strip():
        value, end = decoder.raw_decode(text.strip())
        found.append(value)
        text = text.strip()[end:]
    result, offers = found
    assert result["content"][0]["text"] == "3.0"
    assert {"tools", "prompts"} <= offers.keys()


def test_a_server_of_a_hosts_configuration_is_talked_to(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    command = {"command": sys.executable, "args": ["-m", "mcptrio", "run", TALKATIVE]}
    file.write_text(json.dumps({"mcpServers": {"talk": command, "other": {"command": "no-such-program"}}}))
    done = mcptrio("shell", f"{file}:talk", stdin=b"call add a=2 b=1\n")
    assert (done.returncode, done.stdout) == (0, "3.0\n"), done.stderr
    done = mcptrio("inspect", str(file))
    assert done.returncode == 3
    assert "the servers are talk, other" in done.stderr


def test_tab_completes_at_a_terminal() -> None:
    with at_terminal("shell", TALKATIVE) as screen:
        before = termios.tcgetattr(screen.fd)
        screen.wait_for("> ")
        screen.type("ca\tad\ta=2\n")
        screen.wait_for("call add a=2")
        screen.wait_for("3.0")
        screen.type("re\ttalk://n\t8\n")
        screen.wait_for("read talk://number/8")
        screen.wait_for("> ")
        screen.type("\x04")
        assert screen.end() == 0
        assert termios.tcgetattr(screen.fd)[:4] == before[:4], "the terminal is as it was"


def test_a_question_of_the_server_is_answered_at_the_terminal() -> None:
    with at_terminal("shell", TALKATIVE) as screen:
        screen.wait_for("> ")
        screen.type("call shirt\n")
        fill_in(screen)
        screen.type("\n")
        screen.wait_for("accept: Shirt(")
        screen.wait_for("> ")
        screen.type("quit\n")
        assert screen.end() == 0


def test_ctrl_c_cancels_the_call_and_not_the_shell(tmp_path: Path) -> None:
    file = tmp_path / "waits"
    with at_terminal("shell", TALKATIVE) as screen:
        screen.wait_for("> ")
        screen.type(f"call wait file={file}\n")
        while not file.exists():
            screen._read(0.1)
        screen.process.send_signal(signal.SIGINT)
        screen.wait_for("cancelled")
        screen.wait_for("> ")
        while file.read_text() != "cancelled":  # at the server too
            screen._read(0.1)
        screen.process.send_signal(signal.SIGINT)
        screen.wait_for("Ctrl-D ends the shell")
        screen.type("call add a=1 b=1\n")
        screen.wait_for("2.0")
        screen.type("quit\n")
        assert screen.end() == 0
