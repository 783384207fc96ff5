"""The package keeps its own rules: who imports whom, where a date may stand, what is bounded, when tests may sleep."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mcptrio"

# Each row may import the rows before it; neighbours in one row do not import each other.
LAYERS = (
    ("_struct", "errors"),
    ("types",),
    ("_schema", "_wire"),
    ("_peer", "auth"),
    ("_eras",),
    ("telemetry",),
    ("_actors",),
    ("stores",),
    ("transports",),
    ("server", "client"),
    ("extensions",),
    ("testing", "observer"),
    ("cli",),
    ("__main__",),  # `python -m mcptrio`: the command line by another name
)
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}
FRONT = RANK["extensions"]  # `mcptrio/__init__.py` gathers names up to here; what lies above may use it as users do
PURE = {name for name, rank in RANK.items() if rank < RANK["telemetry"]}
DATE = re.compile(r"\b(2024-11-05|2025-03-26|2025-06-18|2025-11-25|2026-07-28)\b")

Parsed = tuple[Path, ast.Module]


def parsed(folder: Path) -> list[Parsed]:
    return [(file, ast.parse(file.read_text(), str(file))) for file in sorted(folder.rglob("*.py"))]


SOURCES = parsed(PACKAGE)
TESTS = [(file, tree) for file, tree in parsed(ROOT / "tests") if "peers" not in file.parts]


def layer_of(file: Path) -> str | None:
    """`_wire` for mcptrio/_wire/lines.py, `errors` for mcptrio/errors.py, None for mcptrio/__init__.py."""
    first = file.relative_to(PACKAGE).parts[0]
    return None if first == "__init__.py" else first.removesuffix(".py")


def imports_of(file: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything a file imports, also inside functions and `if TYPE_CHECKING`."""
    package = file.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            # `from mcptrio import errors` names the layer only in the alias
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def where(file: Path, line: int) -> str:
    return f"{file.relative_to(ROOT)}:{line}"


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer_of(file) for file, _ in SOURCES} - {None} <= set(RANK)


def test_a_layer_imports_only_what_lies_below_it() -> None:
    faults = []
    for file, tree in SOURCES:
        own = layer_of(file)
        for line, name in imports_of(file, tree):
            if own is None or not name.startswith("mcptrio."):
                continue
            other = name.split(".")[1]
            if other not in RANK and RANK[own] <= FRONT:
                faults.append(f"{where(file, line)} imports from the package's own front, `{name}`")
            elif other in RANK and other != own and RANK[other] >= RANK[own]:
                faults.append(f"{where(file, line)} ({own}) imports {name} ({other})")
    assert faults == []


def test_nothing_below_telemetry_imports_trio() -> None:
    """The protocol is a value machine: it has no event loop to wait in."""
    faults = [
        where(file, line)
        for file, tree in SOURCES
        if layer_of(file) in PURE
        for line, name in imports_of(file, tree)
        if name.split(".")[0] in ("trio", "anyio", "asyncio", "outcome")
    ]
    assert faults == []


def texts_of(tree: ast.Module) -> Iterator[ast.Constant]:
    """String literals that are values: docstrings and other bare strings are left out."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node


def test_a_protocol_date_is_spelled_only_in_the_eras() -> None:
    faults = [
        f"{where(file, text.lineno)}: {text.value!r}"
        for file, tree in SOURCES
        if layer_of(file) != "_eras"
        for text in texts_of(tree)
        if DATE.search(str(text.value))
    ]
    assert faults == []


def calls_of(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the dotted name of what is called, such as `trio.sleep`."""
    return ((ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call))


def test_every_channel_states_its_size() -> None:
    faults = [
        where(file, call.lineno)
        for file, tree in SOURCES
        for name, call in calls_of(tree)
        if "open_memory_channel" in name
        and (not call.args or any("inf" in ast.unparse(argument) for argument in call.args))
    ]
    assert faults == []


CLOCKS = {"autojump_clock", "mock_clock"}
REAL = {"e2e", "advisories", "bad_inputs", "faults"}  # where sockets and processes are real, and so is time


def is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")


def test_no_test_sleeps_on_the_real_clock() -> None:
    """`trio.sleep(0)` is a checkpoint, a longer one needs a clock that jumps; only real sockets have real time."""
    faults = []
    for file, tree in TESTS:
        marks = [call for name, call in calls_of(tree) if name == "pytest.mark.usefixtures"]
        whole_file = CLOCKS & {str(one.value) for call in marks for one in call.args if isinstance(one, ast.Constant)}
        for test in filter(is_test, ast.walk(tree)):
            assert isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef)
            virtual = whole_file or CLOCKS & {one.arg for one in test.args.args}
            for name, call in calls_of(test):
                waits = name == "trio.sleep" and ast.unparse(call) != "trio.sleep(0)" and not virtual
                if name == "time.sleep" or (waits and not REAL & set(file.parts)):
                    faults.append(where(file, call.lineno))
    assert faults == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import trio", ["trio"]),
        ("from mcptrio import errors", ["mcptrio.errors"]),
        ("from . import lines", ["mcptrio._wire.lines"]),
        ("from ..types import Tool", ["mcptrio.types.Tool"]),
        ("def f():\n    from mcptrio.server import Server", ["mcptrio.server.Server"]),
    ],
)
def test_imports_are_found_in_every_form(source: str, names: list[str]) -> None:
    """The rules above are worth what this reading of imports is worth."""
    file = PACKAGE / "_wire" / "example.py"
    assert [name for _, name in imports_of(file, ast.parse(source))] == names
