"""Settings of limits, HTTP and single tools, from variables and from tables inside `[tool.mcptrio]`."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from mcptrio import DeclarationError, Limits, Server, ToolError, connect
from mcptrio.cli.exit_codes import Failure
from mcptrio.cli.run import program_settings
from mcptrio.cli.sections import OPTIONS_OF_RUN, Sections
from mcptrio.cli.settings import read_settings
from mcptrio.transports.http_server.config import HttpConfig


def server() -> Server:
    server = Server("shop", limits=Limits(call_timeout=20, running=3))

    @server.tool(timeout=5, limit=9)
    async def export_all(seconds: float = 0) -> str:
        await trio.sleep(seconds)
        return "exported"

    @server.tool
    async def ping() -> str:
        return "pong"

    return server


def settings(folder: Path, text: str = "", **variables: str) -> Any:
    (folder / "server.py").write_text("")
    if text:
        (folder / "pyproject.toml").write_text(text)
    return read_settings([str(folder / "server.py"), "--transport", "http"], variables)


TABLE = """
[tool.mcptrio.limits]
call_timeout = 30
idle-timeout = 60

[tool.mcptrio.http]
max_calls = 7
allowed_headers = ["x-one"]

[tool.mcptrio.tools.export_all]
timeout = 0.5
limit = 2

[tool.mcptrio.tools.ping]
rate = 4
serial = true
"""


def test_the_table_wins_over_the_code_and_the_code_over_the_default(tmp_path: Path) -> None:
    app = server()._app
    found = settings(tmp_path, TABLE)
    found.sections.apply(app)
    limits = app.limits
    assert (limits.call_timeout, limits.idle_timeout, limits.running, limits.inbox) == (30, 60, 3, Limits().inbox)
    export, ping = app.tools.registry.entries.values()
    assert (export.timeout, export.limiter.total_tokens) == (0.5, 2)
    assert (ping.serial, ping.timeout) == (True, None)
    assert ping.rates is not None
    http = program_settings(found)
    assert (http["max_calls"], http["allowed_headers"]) == (7, ("x-one",))


def test_a_variable_wins_over_the_table(tmp_path: Path) -> None:
    app = server()._app
    found = settings(
        tmp_path,
        TABLE,
        MCPTRIO_LIMITS_CALL_TIMEOUT="40",
        MCPTRIO_HTTP_MAX_CALLS="8",
        MCPTRIO_HTTP_ALLOWED_HEADERS="x-two, x-three",
        MCPTRIO_TOOLS_EXPORT_ALL_TIMEOUT="6.5",
        MCPTRIO_TOOLS_PING_SERIAL="0",
        MCPTRIO_LIMITS_RUNNING="",
    )
    found.sections.apply(app)
    export, ping = app.tools.registry.entries.values()
    assert (app.limits.call_timeout, app.limits.running) == (40, 3)
    assert (export.timeout, export.limiter.total_tokens, ping.serial) == (6.5, 2, False)
    http = program_settings(found)
    assert (http["max_calls"], http["allowed_headers"]) == (8, ("x-two", "x-three"))


async def test_a_tool_keeps_the_timeout_that_a_variable_gives(autojump_clock: object, tmp_path: Path) -> None:
    shop = server()
    settings(tmp_path, MCPTRIO_TOOLS_EXPORT_ALL_TIMEOUT="2").sections.apply(shop._app)
    async with connect(shop) as client:
        assert await client.call_tool("export_all", {"seconds": 1}, into=str) == "exported"
        with pytest.raises(ToolError, match="2 s"):
            await client.call_tool("export_all", {"seconds": 3}, into=str)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("limits = 3", "[tool.mcptrio.limits] must be a table, got 3"),
        ("tools.ping = 3", "[tool.mcptrio.tools.ping] must be a table, got 3"),
        (
            "limits.call_timeuot = 3",
            "call_timeuot in [tool.mcptrio.limits] is not a setting; did you mean call_timeout?",
        ),
        ("limits.running = 1.5", "running in [tool.mcptrio.limits]: Expected `int`, got `float`, got 1.5"),
        ("limits.running = '4'", "running in [tool.mcptrio.limits]: Expected `int`, got `str`, got '4'"),
        ("limits.running = 0", "Limits.running must be positive, got 0"),
        ("http.port = 3", "port in [tool.mcptrio.http] is an option: write it in [tool.mcptrio]"),
        ("http.max_call = 3", "max_call in [tool.mcptrio.http] is not a setting; did you mean max_calls?"),
        ("tools.pign.rate = 3", "rate in [tool.mcptrio.tools.pign]: there is no tool 'pign'; did you mean ping?"),
        ("tools.ping.title = 'x'", "title in [tool.mcptrio.tools.ping] is not a setting"),
        ("tools.ping.limit = 0", "tool 'ping': limit is a whole number of at least 1, not 0"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises((Failure, DeclarationError)) as refused:
        found = settings(tmp_path, f"[tool.mcptrio]\n{text}\n")
        found.sections.apply(server()._app)
        program_settings(found)
    assert line in str(refused.value)


def test_variables_that_name_nothing_are_ignored_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = ("MCPTRIO_LIMITS_RUNING", "MCPTRIO_HTTP_PORT", "MCPTRIO_TOOLS_EXPORT_ALL_COLOUR")
    found = settings(tmp_path, **dict.fromkeys(names, "1"), MCPTRIO_LIMITS_RUNNING="2")
    with caplog.at_level(logging.WARNING):
        app = server()._app
        found.sections.apply(app)
        assert program_settings(found)["port"] == 8000
    assert app.limits.running == 2
    for name in names:
        assert f"{name} is ignored" in caplog.text


def test_a_variable_that_names_two_tools_is_refused(tmp_path: Path) -> None:
    shop = server()

    @shop.tool(name="export.all")
    async def export() -> str:
        return ""

    with pytest.raises(Failure, match=r"names 'export_all' and 'export\.all': use the table for them"):
        settings(tmp_path, MCPTRIO_TOOLS_EXPORT_ALL_LIMIT="1").sections.apply(shop._app)


def test_every_field_of_the_http_settings_is_reachable() -> None:
    """A new field is an option of the command line, or a value that the table can hold."""
    simple = {"int": 1, "float": 1.5, "bool": True, "str": "a", "tuple": ["a"]}
    for field in HttpConfig.__attrs_attrs__:  # type: ignore[attr-defined]
        if field.name in OPTIONS_OF_RUN:
            continue
        value = next(value for kind, value in simple.items() if str(field.type).startswith(kind))
        sections = Sections()
        sections.read_table("x", {"http": {field.name: value}})
        assert field.name in sections.http_settings()


def test_the_command_reads_them(tmp_path: Path) -> None:
    """One line on stderr names a setting that cannot be used, and the exit code is 2."""
    (tmp_path / "server.py").write_text("from mcptrio import Server\nserver = Server('x')\n")
    command = [sys.executable, "-m", "mcptrio", "run", str(tmp_path / "server.py")]
    (tmp_path / "pyproject.toml").write_text("[tool.mcptrio.tools.nothing]\ntimeout = 1\n")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "there is no tool 'nothing'" in done.stderr
