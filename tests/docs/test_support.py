"""The names in `docs/support.md` exist, and so do their parameters; the interpreters are those that are tested."""

from __future__ import annotations

import inspect
import re
from functools import reduce
from pathlib import Path
from typing import Any

import attrs
import pytest

import mcptrio
from mcptrio import HttpConfig, aio, blocking, codec, errors, jsonrpc, stores, telemetry, types
from mcptrio.server.features.prompts import PromptOptions
from mcptrio.server.features.resources import ResourceOptions
from mcptrio.server.features.tool_declaration import ToolOptions

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "support.md").read_text()
MODULES = {
    "aio": aio,
    "blocking": blocking,
    "codec": codec,
    "errors": errors,
    "jsonrpc": jsonrpc,
    "stores": stores,
    "telemetry": telemetry,
    "types": types,
}
OPTIONS = {
    "Server.tool": ToolOptions,
    "Server.resource": ResourceOptions,
    "Server.prompt": PromptOptions,
}


def rows() -> list[tuple[str, str, str]]:
    """Return the rows of the tables by subject."""
    section = PAGE.partition("\n## Counterparts by subject\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| expected |")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert all(len(row) == 3 for row in cells), [row for row in cells if len(row) != 3]
    return [(row[0], row[1], row[2]) for row in cells]


def names() -> list[str]:
    return sorted({name for _, ours, _ in rows() for name in re.findall(r"`([^`]+)`", ours)})


def resolve(dotted: str) -> Any:
    first, *rest = dotted.split(".")
    assert first in MODULES or first in mcptrio.__all__, f"{first} is not public"
    start = MODULES[first] if first in MODULES else getattr(mcptrio, first)
    return reduce(getattr, rest, start)


def parameters(dotted: str) -> set[str]:
    if dotted in OPTIONS:
        return set(OPTIONS[dotted].__annotations__)
    found = set(inspect.signature(resolve(dotted)).parameters)
    return found | {field.name for field in attrs.fields(HttpConfig)} if dotted == "Server.serve_http" else found


@pytest.mark.parametrize("name", names())
def test_every_counterpart_exists(name: str) -> None:
    dotted, _, given = name.partition("(")
    thing = resolve(dotted)
    assert thing is not None
    missing = set(re.findall(r"(\w+)=", given)) - parameters(dotted) if given else set()
    assert missing == set()


def test_every_row_names_a_counterpart() -> None:
    assert len(rows()) > 70
    assert [expected for expected, ours, _ in rows() if not re.search(r"`[^`]+`", ours)] == []


def test_every_error_code_of_the_table_is_the_one_of_its_name() -> None:
    codes = [(expected, ours) for expected, ours, _ in rows() if re.match(r"-\d+ ", expected)]
    assert len(codes) == 8
    for expected, ours in codes:
        (name,) = re.findall(r"`errors\.(\w+)`", ours)
        assert getattr(errors, name) == int(expected.split()[0])


def test_the_interpreters_that_are_promised_are_those_of_the_workflow_and_the_metadata() -> None:
    (promised,) = re.findall(r"^\| Linux \|.*", PAGE, re.MULTILINE)
    versions = re.findall(r"3\.\d+", promised)
    assert versions == re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    (matrix,) = re.findall(r"^ +python: (\[.*\])$", workflow, re.MULTILINE)
    assert versions == re.findall(r"3\.\d+", matrix)
    assert re.findall(r"^\| Python .*", PAGE, re.MULTILINE) == []  # no row of its own with another promise
