"""`mcptrio inspect`, `call`, `read`, `prompt` and `listen`, as programs, against servers that are programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from mcptrio._eras.choose import ERAS
from mcptrio.transports.http_server.listener.sockets import BoundAddress
from tests.cli.talkative import PIXEL
from tests.cli.terminal import Terminal, terminal
from tests.e2e.raw_peer import listening
from tests.forked import run_command
from tests.tiers import exhaustive, sample

from .oauth_mock import Mock
from .server_process import ServerProcess, running

ROOT = Path(__file__).resolve().parents[2]
TALKATIVE = str(ROOT / "tests" / "cli" / "talkative.py")
WEATHER = str(ROOT / "examples" / "weather.py")
DESK = str(ROOT / "examples" / "order_desk.py")
NOTES = str(ROOT / "examples" / "notes.py")
MCPTRIO = (sys.executable, "-m", "mcptrio")
TIMEOUT = 60.0
OLDER = next(date for date, era in reversed(ERAS.items()) if era.stateful)
NEWEST = list(ERAS)[-1]
LISTS = {"tools", "resources", "resourceTemplates", "prompts"}
both_lives = pytest.mark.parametrize("date", sample([OLDER, NEWEST], NEWEST))


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**plain, "TERM": "xterm-256color", "PYTHONUNBUFFERED": "", **more}


def mcptrio(*arguments: str, stdin: bytes = b"", cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    return run_command(arguments, stdin=stdin, cwd=cwd, env=environment(**env))


def ok(*arguments: str, **how: Any) -> str:
    done = mcptrio(*arguments, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fails(code: int, *arguments: str, **how: Any) -> str:
    """The one line that a failing command says."""
    done = mcptrio(*arguments, **how)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@contextmanager
def child_of(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command that runs in the background; always ended with the test."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **streams, text=True, env=environment(), cwd=ROOT) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(TALKATIVE, tmp_path_factory.mktemp("log") / "log") as server:
        trio.run(server.wait_ready)
        yield server


@pytest.fixture(scope="module")
def url(served: ServerProcess) -> str:
    return f"http://127.0.0.1:{served.port}/mcp"


# -- inspect


TARGETS = ["file", "file:NAME", "command line", "command", "http", "websocket"]


@pytest.fixture(params=sample(TARGETS, "file", "http"))
def target(request: pytest.FixtureRequest, url: str) -> tuple[list[str], list[str]]:
    """Return the arguments before the options and those after them."""
    command = [sys.executable, "-m", "mcptrio", "run", TALKATIVE]
    match request.param:
        case "file":
            return [TALKATIVE], []
        case "file:NAME":
            return [f"{TALKATIVE}:server"], []
        case "command line":
            return [" ".join(command)], []
        case "command":
            return [], ["--", *command]
        case "http":
            return [url], []
    return [url.replace("http://", "ws://")], []


def test_inspect_prints_one_json_object_with_all_pages(target: tuple[list[str], list[str]]) -> None:
    before, behind = target
    found = json.loads(ok("inspect", *before, "--json", *behind))
    assert found.keys() == LISTS | {"protocolVersion", "serverInfo", "capabilities", "instructions"}
    assert found["serverInfo"] == {"name": "talkative", "version": "2.0"}
    assert found["protocolVersion"] == NEWEST
    assert found["capabilities"]["tools"] == {"listChanged": True}
    assert found["instructions"] == "Try everything."
    assert len(found["tools"]) >= 12, "the server has three on each page"
    assert found["tools"][0]["annotations"] == {"readOnlyHint": True}
    assert [one["uri"] for one in found["resources"]] == ["talk://text", "talk://blob"]
    assert [one["uriTemplate"] for one in found["resourceTemplates"]] == ["talk://number/{n}"]
    assert found["prompts"][0]["arguments"][0] == {"name": "name", "required": True}


def test_a_tool_is_called_at_every_kind_of_target(target: tuple[list[str], list[str]]) -> None:
    before, behind = target
    assert ok("call", *before, "add", "--args", '{"a": 2}', *behind) == "3.0\n"


def test_a_server_without_something_has_an_empty_list_of_it() -> None:
    found = json.loads(ok("inspect", WEATHER, "--json"))
    assert [len(found[name]) for name in ("tools", "resources", "resourceTemplates", "prompts")] == [1, 0, 0, 0]


@pytest.mark.parametrize("date", sample(ERAS, OLDER))
def test_a_protocol_version_can_be_asked_for(date: str) -> None:
    assert json.loads(ok("inspect", WEATHER, "--json", "--protocol", date))["protocolVersion"] == date


def test_inspect_shows_tables_to_people() -> None:
    shown = ok("inspect", NOTES)
    for text in ("notes 1.0.0", "Tools (2)", "name: string, text: string", "Find the notes", "notes://note/{name}"):
        assert text in shown
    assert "\x1b" not in shown, "there is no terminal"


# -- call


def test_call_prints_text_as_it_is_and_values_so_that_they_can_be_read(url: str) -> None:
    assert ok("call", url, "echo", "--arg", "value=[red]x") == "[red]x\n"
    shown = ok("call", WEATHER, "forecast", "--arg", "city=Oslo", "--arg", "days=2")
    assert shown.startswith('{\n  "city": "Oslo"')
    assert len(json.loads(shown)["days"]) == 2


def test_call_prints_a_list_so_that_it_can_be_read_too(tmp_path: Path) -> None:
    code = (
        "from mcptrio import Server\nserver = Server('s')\n@server.tool\ndef pair() -> list[int]:\n    return [1, 2]\n"
    )
    (tmp_path / "server.py").write_text(code)
    assert ok("call", "server.py", "pair", cwd=tmp_path) == "[\n  1,\n  2\n]\n"


def test_call_prints_the_whole_result_for_programs() -> None:
    result = json.loads(ok("call", WEATHER, "forecast", "--args", '{"city": "Oslo"}', "--json"))
    assert result["structuredContent"]["city"] == "Oslo"
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


@exhaustive
def test_arguments_come_from_the_line_a_file_or_standard_input(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1, "b": 2}')
    assert ok("call", TALKATIVE, "add", "--args", "@a.json", cwd=tmp_path) == "3.0\n"
    assert ok("call", TALKATIVE, "add", "--args", "@-", stdin=b'{"a": 4, "b": 5}') == "9.0\n"
    assert ok("call", TALKATIVE, "add", "--args", '{"a": 1, "b": 2}', "--arg", "b=-7.5") == "-6.5\n"


def test_a_failed_tool_is_one_line_and_the_result_for_programs(url: str) -> None:
    assert fails(1, "call", url, "fail") == "mcptrio: the tool 'fail' failed: reason 1\n"
    done = mcptrio("call", url, "fail", "--json")
    assert (done.returncode, json.loads(done.stdout)["isError"]) == (1, True)
    assert done.stderr == "mcptrio: the tool 'fail' failed: reason 1\n"


@exhaustive
def test_binary_content_is_named_or_saved(tmp_path: Path) -> None:
    shown = ok("call", TALKATIVE, "picture")
    size = len(PIXEL)
    assert shown.splitlines() == [
        "two pictures:",
        f"[image/png, {size} bytes; save it with --output FILE]",
        f"[image/png, {2 * size} bytes; save it with --output FILE]",
    ]
    ok("call", TALKATIVE, "picture", "--output", "p.png", cwd=tmp_path)
    assert (tmp_path / "p.png").read_bytes() == PIXEL
    assert (tmp_path / "p-2.png").read_bytes() == PIXEL * 2


@exhaustive
def test_sampling_is_declared_only_if_an_answer_is_given() -> None:
    assert ok("call", TALKATIVE, "think", "--sample", "forty-two") == "forty-two\n"
    done = mcptrio("call", TALKATIVE, "think")
    assert done.returncode != 0
    assert "(answer sampling requests with --sample TEXT)" in done.stderr
    assert "Traceback" not in done.stderr


@both_lives
def test_roots_are_sent_to_the_server(tmp_path: Path, url: str, date: str) -> None:
    assert ok("call", url, "places", "--root", str(tmp_path), "--protocol", date) == f"{tmp_path.as_uri()}\n"


@exhaustive
def test_log_messages_are_shown_with_the_result_but_not_to_programs() -> None:
    done = mcptrio("call", TALKATIVE, "steps")
    assert (done.stdout, done.stderr) == ("walked\n", "info: the steps are done\n")
    assert mcptrio("call", TALKATIVE, "steps", "--log-level", "error").stderr == ""
    assert mcptrio("call", TALKATIVE, "steps", "--json").stderr == ""


@exhaustive
def test_a_file_sees_the_environment_and_a_command_what_it_is_given(tmp_path: Path) -> None:
    """A file is the user's own; a command may be a program of others."""
    db = str(tmp_path / "notes.db")
    ok("call", NOTES, "write_note", "--args", '{"name": "a", "text": "b"}', NOTES_DB=db)
    assert json.loads(ok("read", NOTES, "notes://index", NOTES_DB=db)) == ["a"]
    command = ["--", sys.executable, NOTES]
    assert json.loads(ok("read", "notes://index", "--env", "NOTES_DB", *command, NOTES_DB=db)) == ["a"]
    assert json.loads(ok("read", "notes://index", "--env", f"NOTES_DB={db}", *command)) == ["a"]
    assert json.loads(ok("read", "notes://index", *command, NOTES_DB=db, cwd=tmp_path)) == ["a"], "notes.db is here"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert json.loads(ok("read", "notes://index", *command, NOTES_DB=db, cwd=elsewhere)) == []


