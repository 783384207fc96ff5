"""The tables of equivalents for users of other libraries name what exists in mcptrio."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
from pathlib import Path

import attrs
import pytest

import mcptrio
from mcptrio import Client, Context, HttpConfig, Server, SessionHandle
from mcptrio.client import ClientConfig
from mcptrio.client.requests import How
from mcptrio.server.features.tool_declaration import ToolDefaults
from tests.docs.test_pages import understand
from tests.docs.test_support import OPTIONS

HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"
PAGES = ("from-fastmcp", "from-official-sdk")


@Server("a shop").prompt
def complain(item: str) -> str:
    return f"Complain about {item}."


OBJECTS = {"server": Server, "ctx": Context, "client": Client, "complain": complain, "ctx.session": SessionHandle}
HTTP = {field.name for field in attrs.fields(HttpConfig)} | {"auth", "store", "stop"}


def ours(page: str) -> list[str]:
    """Return the code in the second column of the page's tables."""
    lines = [line for line in (HOWTO / f"{page}.md").read_text().splitlines() if re.match(r"\| .*\|$", line)]
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ") + " | ")[1] for line in lines]
    return [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]


ROWS = [(page, code) for page in PAGES for code in ours(page)]


def keywords(call: str) -> set[str]:
    """Return the keywords that a call takes."""
    if call in OPTIONS:
        return set(OPTIONS[call].__annotations__)
    if call == "Server":
        return set(inspect.signature(Server).parameters) | set(ToolDefaults.__annotations__)
    if call in ("Server.run", "Server.serve_http", "Server.asgi"):
        return HTTP
    if call in ("connect", "connect_all"):
        return {field.name for field in attrs.fields(ClientConfig)} | set(inspect.signature(Client).parameters)
    owner, _, name = call.rpartition(".")
    thing = getattr(getattr(mcptrio, owner) if owner else mcptrio, name)
    found = set(inspect.signature(thing).parameters)
    return found | set(How.__annotations__) if "how" in found else found


def check(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                found = importlib.import_module(module)
                assert [name.name for name in names if not hasattr(found, name.name)] == []
            case ast.Attribute(value=owner, attr=name) if ast.unparse(owner) in OBJECTS:
                assert hasattr(OBJECTS[ast.unparse(owner)], name), f"there is no {ast.unparse(node)}"
            case ast.Call(func=func, keywords=given):
                first, _, rest = ast.unparse(func).partition(".")
                called = f"{first.replace('ctx', 'context').title()}.{rest}" if first in OBJECTS else first
                if first != "msgspec" and given:
                    assert {word.arg for word in given} <= keywords(called), f"{called} does not take all of these"


@pytest.mark.parametrize(("page", "code"), ROWS, ids=[f"{page}: {code}" for page, code in ROWS])
def test_every_equivalent_exists(page: str, code: str) -> None:
    if code.startswith("mcptrio "):
        understand(*shlex.split(code)[1:])
    else:
        check(ast.parse(f"{code}\ndef f(): pass" if code.startswith("@") else code))


@pytest.mark.parametrize("page", PAGES)
def test_every_row_has_an_equivalent(page: str) -> None:
    text = (HOWTO / f"{page}.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `") or re.match(r"\| \w.*`.*\|$", line)]
    assert len(rows) > 40
    assert len(ours(page)) >= len(rows)
