"""One fixture, two stores: what is promised of a store is tested on each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from mcptrio.stores import MemoryStore, Store, StoreLimits
from mcptrio.stores.sqlite import SqliteStore
from tests.redis_server import RedisServer, running_server

MakeStore = Callable[..., Store]


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    def make(**limits: float) -> Store:
        chosen = StoreLimits(**limits)
        return MemoryStore(chosen) if request.param == "memory" else SqliteStore(tmp_path / "store.db", limits=chosen)

    return make


@pytest.fixture
async def store(make_store: MakeStore) -> AsyncIterator[Store]:
    made = make_store()
    async with made.open():
        yield made


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with running_server() as server:
        yield server


@pytest.fixture(autouse=True)
def recovery_is_announced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcptrio.stores._health.RECOVERED_AFTER", 0.0)