# -- read and prompt


@exhaustive
def test_read_writes_the_contents_and_nothing_else(tmp_path: Path) -> None:
    assert ok("read", TALKATIVE, "talk://text") == "some text é\n"
    done = subprocess.run(
        [*MCPTRIO, "read", TALKATIVE, "talk://blob"], capture_output=True, check=True, env=environment(), cwd=ROOT
    )
    assert done.stdout == PIXEL
    assert ok("read", TALKATIVE, "talk://number/7") == "number 7\n"
    ok("read", TALKATIVE, "talk://text", "--output", str(tmp_path / "text"))
    assert (tmp_path / "text").read_text() == "some text é"
    ok("read", TALKATIVE, "talk://blob", "--output", str(tmp_path / "blob"))
    assert (tmp_path / "blob").read_bytes() == PIXEL
    assert json.loads(ok("read", TALKATIVE, "talk://text", "--json"))["contents"][0]["text"] == "some text é"


@exhaustive
def test_prompt_prints_messages() -> None:
    shown = ok("prompt", TALKATIVE, "greet", "--args", '{"name": "Ada"}', "--arg", "tone=cool")
    assert shown == "user:\nGreet Ada in a cool way.\n"
    result = json.loads(ok("prompt", TALKATIVE, "greet", "--arg", "name=Ada", "--json"))
    assert result["messages"][0]["content"] == {"type": "text", "text": "Greet Ada in a warm way."}


