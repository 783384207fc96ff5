"""`import mcptrio` stays light: what only some users need is imported when they use it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("httpx2", "cryptography", "joserfc", "hypercorn", "cyclopts", "rich", "pydantic")
HEAVY_STDLIB = ("asyncio", "email", "xml", "multiprocessing")


def modules_after(statement: str) -> set[str]:
    """The top-level names in sys.modules of a fresh interpreter that ran one statement."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    return modules_after("import mcptrio")


@pytest.mark.parametrize("name", HEAVY)
def test_importing_the_package_does_not_import(name: str, loaded: set[str]) -> None:
    assert name not in loaded


def test_importing_the_package_adds_no_heavy_part_of_the_standard_library(loaded: set[str]) -> None:
    """Each of these would be felt by a host that starts a local server; what trio itself needs does not count."""
    assert not (loaded - modules_after("import trio")) & set(HEAVY_STDLIB)
