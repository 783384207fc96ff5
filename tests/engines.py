"""The two HTTP engines. Tests run on the default one; the shared suites run on both.

A module sets `pytestmark = both_engines` or a test takes the fixture `engine`; helpers that start servers call
`current()`. Suites that are too slow to run twice run partly on the second engine; `make fault-test` and
`make kill-test` run them whole.
"""

from __future__ import annotations

import os

import pytest

ENGINES = ("hypercorn", "direct")
VARIABLE = "MCPTRIO_ENGINE"

both_engines = pytest.mark.usefixtures("engine")


def current() -> str:
    """Return the engine that the servers of this test use."""
    return os.environ.get(VARIABLE, ENGINES[0])
