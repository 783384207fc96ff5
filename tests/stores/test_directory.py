"""Rules of every session directory: epochs, claims, releases and bounds."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

import pytest

from mcptrio.stores import Claimed, Store, StoreLimits, StreamKey, UnknownCursor
from mcptrio.stores.sqlite import SqliteStore

from .conftest import MakeStore
from .reading import KEY, drain, fill, stored_record


async def release(store: Store, session: str, owner: str, epoch: int = 0, ttl: float = 60) -> None:
    store.sessions.put(session, epoch, b"record", owner=owner)
    assert await store.sessions.release(session, epoch, session.encode(), ttl=ttl)


async def kept(store: Store, sessions: str) -> str:
    return "".join([name for name in sessions if await stored_record(store, name) is not None])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_a_session_record_is_put_claimed_and_forgotten(store: Store) -> None:
    assert await store.sessions.claim("alice") is None
    store.sessions.put("alice", 0, b"one")
    store.sessions.put("alice", 0, b"two")
    store.sessions.put("bob", 0, b"three")
    claimed = await store.sessions.claim("alice")
    assert isinstance(claimed, Claimed)
    assert claimed.record == b"two"
    store.sessions.forget("alice", claimed.epoch)
    store.sessions.forget("alice", claimed.epoch)
    assert await store.sessions.claim("alice") is None
    assert await stored_record(store, "bob") == b"three"


async def test_a_claim_raises_the_epoch_and_returns_the_last_record(make_clocked_store: MakeStore) -> None:
    async with (store := make_clocked_store()).open():
        store.sessions.put("alice", 0, b"one", owner="a")
        claimed = await store.sessions.claim("alice")
        assert isinstance(claimed, Claimed)
        assert (claimed.epoch, claimed.record, claimed.owner) == (1, b"one", "a")
        store.sessions.put("alice", 1, b"two", owner="a")
        assert await store.sessions.release("alice", 1, b"three", ttl=60)
        claimed = await store.sessions.claim("alice")
        assert isinstance(claimed, Claimed)
        assert (claimed.epoch, claimed.record, claimed.owner) == (2, b"three", "a")
        assert claimed.left is None or 0 < claimed.left <= 60
        store.sessions.forget("alice", 2)
        assert await store.sessions.claim("alice") is None


async def test_a_released_session_expires(make_clocked_store: MakeStore) -> None:
    async with (store := make_clocked_store()).open():
        await release(store, "alice", "a", ttl=0)
        await release(store, "bob", "b")
        assert await kept(store, "ab") == ""
        assert await store.sessions.claim("alice") is None
        assert await store.sessions.claim("bob") is not None


async def test_the_largest_owner_loses_its_oldest_released_session(
    make_clocked_store: MakeStore,
) -> None:
    async with (store := make_clocked_store(sessions=4)).open():
        await release(store, "h", "honest")
        for name in "abcdef":
            await release(store, name, "greedy")
        assert await kept(store, "habc") == "h"
        await release(store, "h", "honest", epoch=1)
        await release(store, "i", "honest")
        assert await kept(store, "di") == "i"


async def test_a_session_at_home_makes_no_room(path: Path) -> None:
    async with (store := SqliteStore(path, limits=StoreLimits(sessions=2))).open():
        store.sessions.put("a", 0, b"a", owner="greedy")
        store.sessions.put("b", 0, b"b", owner="greedy")
        await store.flush()
        await release(store, "c", "honest")
        assert await kept(store, "abc") == "ab"


async def test_a_file_with_more_sessions_than_there_is_room_for_now_is_cut(path: Path) -> None:
    async with (store := SqliteStore(path)).open():
        for name in "wxyz":
            await release(store, name, "greedy")
    async with (again := SqliteStore(path, limits=StoreLimits(sessions=2))).open():
        await release(again, "h", "honest")
        assert await kept(again, "hwxyz") == "hz"


async def test_a_released_session_leaves_the_memory_and_its_streams_come_back(path: Path) -> None:
    async with (store := SqliteStore(path)).open():
        store.sessions.put("alice", 0, b"one", owner="a")
        events = fill(store, 5)
        over = fill(store, 2, StreamKey("alice", "2"), last=True)
        await store.sessions.release("alice", 0, b"one", ttl=60)
        assert list(store._streams.index) == []
        assert len(store._home) == 0
        assert store._streams.recent.total == 0
        with pytest.raises(UnknownCursor):
            store.follow(KEY)
        await store.sessions.claim("alice")
        assert await store.reopen(KEY) == 5
        follower = store.follow(KEY, 2)
        events += fill(store, 1)
        events = [(seq, b"alice/1/0" if seq == 6 else data) for seq, data in events]
        store.finish(KEY)
        assert await drain(follower) == events[2:]
        assert await drain(store.follow(StreamKey("alice", "2"), 2)) == over[2:]


async def test_an_unfinished_call_is_returned_after_the_process_died(path: Path) -> None:
    async with (first := SqliteStore(path)).open():
        first.sessions.put("alice", 0, b"one")
        for name in ("running", "answered", "ended"):
            first.begin(StreamKey("alice", name), call=name.encode())
        first.append(StreamKey("alice", "running"), b"progress")
        first.append(StreamKey("alice", "answered"), b"result", last=True)
        first.finish(StreamKey("alice", "ended"))
    async with (second := SqliteStore(path)).open():
        claimed = await second.sessions.claim("alice")
        assert isinstance(claimed, Claimed)
        assert claimed.previous
        assert claimed.calls == {"running": b"running"}
        assert await second.reopen(StreamKey("alice", "running")) == 1
        assert second.append(StreamKey("alice", "running"), b"result", last=True) == 2
        await second.flush()
        assert await drain(second.follow(StreamKey("alice", "running"))) == [(1, b"progress"), (2, b"result")]
    async with (third := SqliteStore(path)).open():
        assert (await third.sessions.claim("alice")).calls == {}  # type: ignore[union-attr]


async def test_a_forgotten_session_leaves_nothing_in_the_file(path: Path) -> None:
    async with (first := SqliteStore(path)).open():
        first.sessions.put("alice", 0, b"one")
        fill(first, 3)
        await first.sessions.release("alice", 0, b"one", ttl=60)
        await first.sessions.claim("alice")
        first.forget("alice")
        first.sessions.forget("alice", 1)
    async with (second := SqliteStore(path)).open():
        assert await second.sessions.claim("alice") is None
        with pytest.raises(UnknownCursor):
            second.follow(KEY)


async def test_a_pinned_session_is_gone_with_its_process(path: Path) -> None:
    async with (first := SqliteStore(path)).open():
        first.sessions.put("alice", 0, b"one", pinned=True)
        fill(first, 1)
    async with (second := SqliteStore(path)).open():
        assert await second.sessions.claim("alice") is None


async def test_the_streams_of_released_sessions_are_bounded_too(path: Path) -> None:
    async with (store := SqliteStore(path, limits=StoreLimits(streams=3))).open():
        for session in "abcdef":
            fill(store, 1, StreamKey(session, "1"), last=True)
            await release(store, session, "greedy" if session < "f" else "honest")
        await store._backend.tidy()
        left = streams(path)
        assert len(left) <= 3
        assert ("f",) in left


def streams(path: Path) -> list[tuple[str]]:
    with contextlib.closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT session FROM streams").fetchall()


async def test_an_expired_session_takes_its_streams_with_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (store := SqliteStore(path)).open():
        fill(store, 1)
        await release(store, "alice", "a", ttl=60)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 61)
        assert await store.sessions.claim("alice") is None
        assert streams(path) == []
