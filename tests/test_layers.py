"""The package keeps its own rules: imports between layers, protocol dates, bounds, sizes, names, and sleeping tests."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mcptrio"

# Each row may import the rows before it; neighbours in one row do not import each other.
LAYERS = (
    ("_struct", "errors", "_hints"),
    ("_settings",),
    ("types",),
    ("_schema", "_wire", "_uri"),
    ("_peer", "auth"),
    ("_eras",),
    ("telemetry", "_bridge"),
    ("_actors",),
    ("stores",),
    ("transports",),
    ("cluster",),
    ("server", "client"),
    ("extensions",),
    ("aio", "blocking", "http", "hypercorn", "jsonrpc", "codec"),
    ("testing", "observer"),
    ("_workers",),
    ("cli",),
    ("__main__",),  # `python -m mcptrio`: the command line by another name
)
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}
FRONT = RANK["extensions"]  # `mcptrio/__init__.py` gathers names up to here; what lies above may use it as users do
PURE = {name for name, rank in RANK.items() if rank < RANK["telemetry"]}
DATE = re.compile(r"\b(2024-11-05|2025-03-26|2025-06-18|2025-11-25|2026-07-28)\b")

Parsed = tuple[Path, ast.Module]


@cache
def parsed(folder: Path, containing: str = "") -> list[Parsed]:
    """Parse each file once, and not before a test needs it: every process of a parallel run imports this module."""
    texts = ((file, file.read_text()) for file in sorted(folder.rglob("*.py")))
    return [(file, ast.parse(text, str(file))) for file, text in texts if re.search(containing, text)]


def sources() -> list[Parsed]:
    return parsed(PACKAGE)


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
    assert {layer_of(file) for file, _ in sources()} - {None} <= set(RANK)


def test_a_layer_imports_only_what_lies_below_it() -> None:
    faults = []
    for file, tree in sources():
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
        for file, tree in sources()
        if layer_of(file) in PURE
        for line, name in imports_of(file, tree)
        if name.split(".")[0] in ("trio", "anyio", "asyncio", "outcome")
    ]
    assert faults == []


HTTP_SERVER = PACKAGE / "transports" / "http_server"
ENGINE_PACKAGES = {"hypercorn", "h11", "wsproto"}
# Which folders of the HTTP server each folder may import. `direct` imports `hypercorn` only inside a function, because
# most of its connections never need it.
HTTP_FOLDERS: dict[str, set[str]] = {
    "endpoint": set(),
    "listener": set(),
    "hypercorn": {"endpoint", "listener"},
    "direct": {"endpoint", "listener"},
}


def test_the_folders_of_the_http_server_keep_apart() -> None:
    """`endpoint` knows no socket, `listener` no MCP; an engine connects them, and only one knows Hypercorn."""
    faults = []
    for file, tree in sources():
        if not file.is_relative_to(HTTP_SERVER):
            continue
        folder = file.relative_to(HTTP_SERVER).parts[0]
        inside_functions = set(lines_of_functions(tree))
        for line, name in imports_of(file, tree):
            if name.split(".")[0] in ENGINE_PACKAGES and folder != "hypercorn":
                faults.append(f"{where(file, line)} imports {name}")
            other = name.removeprefix("mcptrio.transports.http_server.").split(".")[0]
            if other == name.split(".")[0] or other not in HTTP_FOLDERS or other == folder:
                continue
            later = (folder, other) == ("direct", "hypercorn") and line in inside_functions
            if other not in HTTP_FOLDERS.get(folder, set()) and not later:
                faults.append(f"{where(file, line)} ({folder}) imports {name} ({other})")
    assert faults == []


def lines_of_functions(tree: ast.Module) -> Iterator[int]:
    """Lines that are executed only when a function is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def only_narrows(test: ast.expr) -> bool:
    """Whether an assertion says no more than a type checker needs."""
    return ast.unparse(test).endswith(" is not None") or ast.unparse(test).startswith("isinstance(")


def test_no_check_of_the_http_server_is_an_assertion() -> None:
    """`python -O` removes assertions: what must hold is checked and raised."""
    faults = [
        where(file, node.lineno)
        for file, tree in sources()
        if file.is_relative_to(HTTP_SERVER)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and not only_narrows(node.test)
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
        for file, tree in sources()
        if layer_of(file) != "_eras"
        for text in texts_of(tree)
        if DATE.search(str(text.value))
    ]
    assert faults == []


def calls_of(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the dotted name of what is called, such as `trio.sleep`."""
    return ((dotted(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call))


def dotted(node: ast.expr) -> str:
    """`trio.sleep`; of `f(x).g` or `f[x].g` only `.g`. (`ast.unparse` of every call takes seconds.)"""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_every_channel_states_its_size() -> None:
    faults = [
        where(file, call.lineno)
        for file, tree in sources()
        for name, call in calls_of(tree)
        if "open_memory_channel" in name
        and (not call.args or any("inf" in ast.unparse(argument) for argument in call.args))
    ]
    assert faults == []


MAX_FILE = 400
MAX_FUNCTION = 60
REASON = re.compile(rf"^Longer than {MAX_FILE} lines because\b", re.MULTILINE)

# Known exceptions to the rules below. Only remove from them; an empty one goes.
LONG_FUNCTIONS: set[str] = set()
REPEATED_CLASSES = {
    "Ask",
    "Connection",
    "Fetcher",
    "GuardCaught",
    "Head",
    "Known",
    "Nonces",
    "Phase",
    "State",
    "Store",
    "Target",
    "_Readers",
    "_Turn",
}


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement to the last; the signature and the docstring are not counted."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1 if body else 0


def test_no_file_is_long_without_a_reason() -> None:
    found = {
        str(file.relative_to(ROOT))
        for file, tree in sources()
        if len(file.read_text().splitlines()) > MAX_FILE and not REASON.search(ast.get_docstring(tree) or "")
    }
    assert found == set()


def test_no_function_is_long() -> None:
    found = {
        f"{file.relative_to(ROOT)} {node.name}"
        for file, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length(node) > MAX_FUNCTION
    }
    assert found - LONG_FUNCTIONS == set()


def test_no_class_name_exists_twice() -> None:
    """One concept, one word: a name that is private or nested counts too."""
    found = defaultdict(set)
    for file, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(where(file, node.lineno))
    repeated = {name: sorted(places) for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in repeated.items() if name not in REPEATED_CLASSES} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f(): ...", 1),
        ('def f(\n    a,\n    b,\n):\n    """One line."""\n    a()\n    b()', 2),
        ('def f():\n    """Nothing else."""', 0),
        ("async def f():\n    if a:\n\n        b()", 3),
    ],
)
def test_signature_and_docstring_do_not_count_as_length(source: str, lines: int) -> None:
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    assert length(function) == lines


CLOCKS = {"autojump_clock", "mock_clock"}
REAL = {"e2e", "advisories", "bad_inputs", "faults", "cluster", "bridge"}  # real sockets, processes or loops: real time


def is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")


def test_no_test_sleeps_on_the_real_clock() -> None:
    """`trio.sleep(0)` is a checkpoint, a longer one needs a clock that jumps; only real sockets have real time."""
    faults = []
    for file, tree in parsed(ROOT / "tests", r"trio\.sleep\((?!0\))|time\.sleep\("):
        if "peers" in file.parts:
            continue
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
