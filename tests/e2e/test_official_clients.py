"""The official SDKs' clients use every feature of the conformance fixture server, over HTTP and stdio."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import fixture
from tests.e2e.peer_envs import (
    DRIVERS,
    ONLY_STATEFUL,
    STATELESS,
    Program,
    brought,
    drive,
    python_features,
    stateless,
    typescript_features,
)
from tests.redis_server import need_program
from tests.tiers import sample

NEWEST = "python-mcp-2"


@pytest.fixture(params=sample(DRIVERS, NEWEST))
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


@pytest.mark.exhaustive
@pytest.mark.parametrize("host", fixture.ASYNCIO_HOSTS)
def test_every_feature_works_under_an_asyncio_server(client: Program, host: str, tmp_path: Path) -> None:
    with fixture.served(tmp_path / "server.log", host) as url:
        assert drive(client, url) == dict.fromkeys([*python_features(), "close"], "ok")


@pytest.mark.exhaustive
def test_every_feature_works_with_two_workers(client: Program, tmp_path: Path) -> None:
    """Each request goes to the other worker, as behind a load balancer without sticky routing."""
    need_program()
    with fixture.served(tmp_path / "server.log", fixture.WORKERS) as url:
        assert drive(client, url) == dict.fromkeys([*python_features(), "close"], "ok")


@pytest.fixture(params=sample(STATELESS, NEWEST))
def modern_client(request: pytest.FixtureRequest) -> Program:
    return stateless(brought(DRIVERS[request.param]))


WITHOUT_SESSIONS = dict.fromkeys([*sorted(python_features() - set(ONLY_STATEFUL)), "close"], "ok")


@pytest.mark.slow
def test_every_feature_works_over_http_without_sessions(modern_client: Program, url: str) -> None:
    assert drive(modern_client, url) == WITHOUT_SESSIONS


@pytest.mark.exhaustive
@pytest.mark.parametrize("host", fixture.ASYNCIO_HOSTS)
def test_every_feature_works_under_an_asyncio_server_without_sessions(
    modern_client: Program, host: str, tmp_path: Path
) -> None:
    with fixture.served(tmp_path / "server.log", host) as url:
        assert drive(modern_client, url) == WITHOUT_SESSIONS


@pytest.mark.exhaustive
def test_every_feature_works_with_two_workers_without_sessions(
    modern_client: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request goes to the other worker; the client reads a text there that it has changed here."""
    need_program()
    text = tmp_path / "watched.txt"
    monkeypatch.setenv("WATCHED_TEXT", str(text))
    with fixture.served_by_workers(tmp_path / "server.log", server=fixture.SHARED) as url:
        assert drive(modern_client, url) == WITHOUT_SESSIONS
    assert text.read_text() == "second"


@pytest.mark.slow
def test_every_feature_works_over_stdio_without_sessions(modern_client: Program) -> None:
    assert drive(modern_client, *fixture.stdio_command()) == WITHOUT_SESSIONS


def test_the_drivers_of_both_languages_check_the_same_features() -> None:
    """A feature that only one of the two lists names would go untested with half of the clients."""
    assert python_features() == typescript_features() != set()
