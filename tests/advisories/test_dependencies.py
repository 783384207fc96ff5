"""Requirements of the package: no release with a known advisory is allowed, and nothing unused is installed."""

from __future__ import annotations

import ast
import itertools
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FIRST_SAFE = {
    "joserfc": (1, 8),
    "cryptography": (50, 0, 2),
    "httpx2": (2, 12),
    "hiredis": (3, 4, 2),
    "opentelemetry-api": (1, 45, 2),
}
"""The first releases without a published advisory about them or about the C library in their wheels."""


def minimum(name: str) -> tuple[int, ...]:
    lines = [*PROJECT["dependencies"], *itertools.chain(*PROJECT["optional-dependencies"].values())]
    (found,) = [line for line in lines if re.match(rf"{name}\b", line)]
    floor = re.search(r">=([0-9.]+)", found)
    assert floor is not None, found
    return tuple(int(part) for part in floor[1].split("."))


@pytest.mark.defect("S16")
@pytest.mark.parametrize("name", FIRST_SAFE)
def test_the_minimum_version_has_no_known_advisory(name: str) -> None:
    assert minimum(name) >= FIRST_SAFE[name]
    installed = tuple(int(part) for part in metadata.version(name).split(".")[:3])
    assert installed >= FIRST_SAFE[name], "the tests ran with a release that the requirements refuse"


def test_every_requirement_is_imported() -> None:
    names = [re.split(r"[^\w-]", line)[0] for line in PROJECT["dependencies"]]
    imported = set()
    for file in (ROOT / "mcptrio").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    assert [name for name in names if name.replace("-", "_") not in imported] == []
