"""The dispatcher, help, and command lines that cannot be used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mcptrio.cli import CLIENT_COMMANDS, COMMANDS, main
from mcptrio.cli.command import app_for

WEATHER = str(Path(__file__).resolve().parents[2] / "examples" / "weather.py")
URL = "http://127.0.0.1:9/mcp"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["inspect", ""], "the target is empty"),
        (["inspect", "--"], "the target is empty"),
        (["inspect", "ftp://example.org"], "is not the URL of a server"),
        (["inspect", "'unclosed"], "is not a valid command line"),
        (["inspect", WEATHER, "--nope"], "--nope"),
        (["inspect", WEATHER, "--protocol", "yesterday"], "unknown protocol version yesterday"),
        (["inspect", WEATHER, "--timeout", "soon"], "soon"),
        (["inspect", WEATHER, "--timeout", "0"], "greater than 0"),
        (["inspect", WEATHER, "--header", "nonsense"], "write 'Name: value'"),
        (["inspect", WEATHER, "--env", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE"),
        (["inspect", WEATHER, "--auth", "oauth"], "oauth needs a URL"),
        (["call", WEATHER], "TOOL"),
        (["call", WEATHER, "forecast", "--args", "{"], "--args is not valid JSON"),
        (["call", WEATHER, "forecast", "--args", "[]"], "JSON object"),
        (["call", WEATHER, "forecast", "--args", "@nowhere"], "No such file"),
        (["call", WEATHER, "forecast", "--arg", "city"], "write name=value"),
        (["call", WEATHER, "forecast", "--arg", "days=few"], "expected integer"),
        (["call", WEATHER, "x", "y"], "unexpected argument 'y'. See mcptrio call --help"),
        (["call", WEATHER, "x", "y=3"], "write an argument of a tool as --arg y=3"),
        (["nope"], "unknown command 'nope'"),
        (["inspec", WEATHER], "did you mean 'inspect'?"),
        (["inspect", URL, "--auth", "oauth", "--token", "x"], "cannot be combined with"),
        (["inspect", URL, "--header", "A: b\nC: d"], "write 'Name: value'"),
        (["call", "one", "two", "--", "three"], "two"),
        (["listen", WEATHER, "--count", "0"], "greater than 0"),
        (["cluster"], "STORE"),
        (["cluster", "sqlite:///x.db"], "not the URL of a Redis store"),
        (["cluster", "redis://127.0.0.1:9", "--limit", "-1"], "--limit is a number from 0"),
    ],
    ids=lambda value: " ".join(map(str, value))[-40:] if isinstance(value, list) else None,
)
def test_a_wrong_command_line_is_reported_in_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 64
    out, said = capsys.readouterr()
    assert out == ""
    assert line in said
    assert said.startswith("mcptrio: ")
    assert said.count("\n") == 1


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in ("run", *COMMANDS) if f"\n  {name} " not in shown] == []
    assert main([]) == 64
    assert capsys.readouterr().err == shown


@pytest.mark.parametrize("name", CLIENT_COMMANDS)
def test_help_of_a_command_explains_its_options_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "TARGET" in shown
    assert "--json" in shown
    assert f"examples:\n  mcptrio {name} " in shown


@pytest.mark.parametrize("name", CLIENT_COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    shown = [one for one in app_for(name)[name].assemble_argument_collection(parse_docstring=True) if one.show]
    assert len(shown) > 10
    assert [one.name for one in shown if not one.parameter.help] == []


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mcptrio ")


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


WITHOUT = "import sys; sys.modules['cyclopts'] = sys.modules['rich'] = None; from mcptrio.cli import main; "


@pytest.mark.parametrize("name", CLIENT_COMMANDS)
def test_without_the_extra_a_command_says_how_to_get_it(name: str) -> None:
    done = run_python(f"{WITHOUT} sys.exit(main([{name!r}, 'x']))")
    assert done.returncode == 64
    assert done.stderr.startswith(f"mcptrio: `mcptrio {name}` needs additional packages: pip install ")
    assert done.stderr.endswith('"mcptrio[cli]", or in a checkout pip install ".[cli]"\n')


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"]])
def test_without_the_extra_the_rest_works(arguments: list[str]) -> None:
    done = run_python(f"{WITHOUT} sys.exit(main({arguments!r}))")
    assert (done.returncode, done.stderr) == (0, "")


def test_run_imports_nothing_of_the_other_commands() -> None:
    """Hosts start servers often: what `inspect` needs costs a tenth of a second."""
    program = "import sys; from mcptrio.cli import main\ntry: main(['run', '--help'])\nexcept SystemExit: pass\n"
    done = run_python(f"{program}\nprint('MODULES', *sys.modules)")
    loaded = set(done.stdout.partition("MODULES ")[2].split())
    assert "mcptrio.cli.run" in loaded
    heavy = ("cyclopts", "rich", "httpx2", "mcptrio.client", "mcptrio.cli.command", "difflib")
    assert [name for name in heavy if name in loaded] == []
