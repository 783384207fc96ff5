"""Cases of the catalogue under the name of a published class of vulnerabilities."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bad_inputs.catalogue import Case
from tests.bad_inputs.runner import CASES

DATES = ("2025-11-25", "2026-07-28", "any")


def cases(*wanted: str, dates: tuple[str, ...] = DATES) -> Any:
    """Parametrizes a test over rows ("H03") or single cases ("J10: method")."""
    found = [case for case in CASES if case.date in dates and _is_wanted(case, wanted)]
    if not found:
        raise ValueError(f"the catalogue has no {wanted}")
    return pytest.mark.parametrize("case", found, ids=lambda case: case.id)


def _is_wanted(case: Case, wanted: tuple[str, ...]) -> bool:
    return any(name in (case.row, f"{case.row}: {case.name}") for name in wanted)
