"""The two ways to serve HTTP. Whatever is promised is promised on both, so tests of promises run on both.

A module says `pytestmark = both_lanes`, a test asks for the fixture `lane`; the helpers that start servers then ask
`current()`. What costs too much twice runs on the second lane in part; `make fault-test` and `make kill-test` run all.
"""

from __future__ import annotations

import os

import pytest

LANES = ("hypercorn", "express")
VARIABLE = "MCPTRIO_LANE"

both_lanes = pytest.mark.usefixtures("lane")


def current() -> str:
    """The lane that servers of this test are to be started on."""
    return os.environ.get(VARIABLE, LANES[0])