# -- exit codes

SILENT = "import time; time.sleep(60)"
GARBAGE = "import time; print('Welcome!', flush=True); time.sleep(60)"


@exhaustive
def test_a_tool_that_only_runs_as_a_task_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(
        "from mcptrio import Server\n"
        "server = Server('slow')\n"
        "@server.tool(task=True)\n"
        "async def triple(number: int) -> int:\n"
        "    return 3 * number\n"
    )
    assert ok("call", "server.py", "triple", "--arg", "number=7", cwd=tmp_path) == "21\n"


def test_an_https_url_of_a_plain_http_server_is_explained(url: str) -> None:
    said = fails(3, "inspect", url.replace("http", "https"))
    assert "it does not speak TLS, so its URL begins with http or ws" in said


def test_why_a_tool_of_a_file_failed_is_shown(tmp_path: Path) -> None:
    """Users who try their own server need its log and its output more than anything else."""
    file = tmp_path / "broken.py"
    file.write_text(
        "from mcptrio import Server\n"
        "server = Server('broken')\n"
        "@server.tool\n"
        "async def divide() -> float:\n"
        "    print('about to divide')\n"
        "    return 1 / 0\n"
    )
    done = mcptrio("call", str(file), "divide")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("about to divide\n")
    assert "broken.py" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert done.stderr.endswith("mcptrio: the tool 'divide' failed: The tool failed. The server log has the details.\n")
    file.write_text("import nothing_of_this_name\n")
    assert fails(3, "inspect", str(file)).startswith(f"mcptrio: {file}:1: ModuleNotFoundError")


