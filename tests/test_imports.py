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

HEAVY = ("httpx2", "cryptography", "joserfc", "hypercorn", "cyclopts", "rich", "pydantic", "cattrs", "jsonschema_rs")
HEAVY_STDLIB = ("asyncio", "email", "xml", "multiprocessing", "sqlite3")

# What a server that answers its first call over stdio has no use for.
NOT_YET = (
    "argparse",
    "cattrs",
    "dataclasses",
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
    "mcptrio._wire.generated",
    "mcptrio._wire.headers",
    "mcptrio._wire.uri_template",
    "mcptrio.types.annotations",
    "mcptrio.types.completion",
    "mcptrio.types.content",
    "mcptrio.types.helpers",
    "mcptrio.types.pages",
    "mcptrio.types.prompts",
    "mcptrio.types.resources",
    "mcptrio.types.result",
    "mcptrio.types.sampling",
    "mcptrio.types.tools",
)


def modules_after(statement: str) -> set[str]:
    """What is in sys.modules of a fresh interpreter that ran one statement."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
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
    "A resource that nobody reads."
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
    done = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=60, check=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    return set(answer["result"]["content"][0]["text"].split())


@pytest.mark.parametrize("name", NOT_YET)
def test_a_server_that_answers_its_first_call_has_not_imported(name: str, serving: set[str]) -> None:
    assert "mcptrio.transports.stdio" in serving
    assert name not in serving


# -- names that are imported when they are asked for


@pytest.mark.parametrize("package", [mcptrio, mcptrio.types], ids=lambda package: package.__name__)
def test_every_name_is_found_where_type_checkers_are_told_that_it_is(package: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(package))
    told = {
        alias.name: node.module if node.level == 0 else f"{package.__name__}.{node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module not in ("typing", "importlib")
        for alias in node.names
    }
    assert set(told) == set(package.__all__)
    for name, module in told.items():
        assert getattr(package, name) is getattr(importlib.import_module(str(module)), name), name
        assert name in dir(package)


@pytest.mark.parametrize("package", [mcptrio, mcptrio.types], ids=lambda package: package.__name__)
def test_a_name_that_does_not_exist_is_said_to_be_missing(package: ModuleType) -> None:
    assert not hasattr(package, "Toolbox")
    with pytest.raises(AttributeError, match="Toolbox"):
        package.Toolbox  # noqa: B018
