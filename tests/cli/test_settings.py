"""The sources of the settings of `mcptrio run`, and the server that its target names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcptrio import Server
from mcptrio.cli.exit_codes import Failure
from mcptrio.cli.load import LoadError, load_module, load_server
from mcptrio.cli.settings import read_settings
from tests.unmeasured import environment

SERVER = 'from mcptrio import Server\nserver = Server("orders")\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "server.py").write_text(SERVER)
    return tmp_path


def table(folder: Path, text: str, name: str = "pyproject.toml") -> Path:
    file = folder / name
    file.write_text(f"[project]\nname = 'x'\n\n[tool.mcptrio]\n{text}\n")
    return file


def settings(folder: Path, *argv: str, **variables: str) -> Any:
    return read_settings([str(folder / "server.py"), *argv], variables)


# -- precedence


def test_the_command_line_wins_over_a_variable_and_a_variable_over_the_table(folder: Path) -> None:
    assert settings(folder).port == 8000
    table(folder, "port = 1")
    assert settings(folder).port == 1
    assert settings(folder, MCPTRIO_PORT="2").port == 2
    assert settings(folder, "--port", "3", MCPTRIO_PORT="2").port == 3


def test_a_named_file_replaces_the_one_next_to_the_server(folder: Path) -> None:
    table(folder, "port = 1")
    other = table(folder, "host = '::1'", "other.toml")
    for found in (settings(folder, "--config", str(other)), settings(folder, MCPTRIO_CONFIG=str(other))):
        assert (found.port, found.host) == (8000, "::1")


def test_a_module_takes_the_table_of_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(folder, "port = 1")
    monkeypatch.chdir(folder)
    assert read_settings(["-m", "server"], {}).port == 1


def test_every_kind_of_option_has_its_form(folder: Path) -> None:
    table(
        folder,
        'transport = "http"\njson-only = true\nallow_host = ["a", "b"]\ndrain-timeout = 2\nlog-level = "DEBUG"\n'
        'protocol = ["2025-06-18", "2025-11-25"]\nworkers = 3',
    )
    found = settings(folder)
    assert (found.transport, found.json_only, found.allow_host) == ("http", True, ["a", "b"])
    assert (found.drain_timeout, found.log_level, found.workers) == (2.0, "debug", 3)
    assert found.protocol == "2025-06-18,2025-11-25"
    found = settings(folder, MCPTRIO_JSON_ONLY="0", MCPTRIO_ALLOW_HOST="c, d", MCPTRIO_WORKERS="2")
    assert (found.json_only, found.allow_host, found.workers) == (False, ["c", "d"], 2)


def test_an_empty_variable_is_none(folder: Path) -> None:
    assert settings(folder, MCPTRIO_PORT="").port == 8000


def test_arguments_after_two_dashes_belong_to_the_server(folder: Path) -> None:
    found = settings(folder, "--port", "1", "--", "--port", "2", "--", "x")
    assert (found.port, found.rest) == (1, ("--port", "2", "--", "x"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("prot = 1", "prot in [tool.mcptrio] is not an option; did you mean port?"),
        ("zzz = 1", "zzz in [tool.mcptrio] is not an option; mcptrio run --help lists the options"),
        ("config = 'x'", "config in [tool.mcptrio] is not an option"),
        ("target = 'x'", "target in [tool.mcptrio] is not an option"),
        ("port = 'many'", "port in [tool.mcptrio] must be a number, got 'many'"),
        ("port = [1]", "port in [tool.mcptrio] must be a string or a number, got [1]"),
        ("port = true", "port in [tool.mcptrio] must be a string or a number, got True"),
        ("json-only = 'yes'", "json-only in [tool.mcptrio] must be true or false, got 'yes'"),
        ("allow-host = 'a'", "allow-host in [tool.mcptrio] must be a list of strings, got 'a'"),
        ("engine = 'fast'", "engine in [tool.mcptrio] must be one of hypercorn, direct, got 'fast'"),
        ("transport = 'htp'", "'htp'"),
        ("workers = 0", "'0' is not a number of workers"),
        ("port = ", "pyproject.toml is not valid TOML: "),
    ],
)
def test_a_table_that_cannot_be_used_is_named_with_its_file(folder: Path, text: str, line: str) -> None:
    file = table(folder, text)
    with pytest.raises(Failure) as refused:
        settings(folder)
    assert refused.value.code == 2
    assert str(file) in str(refused.value)
    assert line in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("MCPTRIO_PORT", "many", "MCPTRIO_PORT must be a number, got 'many'"),
        ("MCPTRIO_JSON_ONLY", "perhaps", "MCPTRIO_JSON_ONLY must be 1 or 0, got 'perhaps'"),
        ("MCPTRIO_ENGINE", "fast", "MCPTRIO_ENGINE must be one of hypercorn, direct, got 'fast'"),
        ("MCPTRIO_CONFIG", "nowhere.toml", "--config nowhere.toml: No such file or directory"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(folder: Path, name: str, value: str, line: str) -> None:
    with pytest.raises(Failure) as refused:
        settings(folder, **{name: value})
    assert str(refused.value) == line


def test_a_named_file_needs_the_table_and_any_other_file_does_not(folder: Path) -> None:
    other = folder / "pyproject.toml"
    other.write_text("[project]\nname = 'mcptrio-server'\n")
    assert settings(folder).port == 8000
    with pytest.raises(Failure, match=r"there is no table \[tool.mcptrio\] in this file"):
        settings(folder, "--config", str(other))
    other.write_text("tool.mcptrio = 1")
    with pytest.raises(Failure, match=r"write \[tool.mcptrio\]"):
        settings(folder)


# -- targets


@pytest.fixture
def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with modules; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["mcptrio"])
    yield folder
    own = [name for name, module in sys.modules.items() if str(folder) in str(getattr(module, "__file__", ""))]
    for name in [*own, "factories"]:
        sys.modules.pop(name, None)


def test_a_module_is_imported_from_the_working_directory(on_path: Path) -> None:
    package = on_path / "shop_for_tests"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "api.py").write_text(
        f"from . import parts\n{SERVER}server.word = parts.WORD\n".replace("server.word", "word")
    )
    (package / "parts.py").write_text("WORD = 'x'\n")
    assert load_module("shop_for_tests.api").info.name == "orders"
    assert load_module("shop_for_tests.api:server").info.name == "orders"
    assert sys.argv[0] == str(package / "api.py")


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("nowhere_at_all", "-m nowhere_at_all: there is no such module in the working directory or among installed"),
        ("nowhere_at_all.deeper", "-m nowhere_at_all.deeper: No module named 'nowhere_at_all'"),
        ("failing_for_tests", "failing_for_tests.py:2: ZeroDivisionError: division by zero"),
        ("failing_for_tests:x", "failing_for_tests.py:2: ZeroDivisionError: division by zero"),
        (".relative", "-m .relative: "),
    ],
)
def test_a_module_that_cannot_be_imported_is_explained(on_path: Path, target: str, line: str) -> None:
    (on_path / "failing_for_tests.py").write_text("#\n1 / 0\n")
    with pytest.raises(LoadError) as refused:
        load_module(target)
    assert line in str(refused.value)


@pytest.mark.parametrize("future", ["", "from __future__ import annotations"], ids=["plain", "future"])
@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("ctx: Context", "`from mcptrio import Context`"),
        ("picture: Image", "`from mcptrio import Image`"),
        ("caller: Principal", "`from mcptrio.auth.server import Principal`"),
        ("block: TextContent", "`from mcptrio.types import TextContent`"),
    ],
)
def test_a_forgotten_import_is_named(on_path: Path, future: str, body: str, line: str) -> None:
    text = f"{future}\nfrom mcptrio import Server\nserver = Server('x')\n@server.tool\ndef f({body}) -> str: ...\n"
    (on_path / "forgetful.py").write_text(text)
    with pytest.raises(LoadError, match=r"forgetful\.py:[45]: ") as refused:
        load_server("forgetful.py")
    assert line in str(refused.value)


@pytest.mark.parametrize("name", ["Contextual", "contexts", "Any", "TYPE_CHECKING", "Final", "_Context"])
def test_an_unknown_name_is_no_forgotten_import(on_path: Path, name: str) -> None:
    (on_path / "forgetful.py").write_text(f"from mcptrio import Server\nserver = Server('x')\nprint({name})\n")
    with pytest.raises(LoadError) as refused:
        load_server("forgetful.py")
    assert str(refused.value) == f"forgetful.py:3: NameError: name '{name}' is not defined"


FACTORIES = """
import sys
from mcptrio import Server
calls = []