FAILURES: list[tuple[int, list[str], str]] = [
    (1, ["call", TALKATIVE, "add"], "arguments.a: required"),
    (2, ["call", TALKATIVE, "nope"], "unknown tool 'nope'; the server has: add, "),
    (2, ["prompt", TALKATIVE, "nope"], "unknown prompt 'nope'; the server has: "),
    (2, ["prompt", WEATHER, "nope"], "the server does not support prompts"),
    (2, ["read", TALKATIVE, "talk://nope"], "resource not found"),
    (2, ["listen", WEATHER, "--resource", "x://y"], "the server sends no notifications about x://y"),
    (3, ["inspect", "no_such_file.py"], "no_such_file.py: no such file"),
    (3, ["inspect", "no_such_file.py:server"], "no_such_file.py: no such file"),
    (3, ["inspect", "no_such_program --flag"], "'no_such_program' could not be started"),
    (
        3,
        ["inspect", "http://127.0.0.1:9/mcp"],
        "no connection to the server at http://127.0.0.1:9: Connection refused",
    ),
    (3, ["inspect", "ws://127.0.0.1:9/mcp"], "no connection to the server"),
    (3, ["inspect", "http://unknown.invalid/mcp"], "no connection to the server"),
    (3, ["inspect", "--", sys.executable, "-c", "raise SystemExit('not today')"], "it said last: not today"),
    (3, ["inspect", "--timeout", "1", "--", sys.executable, "-c", SILENT], "was not answered within 1 s"),
    (3, ["inspect", "--timeout", "1", "--", sys.executable, "-c", GARBAGE], "not a message: b'Welcome!'"),
    (3, ["call", TALKATIVE, "die"], "the server exited with code 7"),
    (64, ["inspect"], "TARGET"),
    (74, ["read", TALKATIVE, "talk://text", "--output", "/"], "cannot write /"),
]


@pytest.mark.parametrize(
    ("code", "arguments", "line"),
    sample(FAILURES, *FAILURES[::5]),
    ids=lambda value: " ".join(map(str, value))[-50:] if isinstance(value, list) else None,
)
def test_every_failure_has_a_code_and_one_line(code: int, arguments: list[str], line: str) -> None:
    said = fails(code, *arguments)
    assert said.startswith("mcptrio: ")
    assert line in said


