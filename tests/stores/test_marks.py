"""Marks: single-use entries with an expiry, which evict neither each other's kinds nor sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mcptrio.stores import Store
from mcptrio.stores.sqlite import SqliteStore

from .conftest import MakeStore


async def test_a_mark_is_used_once(store: Store) -> None:
    assert await store.marks.use("dpop", "proof", b"mine", 60) is None
    assert await store.marks.use("dpop", "proof", b"other", 60) == b"mine"
    assert await store.marks.get("dpop", "proof") == b"mine"


async def test_of_many_tasks_one_is_the_first_to_use_a_mark(store: Store) -> None:
    found: list[bytes | None] = []

    async def use() -> None:
        found.append(await store.marks.use("state", "one", b"used", 60))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(use)
    assert sorted(found, key=str) == sorted([None] + [b"used"] * 19, key=str)


async def test_the_final_value_replaces_the_first(store: Store) -> None:
    await store.marks.use("state", "one", b"process", 60)
    store.marks.done("state", "one", b"", 60)
    assert await store.marks.use("state", "one", b"process", 60) == b""


async def test_a_mark_that_was_dropped_is_free(store: Store) -> None:
    await store.marks.use("once", "one", b"claim", 60)
    store.marks.drop("once", "one")
    store.marks.drop("once", "unknown")
    assert await store.marks.use("once", "one", b"second", 60) is None


async def test_marks_of_different_kinds_do_not_share_names(store: Store) -> None:
    store.marks.done("once", "same", b"result", 60)
    assert await store.marks.get("state", "same") is None


async def test_an_expired_mark_is_free(make_clocked_store: MakeStore, mock_clock: MockClock) -> None:
    store = make_clocked_store()
    async with store.open():
        await store.marks.use("dpop", "proof", b"first", 60)
        store.marks.done("once", "result", b"1", 600)
        mock_clock.jump(61)
        assert await store.marks.get("dpop", "proof") is None
        assert await store.marks.get("once", "result") == b"1"
        assert await store.marks.use("dpop", "proof", b"second", 60) is None


async def test_the_janitor_removes_expired_marks(make_clocked_store: MakeStore, autojump_clock: MockClock) -> None:
    store = make_clocked_store()
    async with store.open():
        for number in range(50):
            store.marks.done("once", str(number % 10), b"1", number / 10 + 0.1)  # later ones live longer
        await trio.sleep(120)
        assert len(store.marks) == 0  # type: ignore[arg-type]  # both implementations have a length


@pytest.mark.defect("C08")
async def test_marks_evict_no_session_and_no_mark_of_another_kind(make_store: MakeStore) -> None:
    store = make_store(sessions=3, marks=5)
    async with store.open():
        store.sessions.put("alive", 0, b"record")
        await store.sessions.release("alive", 0, b"record", ttl=3600)  # one that is at home is never evicted
        store.marks.done("once", "result", b"1", 60)
        for number in range(50):
            await store.marks.use("result", str(number), b"", 60)
            store.marks.done("state", str(number), b"", 60)
        assert await store.sessions.claim("alive") is not None
        assert await store.marks.get("once", "result") == b"1"
        assert await store.marks.get("result", "44") is None
        assert [await store.marks.get("result", str(number)) for number in range(45, 50)] == [b""] * 5


async def test_the_bytes_of_marks_are_bounded(make_store: MakeStore) -> None:
    store = make_store(mark_bytes=10)
    async with store.open():
        for name in "abc":
            store.marks.done("once", name, b"12345", 60)
        assert [await store.marks.get("once", name) for name in "abc"] == [None, b"12345", b"12345"]


async def test_marks_survive_a_restart_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with (store := SqliteStore(path)).open():
        store.marks.done("once", "key", b"result", 1000)
        store.marks.done("once", "late", b"result", -1)
        await store.marks.use("state", "digest", b"process", 1000)
    async with (again := SqliteStore(path)).open():
        assert await again.marks.get("once", "key") == b"result"
        assert await again.marks.get("once", "late") is None
        assert await again.marks.use("state", "digest", b"other", 1000) == b"process"
