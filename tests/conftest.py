"""Settings of hypothesis: the same examples every time where CI is set, fresh ones on a developer's machine.

And the engine that a test's servers are started on.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.deadlines import FairClock
from tests.engines import ENGINES, VARIABLE
from tests.redis_server import RedisServer, running_server

# No deadline in either: a slow machine is no bug, and no test asserts speed.
settings.register_profile(
    "ci", derandomize=True, max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("thorough", max_examples=100, deadline=None)  # of `make coverage`
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to serve HTTP."""
    name: str = request.param
    monkeypatch.setenv(VARIABLE, name)
    return name


def pytest_configure() -> None:
    """Receive SIGINT even if a shell started this process in the background, where it is ignored.

    Collecting makes objects that stay: collecting garbage meanwhile takes seconds and finds little.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow tests on the second engine in the exhaustive part of the suite only (`tests/tiers.py`)."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("engine") == ENGINES[1] and item.get_closest_marker("slow"):
            item.add_marker("exhaustive")


@pytest.fixture
def fair_clock() -> FairClock:
    """The clock of a test that measures a promised deadline."""
    return FairClock()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server; each test takes a `url` of its own."""
    with running_server() as server:
        yield server


def pytest_collection_finish() -> None:
    """Keep the thousands of collected tests out of every garbage collection that follows."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Escape captured text with lone surrogates: a report of a parallel run must be valid UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much of the catalogue of bad inputs was tried, with the exact reply each time."""
    passed = [report.nodeid for report in terminalreporter.stats.get("passed", ()) if report.when == "call"]
    tried = [name.partition("[")[2] for name in passed if "bad_inputs/test_catalogue.py" in name and "[" in name]
    if tried:
        rows = {name.partition("-")[0] for name in tried}
        of_engine = [f"{sum(name.endswith(f'-{engine}]') for name in tried)} on {engine}" for engine in ENGINES]
        terminalreporter.write_line(f"bad inputs: {len(rows)} rows, {len(tried)} cases, {', '.join(of_engine)}")
