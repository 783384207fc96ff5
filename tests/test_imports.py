"""Starting stays light: what only some users need is imported when they use it."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
from types import ModuleType

import pytest

import mcptrio
import mcptrio.types
from tests.unmeasured import environment

HEAVY = ("httpx2", "cryptography", "joserfc", "hypercorn", "cyclopts", "rich", "pydantic", "cattrs", "jsonschema_rs")
HEAVY_STDLIB = ("asyncio", "email", "xml", "multiprocessing", "sqlite3")

# What a server that answers its first call over stdio has no use for.
NOT_YET = (
    "argparse",
    "mcptrio._bridge",
    "cattrs",
    *(() if sys.version_info >= (3, 14) else ("dataclasses",)),  # the module traceback of 3.14 imports it
    "difflib",
    "docstring_parser",
    "importlib.metadata",
    "json",
    "jsonschema_rs",
    "sqlite3",
    "mcptrio.client",
    "mcptrio.extensions",
    "mcptrio.transports.http_server",
    "mcptrio.stores.sqlite",
    "mcptrio._schema.elicit",
    "mcptrio._wire.objects.generated",
    "mcptrio._wire.headers",
    "mcptrio._uri.template",
    "mcptrio.types.completion",
    "mcptrio.types.content",
    "mcptrio.types.discovery",
    "mcptrio.types.elicitation",
    "mcptrio.types.helpers",
    "mcptrio.types.notifications",
    "mcptrio.types.prompts",
    "mcptrio.types.resources",
    "mcptrio.types.results",
    "mcptrio.types.roots",
    "mcptrio.types.round_trips",
    "mcptrio.types.sampling",
    "mcptrio.types.tools",
)


def modules_after(statement: str) -> set[str]:
    """Return the names in sys.modules of a fresh interpreter that ran one statement."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment())
    return set(json.loads(done.stdout))


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    return modules_after("from mcptrio import Context, Server")


@pytest.mark.parametrize("name", HEAVY)
def test_importing_the_server_does_not_import(name: str, loaded: set[str]) -> None:
    assert name not in loaded


def test_importing_the_server_adds_no_heavy_part_of_the_standard_library(loaded: set[str]) -> None:
    """Each of these would be felt by a host that starts a local server; what trio itself needs does not count."""
    assert not (loaded - modules_after("import trio")) & set(HEAVY_STDLIB)


def test_importing_the_package_alone_imports_neither_trio_nor_a_class_of_the_protocol() -> None:
    found = modules_after("import mcptrio, mcptrio.types")
    assert "mcptrio.types" in found
    assert not found & {"trio", "attrs", "msgspec", "mcptrio.server", "mcptrio.types.base"}


@pytest.mark.parametrize(
    "statement",
    [
        "from mcptrio import Client, Context, Server, connect",
        "from mcptrio import Server; Server('x').asgi()",
        "import mcptrio.transports.http_server.hypercorn.hosted, mcptrio.server.serve",
    ],
)
def test_the_core_imports_no_asyncio_unless_it_is_used(statement: str) -> None:
    found = modules_after(statement)
    assert not {"asyncio", "mcptrio._bridge", "mcptrio._bridge.guest"} & (found - modules_after("import trio"))


# -- a server that starts

SERVER = """
import sys
from mcptrio import Server

server = Server("small")

@server.tool
def modules(prefix: str = "") -> str:
    "The modules that are loaded."
    return " ".join(name for name in sorted(sys.modules) if name.startswith(prefix))

@server.resource("notes://today")
def today() -> str:
    "A resource that is never read."
    return "rain"

server.run()
"""
TALK = (
    {
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"roots": {"listChanged": True}, "sampling": {}},
            "clientInfo": {"name": "host", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
    {"id": 1, "method": "tools/call", "params": {"name": "modules", "arguments": {}}},
)


@pytest.fixture(scope="module")
def serving() -> set[str]:
    """The modules of a stdio server at its first call, as it says itself."""
    sent = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in TALK)
    command = [sys.executable, "-c", SERVER]
    done = subprocess.run(
        command, input=sent, capture_output=True, text=True, timeout=60, check=True, env=environment()
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    return set(answer["result"]["content"][0]["text"].split())


@pytest.mark.parametrize("name", NOT_YET)
def test_a_server_that_answers_its_first_call_has_not_imported(name: str, serving: set[str]) -> None:
    assert "mcptrio.transports.stdio.server" in serving
    assert name not in serving


# -- names that are imported when they are asked for


def defined_in(module: ModuleType) -> set[str]:
    """The public names that a module defines, as type checkers see them; imported names are not public."""
    found: set[str] = set()
    for node in ast.parse(inspect.getsource(module)).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found.update(target.id for target in targets if isinstance(target, ast.Name))
    return {name for name in found if not name.startswith("_")}


def imported_for_type_checkers(package: ModuleType) -> dict[str, str]:
    """The names that a package imports for type checkers, each with the module that it comes from."""
    imported: dict[str, str] = {}
    for node in ast.walk(ast.parse(inspect.getsource(package))):
        if isinstance(node, ast.ImportFrom) and node.module not in ("typing", "importlib", "mcptrio._hints"):
            module = str(node.module) if node.level == 0 else f"{package.__name__}.{node.module}"
            for alias in node.names:
                names = defined_in(importlib.import_module(module)) if alias.name == "*" else {alias.name}
                assert not names & imported.keys()
                imported.update(dict.fromkeys(names, module))
    return imported


@pytest.mark.parametrize("package", [mcptrio, mcptrio.types], ids=lambda package: package.__name__)
def test_every_name_is_found_where_type_checkers_look_for_it(package: ModuleType) -> None:
    imported = imported_for_type_checkers(package)
    assert set(imported) == set(package.__all__)
    for name, module in imported.items():
        assert getattr(package, name) is getattr(importlib.import_module(module), name), name
        assert name in dir(package)


@pytest.mark.parametrize("package", [mcptrio, mcptrio.types], ids=lambda package: package.__name__)
def test_a_name_that_does_not_exist_is_said_to_be_missing(package: ModuleType) -> None:
    assert not hasattr(package, "Toolbox")
    with pytest.raises(AttributeError, match="Toolbox"):
        package.Toolbox  # noqa: B018
