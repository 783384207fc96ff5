"""Every defect that a test names is listed in `defects.md`, and every listed one has a test and a mutant."""

from __future__ import annotations

import re
from pathlib import Path

from tests.advisories.mutants import MUTANTS

TESTS = Path(__file__).resolve().parent
LISTED = set(re.findall(r"^- ([SCDEU][0-9]+):", (TESTS / "defects.md").read_text(), re.MULTILINE))
MARKER = re.compile(r"mark\.defect\(([^)]*)\)")


def named() -> dict[str, set[str]]:
    """Return the files that name each defect."""
    found: dict[str, set[str]] = {}
    for file in TESTS.rglob("test_*.py"):
        for arguments in MARKER.findall(file.read_text()):
            for defect in re.findall(r'"([SCDEU][0-9]+)"', arguments):
                found.setdefault(defect, set()).add(str(file.relative_to(TESTS)))
    return found


def test_every_defect_that_a_test_names_is_listed() -> None:
    assert {defect: files for defect, files in named().items() if defect not in LISTED} == {}


def test_every_listed_defect_is_named_by_a_test() -> None:
    assert sorted(LISTED - set(named())) == []


def test_every_listed_defect_has_a_mutant() -> None:
    """A row of `advisories/rows_*.py` takes its guard away, and its test fails."""
    assert sorted(LISTED - {mutant.row for mutant in MUTANTS}) == []
