"""The table of mutants names existing code, and a few of them are tried every time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mcptrio

from .mutants import MUTANTS, QUICK

PACKAGE = Path(mcptrio.__file__).parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.row} {mutant.guard}")
def test_the_guard_and_its_test_are_where_the_table_says(mutant: object) -> None:
    assert mutant.old in (PACKAGE / mutant.file).read_text()  # type: ignore[attr-defined]
    for file, old, _ in mutant.also:  # type: ignore[attr-defined]
        assert old in (PACKAGE / file).read_text()
    tests = (PACKAGE.parent / mutant.where).read_text()  # type: ignore[attr-defined]
    for name in mutant.test.split(" or "):  # type: ignore[attr-defined]
        assert f"def {name}(" in tests


@pytest.mark.slow
def test_a_test_notices_that_its_guard_is_gone() -> None:
    """A few of them; `make mutants` tries all."""
    command = [sys.executable, "-m", "tests.advisories.mutants", *QUICK[:2]]
    done = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "2 guards of 2 classes taken away, 2 noticed")
