"""The official SDKs' clients use every feature of the conformance fixture server, over HTTP and stdio."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import fixture
from tests.e2e.peer_envs import DRIVERS, Program, brought, drive, python_features, typescript_features


@pytest.fixture(params=DRIVERS)
def client(request: pytest.FixtureRequest) -> Program:
    return brought(DRIVERS[request.param])


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with fixture.served(tmp_path / "server.log") as url:
        yield url


@pytest.mark.slow
def test_every_feature_works_over_http(client: Program, url: str) -> None:
    assert drive(client, url) == dict.fromkeys([*python_features(), "close"], "ok")


@pytest.mark.slow
def test_every_feature_works_over_stdio(client: Program) -> None:
    assert drive(client, *fixture.stdio_command()) == dict.fromkeys([*python_features(), "close"], "ok")


def test_the_drivers_of_both_languages_check_the_same_features() -> None:
    """A feature that only one of the two lists names would go untested with half of the clients."""
    assert python_features() == typescript_features() != set()