def test_programs_get_errors_as_json(url: str) -> None:
    done = mcptrio("read", url, "talk://nope", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == -32602
    assert "no such file" in json.loads(mcptrio("inspect", "nope.py", "--json").stdout)["error"]["message"]


@pytest.mark.defect("E28")
@pytest.mark.parametrize("more", [["--json"], []], ids=["json", "tables"])
def test_a_closed_pipe_ends_the_command_with_one_line(url: str, more: list[str]) -> None:
    with child_of([*MCPTRIO, "inspect", url, *more]) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == "mcptrio: cannot write to stdout: Broken pipe\n"
        assert child.wait(TIMEOUT) == 74


@pytest.mark.defect("E28")
@pytest.mark.parametrize("redirect", sample([">&-", ">/dev/full"], ">/dev/full"))
@pytest.mark.parametrize("more", [["--json"], []], ids=["json", "tables"])
def test_a_stdout_that_cannot_be_written_ends_the_command_with_one_line(
    url: str, redirect: str, more: list[str]
) -> None:
    command = ["sh", "-c", f'exec "$@" {redirect}', "sh", *MCPTRIO, "inspect", url, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False, env=environment())
    assert done.returncode == 74, done.stderr
    assert done.stderr.startswith("mcptrio: cannot write to stdout: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.defect("E28")
@pytest.mark.parametrize("redirect", [">&-", ">/dev/full"])
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["call", "--help"], ["run", "--help"]], ids=" ".join)
def test_help_that_cannot_be_written_ends_with_one_line(arguments: list[str], redirect: str) -> None:
    command = ["sh", "-c", f'exec "$@" {redirect}', "sh", *MCPTRIO, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False, env=environment())
    assert done.returncode == 74, done.stderr
    assert done.stderr.startswith("mcptrio: cannot write to stdout: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.defect("E28")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["call", "--help"], ["run", "--help"]], ids=" ".join)
def test_help_into_a_closed_pipe_ends_with_one_line(arguments: list[str]) -> None:
    with child_of([*MCPTRIO, *arguments]) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == "mcptrio: cannot write to stdout: Broken pipe\n"
        assert child.wait(TIMEOUT) == 74


@pytest.mark.defect("S12")
def test_a_server_file_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "attrs.py").write_text("raise RuntimeError('imported from the working directory')")
    (tmp_path / "servers" / "helper.py").write_text("NAME = 'found'")
    (tmp_path / "servers" / "one.py").write_text(
        "import helper\nfrom mcptrio import Server\nserver = Server(helper.NAME)\n"
    )
    command = [sys.executable, "-P", "-m", "mcptrio", "inspect", "servers/one.py", "--json"]
    env = environment(PYTHONPATH=str(ROOT))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["serverInfo"]["name"] == "found", "the file's own folder is searched"


def test_lines_that_a_file_prints_while_it_is_loaded_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(
        "from mcptrio import Server\nserver = Server('loud')\nprint('loaded')\n"
        "@server.tool\nasync def add(a: int, b: int) -> int:\n    return a + b\n"
    )
    done = mcptrio("call", str(file), "add", "--arg", "a=1", "--arg", "b=2")
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert done.stderr.startswith("loaded\n")


@pytest.mark.defect("U15")
def test_a_tool_that_blocks_the_event_loop_over_stdio_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(
        "import time\nfrom mcptrio import Server\nserver = Server('slow')\n"
        "@server.tool\nasync def block() -> str:\n    time.sleep(1)\n    return 'done'\n"
    )
    done = mcptrio("call", str(file), "block")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "the event loop is blocked by tools/call: block (server.py:6)" in done.stderr
    assert "in a plain `def` function, which runs in a thread" in done.stderr


def test_a_missing_resource_is_named() -> None:
    assert "notes://nope" in fails(2, "read", NOTES, "notes://nope")


