"""How hypothesis searches: the same examples every time where CI is set, fresh ones on a developer's machine.

And the lane that a test's servers are started on.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.lanes import LANES, VARIABLE

# No deadline in either: a slow machine is no bug, and no test asserts speed.
settings.register_profile(
    "ci", derandomize=True, max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", max_examples=100, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(params=LANES)
def lane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to serve HTTP."""
    name: str = request.param
    monkeypatch.setenv(VARIABLE, name)
    return name


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much of the catalogue of bad inputs was tried, with the exact reply each time."""
    passed = [report.nodeid for report in terminalreporter.stats.get("passed", ()) if report.when == "call"]
    tried = [name.partition("[")[2] for name in passed if "bad_inputs/test_catalogue.py" in name and "[" in name]
    if tried:
        rows = {name.partition("-")[0] for name in tried}
        of_lane = [f"{sum(name.endswith(f'-{lane}]') for name in tried)} on {lane}" for lane in LANES]
        terminalreporter.write_line(f"bad inputs: {len(rows)} rows, {len(tried)} cases, {', '.join(of_lane)}")
