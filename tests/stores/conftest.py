"""One fixture, three stores: what is promised of a store is tested on each.

The clock of a Redis server cannot be moved, so tests that move time use `make_clocked_store`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mcptrio.stores import MemoryStore, Store, StoreLimits
from mcptrio.stores.redis import RedisStore
from mcptrio.stores.sqlite import SqliteStore
from tests.redis_server import lengthen_deadlines

MakeStore = Callable[..., Store]


def maker(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    url = request.getfixturevalue("redis_server").url if kind == "redis" else ""

    def make(**limits: float) -> Store:
        chosen = StoreLimits(**limits)
        match kind:
            case "memory":
                return MemoryStore(chosen)
            case "sqlite":
                return SqliteStore(tmp_path / "store.db", limits=chosen)
            case _:
                return RedisStore.from_url(url, limits=chosen)

    return make


@pytest.fixture(params=["memory", "sqlite", "redis"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    return maker(request.param, request, tmp_path)


@pytest.fixture(params=["memory", "sqlite"])
def make_clocked_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    return maker(request.param, request, tmp_path)


@pytest.fixture
async def store(make_store: MakeStore) -> AsyncIterator[Store]:
    made = make_store()
    async with made.open():
        yield made


@pytest.fixture(autouse=True)
def deadlines_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    lengthen_deadlines(monkeypatch)


@pytest.fixture(autouse=True)
def recovery_is_announced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcptrio.stores._health.RECOVERED_AFTER", 0.0)
