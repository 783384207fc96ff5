"""Owners share the tables of a store: when one is full, the owner that has most loses its own oldest entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcptrio.stores import Store, StoreLimits
from mcptrio.stores.base import StreamKey, UnknownCursor
from mcptrio.stores.sqlite import SqliteStore

from .conftest import MakeStore

pytestmark = pytest.mark.defect("S7")


async def put(store: Store, table: str, name: str, owner: str, data: bytes = b"x") -> None:
    if table == "tasks":
        store.tasks.put(name, data, 60, owner=owner)
    elif table == "done":
        store.marks.done("once", name, data, 60, owner=owner)
    else:
        await store.marks.use("once", name, data, 60, owner=owner)


async def kept(store: Store, table: str, names: str) -> str:
    found = ""
    for name in names:
        if table == "tasks":
            record = await store.tasks.get(name)
        else:
            record = await store.marks.get("once", name)
        found += "" if record is None else name
    return found


def fill(store: Store, session: str, owner: str, size: int, *, last: bool) -> None:
    key = StreamKey(session, "1")
    store.begin(key, owner=owner)
    store.append(key, b"x" * size, last=last)


def streams(store: Store, sessions: str) -> str:
    found = ""
    for session in sessions:
        try:
            store.follow(StreamKey(session, "1"))
        except UnknownCursor:
            continue
        found += session
    return found


@pytest.mark.parametrize("last", [True, False], ids=["finished", "running"])
async def test_one_owner_cannot_push_the_events_of_others_out(make_store: MakeStore, last: bool) -> None:
    store = make_store(total_bytes=1000, stream_bytes=1000)
    async with store.open():
        fill(store, "h", "honest", 100, last=True)
        for session in "abcdefgh"[:7]:
            fill(store, session, "greedy", 200, last=last)
            await store.flush()
        assert streams(store, "h") == "h"
        assert streams(store, "abcdefg") in ("defg", "efg")


async def test_one_owner_cannot_push_the_streams_of_others_out(make_store: MakeStore) -> None:
    store = make_store(streams=4)
    async with store.open():
        fill(store, "h", "honest", 1, last=True)
        for session in "abcdef":
            fill(store, session, "greedy", 1, last=True)
        await store.flush()
        assert streams(store, "habcdef") == "hdef"


async def test_without_an_owner_each_session_is_one(make_store: MakeStore) -> None:
    store = make_store(streams=4)
    async with store.open():
        for session, stream in ("a1", "b1", "b2", "b3", "c1"):
            store.append(StreamKey(session, stream), b"x", last=True)
        await store.flush()
        assert streams(store, "abc") == "ac"


TABLES = ["tasks", "done", "use"]


@pytest.mark.parametrize("table", TABLES)
async def test_one_owner_cannot_push_the_entries_of_others_out(make_store: MakeStore, table: str) -> None:
    store = make_store(tasks=4, marks=4)
    async with store.open():
        await put(store, table, "h", "honest")
        for name in "abcdef":
            await put(store, table, name, "greedy")
        assert await kept(store, table, "habcdef") == "hdef"
        await put(store, table, "i", "honest")
        assert await kept(store, table, "habcdefi") == "hefi"


@pytest.mark.parametrize("table", TABLES)
async def test_owners_are_known_after_a_restart(tmp_path: Path, table: str) -> None:
    limits = StoreLimits(tasks=4, marks=4)
    async with (store := SqliteStore(tmp_path / "store.db", limits=limits)).open():
        await put(store, table, "h", "honest")
        for name in "xyz":
            await put(store, table, name, "greedy")
    async with (again := SqliteStore(tmp_path / "store.db", limits=limits)).open():
        for name in "abcd":
            await put(again, table, name, "greedy")
        assert await kept(again, table, "habcdxyz") == "hbcd"


@pytest.mark.parametrize("table", TABLES)
async def test_a_file_with_more_than_there_is_room_for_now_is_cut(tmp_path: Path, table: str) -> None:
    async with (store := SqliteStore(tmp_path / "store.db")).open():
        await put(store, table, "h", "honest")
        for name in "wxyz":
            await put(store, table, name, "greedy")
    limits = StoreLimits(tasks=2, marks=2)
    async with (again := SqliteStore(tmp_path / "store.db", limits=limits)).open():
        assert await kept(again, table, "hwxyz") == "hz"


@pytest.mark.parametrize("table", ["tasks", "done", "use"])
async def test_an_owner_is_large_by_its_bytes_too(make_store: MakeStore, table: str) -> None:
    store = make_store(tasks=100, task_bytes=1000, marks=100, mark_bytes=1000)
    async with store.open():
        for name in "hij":
            await put(store, table, name, "honest", b"x" * 10)
        for name in "abc":
            await put(store, table, name, "greedy", b"x" * 450)
        assert await kept(store, table, "hijabc") == "hijbc"