@pytest.mark.defect("S15")
def test_json_on_a_terminal_shows_no_control_characters(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(
        "from mcptrio import Server\nserver = Server('evil')\n"
        "@server.tool\nasync def trick() -> str:\n    return 'a\\x9b31mb\\u202ec\\x7fd'\n"
    )
    with at_terminal("call", str(file), "trick", "--json") as screen:
        assert screen.end() == 0
    assert not {"\x9b", "\u202e", "\x7f"} & set(screen.raw)
    assert json.loads(screen.shown)["content"][0]["text"] == "a\x9b31mb\u202ec\x7fd"


@both_lives
@pytest.mark.parametrize("way", ["stdio", "http"])
def test_ctrl_c_cancels_the_call_at_the_server(tmp_path: Path, url: str, way: str, date: str) -> None:
    note = tmp_path / "note"
    target = TALKATIVE if way == "stdio" else url
    command = [*MCPTRIO, "call", target, "wait", "--arg", f"file={note}", "--protocol", date]
    with child_of(command) as child:
        wait_until(lambda: note.exists() and note.read_text() == "waiting")
        child.send_signal(signal.SIGINT)
        out, said = child.communicate(timeout=TIMEOUT)
        assert (child.returncode, out, said) == (130, "", "mcptrio: interrupted\n")
    wait_until(lambda: note.read_text() == "cancelled")


def wait_until(true: Any) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not true():
        assert time.monotonic() < deadline
        trio.run(trio.sleep, 0.02)


# -- listen


@both_lives
def test_listen_prints_changes(url: str, date: str) -> None:
    options = ["--tools", "--resource", "talk://text", "--count", "2", "--json", "--protocol", date]
    with child_of([*MCPTRIO, "listen", url, *options]) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == "listening: tools, talk://text\n"
        assert ok("call", url, "grow") == "grew\n"
        out, said = child.communicate(timeout=TIMEOUT)
        assert (child.returncode, said) == (0, "")
    changes = [json.loads(line) for line in out.splitlines()]
    assert sorted(changes, key=str) == [{"kind": "resource", "uri": "talk://text"}, {"kind": "tools"}]


# -- at a terminal


def at_terminal(*arguments: str, **env: str) -> Any:
    return terminal([*MCPTRIO, *arguments], environment(**env), str(ROOT))


def fill_in(screen: Terminal) -> None:
    screen.wait_for("talkative asks:")
    screen.wait_for("Which shirt?\\x1b[2J")  # what a server says does not clear the screen
    screen.wait_for("size (number or name):")
    screen.type("huge\n")
    screen.wait_for("'huge' is not one of the choices")
    screen.type("2\n")
    screen.wait_for("number (whole number, at least 1, at most 99):")
    screen.type("100\n")
    screen.wait_for("number (")
    screen.type("ten\n")
    screen.wait_for("not a whole number")
    screen.type("10\n")
    screen.wait_for("gift (y/n, Enter: no):")
    screen.type("y\n")
    screen.wait_for("text (Enter: nothing):")
    screen.type("\n")
    screen.wait_for("Send this?")


@pytest.mark.defect("E29")
@both_lives
def test_a_form_is_filled_in_at_the_terminal_and_edited(date: str) -> None:
    with at_terminal("call", TALKATIVE, "shirt", "--protocol", date) as screen:
        fill_in(screen)
        screen.type("e\n")
        screen.wait_for("size (number or name, Enter: ")
        screen.type("L\n")
        screen.wait_for("at most 99, Enter: 10):")
        screen.type("\n\nhello\n\n")
        screen.wait_for("accept: Shirt(size='l', number=10, gift=True, text='hello')")
        assert screen.end() == 0


@exhaustive
def test_a_default_is_taken_with_enter() -> None:
    with at_terminal("call", DESK, "refund", "--arg", "order_id=7") as screen:
        screen.wait_for("Refund 120.00 to Ada?")
        screen.wait_for("refund (y/n):")
        screen.type("y\n")
        screen.wait_for("Enter: damaged):")
        screen.type("\n")
        screen.wait_for("note (")
        screen.type("\n")
        screen.wait_for("Send this?")
        screen.type("\n")
        screen.wait_for("Refunded 120.00 to Ada (damaged).")
        assert screen.end() == 0


@both_lives
@pytest.mark.parametrize("key", ["\x04", "m\n1\ny\n\nd\n"], ids=["Ctrl-D", "d"])
def test_a_question_is_declined_with_a_key(url: str, date: str, key: str) -> None:
    with at_terminal("call", url, "shirt", "--protocol", date) as screen:
        screen.wait_for("size (")
        screen.type(key)
        screen.wait_for("decline: None")
        assert screen.end() == 0


@both_lives
def test_without_a_terminal_questions_are_declined_and_shown(url: str, date: str) -> None:
    done = mcptrio("call", url, "shirt", "--protocol", date)
    assert (done.returncode, done.stdout) == (0, "decline: None\n")
    assert done.stderr == "mcptrio: the server asked: Which shirt?\\x1b[2J; declined, because stdin is not a terminal\n"


def test_ctrl_c_ends_a_question(url: str) -> None:
    with at_terminal("call", url, "shirt") as screen:
        screen.wait_for("size (")
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 130
        assert "Traceback" not in screen.shown


@pytest.fixture
def browser(tmp_path: Path) -> tuple[str, Path]:
    """A PATH with a browser that notes which page it was sent to, and follows its redirects."""
    program, visited = tmp_path / "bin" / "xdg-open", tmp_path / "visited"
    program.parent.mkdir()
    lines = (
        f"#!{sys.executable}",
        "import os, pathlib, sys, urllib.request",
        f"pathlib.Path({str(visited)!r}).write_text(sys.argv[1])",
        "if sys.argv[1].startswith('http://127.') and os.fork() == 0: urllib.request.urlopen(sys.argv[1]).read()",
    )
    program.write_text("\n".join(lines))
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{os.environ['PATH']}", visited


needs_xdg_open = pytest.mark.skipif(sys.platform != "linux", reason="other systems open pages in another way")


@needs_xdg_open
def test_a_page_is_opened_only_when_the_person_agrees(url: str, browser: tuple[str, Path]) -> None:
    path, visited = browser
    with at_terminal("call", url, "visit", PATH=path) as screen:
        screen.wait_for("https://example.org/pay")
        screen.wait_for("Open this page?")
        screen.type("\n")
        screen.wait_for("decline")
        assert screen.end() == 0
    assert not visited.exists()
    with at_terminal("call", url, "visit", PATH=path) as screen:
        screen.wait_for("Open this page?")
        screen.type("y\n")
        screen.wait_for("accept")
        assert screen.end() == 0
    assert visited.read_text() == "https://example.org/pay"


@needs_xdg_open
def test_a_call_that_needs_a_page_first_goes_on_when_the_person_has_been_there(browser: tuple[str, Path]) -> None:
    path, visited = browser
    with at_terminal("call", TALKATIVE, "members_only", "--protocol", "2025-11-25", PATH=path) as screen:
        screen.wait_for("Join the club.")
        screen.wait_for("Open this page?")
        screen.type("y\n")
        screen.wait_for("Press Enter when you have finished")
        screen.type("\n")
        screen.wait_for("welcome")
        assert screen.end() == 0
    assert visited.read_text() == "https://example.org/join"
    with at_terminal("call", TALKATIVE, "members_only", "--protocol", "2025-11-25", PATH=path) as screen:
        screen.wait_for("Open this page?")
        screen.type("y\n")
        screen.wait_for("Press Enter when you have finished")
        screen.type("\x04")
        screen.wait_for("mcptrio: the page was not visited")
        assert screen.end() == 2


@needs_xdg_open
def test_a_page_that_anybody_could_change_is_not_opened(browser: tuple[str, Path]) -> None:
    path, visited = browser
    with at_terminal("call", TALKATIVE, "visit", PATH=path, PAGE="http://example.org/pay") as screen:
        screen.wait_for("Open this page?")
        screen.type("y\n")
        screen.wait_for("Not opened")
        assert screen.end() == 0
    assert not visited.exists()


@both_lives
def test_progress_is_a_bar_on_a_terminal(url: str, date: str) -> None:
    with at_terminal("call", url, "steps", "--protocol", date) as screen:
        assert screen.end() == 0
    assert "step 2" in screen.shown
    assert "3/3" in screen.shown
    assert "━" in screen.shown
    assert "info: the steps are done" in screen.shown
    assert screen.shown.rstrip().endswith("walked")


def test_colours_are_for_terminals_and_can_be_refused() -> None:
    with at_terminal("inspect", WEATHER) as screen:
        assert screen.end() == 0
    assert "\x1b[36m" in screen.raw
    with at_terminal("inspect", WEATHER, NO_COLOR="1") as screen:
        assert screen.end() == 0
    assert "Tools (1)" in screen.raw
    assert "\x1b" not in screen.raw


# -- signing in


@asynccontextmanager
async def protected() -> AsyncIterator[Mock]:
    """A server that wants a sign-in, on a port of its own."""
    mock = Mock()
    listener = listening(mock, port=0)
    async with trio.open_nursery() as nursery:
        bound: list[BoundAddress] = await nursery.start(listener.serve)
        mock.base = bound[0].url
        yield mock
        await listener.close(trio.current_time())


@needs_xdg_open
async def test_oauth_signs_in_with_the_browser_and_remembers(browser: tuple[str, Path], tmp_path: Path) -> None:
    async with protected() as mock:
        env = {"PATH": browser[0], "XDG_DATA_HOME": str(tmp_path / "data")}

        async def inspect(*options: str) -> subprocess.CompletedProcess[str]:
            arguments = ("inspect", mock.url, "--json", "--protocol", OLDER, *options)
            return await trio.to_thread.run_sync(lambda: mcptrio(*arguments, **env))

        refused = await inspect()
        assert refused.returncode == 4
        assert "--auth oauth" in refused.stderr
        assert mock.count("authorize") == 0
        for _ in range(2):
            done = await inspect("--auth", "oauth")
            assert done.returncode == 0, done.stderr
            assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == ["together"]
        assert mock.count("authorize") == 1
        (token,) = mock.valid
        assert (await inspect("--token", token)).returncode == 0
        assert (await inspect("--header", f"Authorization: Bearer {token}")).returncode == 0
        env["MCPTRIO_TOKEN"] = "wrong"
        assert (await inspect()).returncode == 4
        env["MCPTRIO_TOKEN"] = token
        assert (await inspect()).returncode == 0


@needs_xdg_open
@pytest.mark.parametrize(("answer", "code"), [("\n", 0), ("n\n", 4)])
async def test_at_a_terminal_a_sign_in_is_offered(
    browser: tuple[str, Path], tmp_path: Path, answer: str, code: int
) -> None:
    async with protected() as mock:

        def person() -> int:
            env = {"PATH": browser[0], "XDG_DATA_HOME": str(tmp_path / "data")}
            with at_terminal("inspect", mock.url, "--protocol", OLDER, **env) as screen:
                screen.wait_for("The server requires a sign-in at 127.0.0.1. Open the browser? [Y/n]")
                screen.type(answer)
                return screen.end()

        assert await trio.to_thread.run_sync(person) == code
    assert mock.count("authorize") == (code == 0)


def test_a_server_that_needs_a_token_is_explained_at_the_terminal(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-long-enough-token-0123456789 ada\n")
    tokens.chmod(0o600)
    with running(TALKATIVE, tmp_path / "log", "--token-file", str(tokens)) as server:
        trio.run(server.wait_ready)
        url = f"http://127.0.0.1:{server.port}/mcp"
        home = {"XDG_DATA_HOME": str(tmp_path / "data")}
        with terminal([*MCPTRIO, "inspect", url], environment(**home)) as screen:
            screen.wait_for("mcptrio: this server needs a token: --token or MCPTRIO_TOKEN")
            assert screen.end() == 4
        assert ok("call", url, "add", "--args", '{"a": 1, "b": 2}', MCPTRIO_TOKEN="a-long-enough-token-0123456789")
