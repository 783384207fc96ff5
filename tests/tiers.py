"""The two parts of the suite: what `make test` runs, and the exhaustive rest (`make catalogues`).

`make test` represents each class of defect and takes a few minutes. Tests with the marker `exhaustive` are further
members of a class: every bad input, every peer, every status. A test with the marker `slow` that runs on both engines
is exhaustive on the second one (`tests/conftest.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

exhaustive = pytest.mark.exhaustive


def sample(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Return the values of a parametrization, of which `make test` runs only `kept`."""
    return [
        value if value in kept else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=exhaustive)
        for value in values
    ]