def make(name="made"):
    calls.append(name)
    return Server(f"{name} {len(calls)}")

def needs(database): ...
def nothing(): ...
async def later(): ...
def breaks(): return 1 / 0
def serves(): Server("s").run()
number = 7
"""


def test_a_factory_is_called_once(on_path: Path) -> None:
    (on_path / "factories.py").write_text(FACTORIES)
    server = load_server("factories.py:make")
    assert isinstance(server, Server)
    assert server.info.name == "made 1"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("needs", "factories.py:needs needs arguments (database); a function that returns a server takes none"),
        ("nothing", "factories.py:nothing() returned NoneType, not a Server"),
        ("later", "factories.py:later is async; a function that returns a server is a plain one"),
        ("breaks", "factories.py:13: ZeroDivisionError: division by zero"),
        ("serves", "the file calls run() while it is loaded"),
        ("number", "number is neither a Server nor a function that returns one; servers in this file: none"),
        ("absent", "absent does not exist; servers in this file: none"),
    ],
)
def test_a_name_that_makes_no_server_is_explained(on_path: Path, name: str, line: str) -> None:
    (on_path / "factories.py").write_text(FACTORIES)
    with pytest.raises(LoadError) as refused:
        load_server(f"factories.py:{name}")
    assert line in str(refused.value)


def test_without_a_name_no_function_is_called(on_path: Path) -> None:
    (on_path / "factories.py").write_text(FACTORIES)
    with pytest.raises(LoadError, match=r"name a function that returns one: factories\.py:NAME"):
        load_server("factories.py")


# -- the whole command


PRINTS = """
import os, sys
from mcptrio import Server
print(sys.argv[1:], os.getcwd() in sys.path, file=sys.stderr)
server = Server("orders")
"""


@pytest.mark.parametrize(
    ("target", "working_directory"),
    [(("prints.py",), False), (("-m", "prints"), True)],
)
def test_the_server_finds_its_own_arguments_and_the_right_path(
    tmp_path: Path, target: tuple[str, ...], working_directory: bool
) -> None:
    """`run FILE` puts the folder of the file on `sys.path`, as `python FILE` does; `run -m` the working directory."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside if not working_directory else tmp_path).joinpath("prints.py").write_text(PRINTS)
    where = (str(inside / target[0]),) if not working_directory else target
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mcptrio", "run", *where, "--", "--port", "x"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"['--port', 'x'] {working_directory}\n" in done.stderr


def test_reading_the_settings_imports_no_server(folder: Path) -> None:
    """The server is imported later, while the garbage collector is off: hosts wait for the first answer."""
    program = (
        "import sys; from mcptrio.cli.settings import read_settings; "
        f"read_settings([{str(folder / 'server.py')!r}]); print('trio' in sys.modules, 'tomllib' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment())
    assert done.stdout == "False False\n"
