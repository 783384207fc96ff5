"""Tasks in a store: found by their ids, until their time is over, also after a restart where the store is durable."""

from __future__ import annotations

from pathlib import Path

import trio
from trio.testing import MockClock

from mcptrio.stores import Store
from mcptrio.stores.sqlite import SqliteStore

from .conftest import MakeStore


async def test_a_task_is_found_by_its_id(store: Store) -> None:
    store.tasks.put("one", b"first")
    store.tasks.put("two", b"second")
    assert await store.tasks.get("one") == b"first"
    assert await store.tasks.get("three") is None


async def test_a_later_record_replaces_the_earlier_one(store: Store) -> None:
    store.tasks.put("one", b"working")
    await store.flush()
    store.tasks.put("one", b"completed")
    assert await store.tasks.get("one") == b"completed"


async def test_a_dropped_task_is_unknown(store: Store) -> None:
    store.tasks.put("one", b"first")
    store.tasks.drop("one")
    store.tasks.drop("never there")
    assert await store.tasks.get("one") is None


async def test_a_task_is_gone_when_its_time_is_over(make_clocked_store: MakeStore, mock_clock: MockClock) -> None:
    store = make_clocked_store()
    async with store.open():
        store.tasks.put("short", b"1", ttl=10)
        store.tasks.put("long", b"2", ttl=1000)
        store.tasks.put("endless", b"3")
        mock_clock.jump(11)
        assert await store.tasks.get("short") is None
        assert await store.tasks.get("long") == b"2"
        mock_clock.jump(100_000)
        assert await store.tasks.get("long") is None
        assert await store.tasks.get("endless") == b"3"


async def test_there_is_room_for_so_many_tasks_and_the_longest_untouched_goes_first(make_store: MakeStore) -> None:
    store = make_store(tasks=2)
    async with store.open():
        store.tasks.put("a", b"a")
        store.tasks.put("b", b"b")
        store.tasks.put("a", b"a again")
        store.tasks.put("c", b"c")
        assert await store.tasks.get("b") is None
        assert await store.tasks.get("a") == b"a again"
        assert await store.tasks.get("c") == b"c"


async def test_there_is_room_for_so_many_bytes_of_tasks(make_store: MakeStore) -> None:
    store = make_store(task_bytes=10)
    async with store.open():
        store.tasks.put("a", b"12345")
        store.tasks.put("b", b"12345")
        store.tasks.put("c", b"12345")
        assert [await store.tasks.get(task) for task in "abc"] == [None, b"12345", b"12345"]
        store.tasks.put("d", b"x" * 50)  # larger than all the room: kept alone
        assert [await store.tasks.get(task) for task in "abcd"] == [None, None, None, b"x" * 50]


async def test_expired_tasks_make_room_first(make_clocked_store: MakeStore, mock_clock: MockClock) -> None:
    store = make_clocked_store(tasks=2)
    async with store.open():
        store.tasks.put("old", b"1")
        store.tasks.put("short", b"2", ttl=1)
        mock_clock.jump(2)
        store.tasks.put("new", b"3")
        assert await store.tasks.get("old") == b"1"


async def test_tasks_survive_a_restart_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    async with store.open():
        store.tasks.put("kept", b"result", ttl=1000)
        store.tasks.put("endless", b"too")
        store.tasks.put("dropped", b"gone")
        await store.flush()
        store.tasks.drop("dropped")
    again = SqliteStore(path)
    async with again.open():
        assert await again.tasks.get("kept") == b"result"
        assert await again.tasks.get("endless") == b"too"
        assert await again.tasks.get("dropped") is None


async def test_a_task_whose_time_went_by_while_nothing_ran_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    async with store.open():
        store.tasks.put("late", b"result", ttl=-1)
    again = SqliteStore(path)
    async with again.open():
        assert await again.tasks.get("late") is None
        assert len(again.tasks) == 0


async def test_the_janitor_removes_tasks_whose_ttl_is_over(
    make_clocked_store: MakeStore, autojump_clock: MockClock
) -> None:
    store = make_clocked_store()
    async with store.open():
        store.tasks.put("short", b"1", ttl=5)
        await trio.sleep(120)
        assert len(store.tasks) == 0  # type: ignore[arg-type]  # both implementations have a length
