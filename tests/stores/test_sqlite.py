"""Promises of the SQLite store alone: events outlive the process, and a broken disk is visible, not fatal.

Threads are at work here, so no test uses an autojumping clock; where time matters it is moved by hand.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio.errors import DeclarationError, LocalProtocolError, Overloaded
from mcptrio.stores import Claimed, LaggedBehind, StoreFailed, StoreLimits, StreamKey, UnknownCursor, _sqlite_file
from mcptrio.stores.sqlite import CHECK_FILE_EVERY, SqliteStore

from .reading import KEY, drain, fill, stored_record, take


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcptrio.stores.sqlite.RETRY_AFTER", (0.01,))


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def read(path: Path) -> bytes:
    return path.read_bytes()


def rows(path: Path, query: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


class States:
    """Listens to `on_state` and waits for the next one."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []
        self._changed = trio.Event()

    def __call__(self, state: str | None) -> None:
        self.seen.append(state)
        self._changed.set()

    async def next(self) -> str | None:
        with trio.fail_after(30):
            await self._changed.wait()
        self._changed = trio.Event()
        return self.seen[-1]


class Gate:
    """Holds commits back until it is opened."""

    def __init__(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.entered = 0
        commit = store._file.commit

        def gated(batch: Any) -> None:
            self.entered += 1
            assert self.opened.wait(10)
            commit(batch)

        monkeypatch.setattr(store._file, "commit", gated)


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*args: Any) -> Any:
        raise error

    return fail


# -- durable


async def test_after_a_restart_a_stream_can_be_followed_from_every_place(path: Path) -> None:
    async with SqliteStore(path).open():
        pass
    first = SqliteStore(path)
    async with first.open():
        events = fill(first, 10, last=True)
    second = SqliteStore(path)
    async with second.open():
        for after in range(11):
            assert await drain(second.follow(KEY, after)) == events[after:]
        with pytest.raises(UnknownCursor):
            second.follow(KEY, 11)


async def test_after_a_restart_an_unfinished_stream_is_over(path: Path) -> None:
    begun = StreamKey("alice", "begun")
    first = SqliteStore(path)
    async with first.open():
        events = fill(first, 3)
        first.begin(begun)
    second = SqliteStore(path)
    async with second.open():
        assert await drain(second.follow(KEY, 1)) == events[1:]
        assert await drain(second.follow(begun)) == []
        with pytest.raises(LocalProtocolError):
            second.append(KEY, b"more")
        assert second.append(StreamKey("alice", "new"), b"x") == 1


async def test_the_secret_and_the_session_records_outlive_a_restart(path: Path) -> None:
    first = SqliteStore(path)
    with pytest.raises(LocalProtocolError, match="not open"):
        _ = first.secret
    async with first.open():
        first.sessions.put("alice", 0, b"one")
        first.sessions.put("bob", 0, b"two")
        first.sessions.forget("bob", 0)
        secret = first.secret
    second = SqliteStore(path)
    async with second.open():
        assert second.secret == secret
        assert await stored_record(second, "alice") == b"one"
        assert await stored_record(second, "bob") is None
    async with (third := SqliteStore(path.with_name("other.db"))).open():
        assert third.secret != secret


async def test_forgotten_streams_leave_the_file(path: Path) -> None:
    store = SqliteStore(path)
    async with store.open():
        fill(store, 5)
        other = fill(store, 2, StreamKey("bob", "1"))
        await store.flush()
        store.forget("alice")
        await store.flush()
        assert rows(path, "SELECT session FROM streams") == [("bob",)]
        assert rows(path, "SELECT count(*) FROM events") == [(len(other),)]


async def test_trimmed_events_leave_the_file(path: Path) -> None:
    store = SqliteStore(path, limits=StoreLimits(stream_events=4))
    async with store.open():
        for _ in range(3):
            fill(store, 3)
            await store.flush()
        assert rows(path, "SELECT seq FROM events ORDER BY seq") == [(6,), (7,), (8,), (9,)]
    async with (second := SqliteStore(path)).open():
        with pytest.raises(UnknownCursor):
            second.follow(KEY, 4)
        assert len(await drain(second.follow(KEY, 5))) == 4


async def test_sessions_of_an_earlier_process_expire_unless_claimed(
    path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (first := SqliteStore(path)).open():
        first.sessions.put("gone", 0, b"x")
        first.sessions.put("back", 0, b"x")
        fill(first, 1)
    async with (second := SqliteStore(path)).open():
        claimed = await second.sessions.claim("back")
        assert isinstance(claimed, Claimed)
        assert claimed.previous
        assert claimed.epoch == 1
        await wait_all_tasks_blocked()
        mock_clock.jump(2_000)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 2_000)
        await wait_all_tasks_blocked()
        await second.flush()
        assert await stored_record(second, "gone") is None
        with pytest.raises(UnknownCursor):
            second.follow(KEY)
    assert rows(path, "SELECT session, epoch FROM sessions") == [("back", 1)]
    assert rows(path, "SELECT count(*) FROM events") == [(0,)]


async def test_an_event_is_not_visible_before_it_is_on_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    async with store.open():
        gate = Gate(store, monkeypatch)
        events = fill(store, 1)
        follower = store.follow(KEY)
        while not gate.entered:
            await trio.lowlevel.checkpoint()
        with pytest.raises(trio.WouldBlock):
            follower.receive_nowait()
        with pytest.raises(UnknownCursor):
            store.follow(KEY, 1)
        gate.opened.set()
        assert await take(follower, 1) == events
        assert rows(path, "SELECT count(*) FROM events") == [(1,)]


async def test_everything_that_waits_goes_into_one_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    async with store.open():
        gate = Gate(store, monkeypatch)
        fill(store, 1)
        while not gate.entered:
            await trio.lowlevel.checkpoint()
        for number in range(100):
            fill(store, 3, StreamKey("alice", f"s{number}"))
        gate.opened.set()
        await store.flush()
        assert gate.entered == 2
    assert rows(path, "SELECT count(*) FROM events") == [(301,)]


async def test_everything_accepted_is_on_disk_after_the_block(path: Path) -> None:
    with trio.CancelScope() as scope:
        async with (store := SqliteStore(path)).open():
            fill(store, 20)
            scope.cancel()
            fill(store, 20, StreamKey("alice", "2"))
            await trio.sleep_forever()
    assert rows(path, "SELECT count(*) FROM events") == [(40,)]


async def test_a_slow_reader_continues_from_the_file(path: Path) -> None:
    """Memory holds two events, the reader is a hundred behind, and more arrive while it catches up."""
    store = SqliteStore(path, limits=StoreLimits(tail_events=2))
    async with store.open():
        store.begin(KEY)
        follower = store.follow(KEY)
        events = fill(store, 50)
        await store.flush()
        with pytest.raises(trio.WouldBlock):
            follower.receive_nowait()
        seen = await take(follower, 10)
        events += fill(store, 50, last=True)
        assert seen + await drain(follower) == events


async def test_events_that_wait_for_the_disk_are_kept_whatever_the_bound_of_the_tail(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(path, limits=StoreLimits(tail_events=2))
    async with store.open():
        gate = Gate(store, monkeypatch)
        events = fill(store, 1)
        while not gate.entered:
            await trio.lowlevel.checkpoint()
        events += fill(store, 10, last=True)
        gate.opened.set()
        assert await drain(store.follow(KEY)) == events
    assert rows(path, "SELECT count(*) FROM events") == [(11,)]


async def test_memory_for_tails_is_bounded_over_all_streams(path: Path) -> None:
    store = SqliteStore(path, limits=StoreLimits(tail_total=10_000))
    keys = [StreamKey("alice", str(number)) for number in range(50)]
    async with store.open():
        for key in keys:
            store.append(key, bytes(1_000), last=True)
        await store.flush()
        assert store._streams.recent.total <= 10_000
        assert store._streams.recent.total == sum(len(data) for stream in store._streams.index for data in stream.tail)
        for key in keys:
            assert await drain(store.follow(key)) == [(1, bytes(1_000))]


async def test_the_file_is_readable_by_its_owner_only(path: Path) -> None:
    async with SqliteStore(path).open():
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_commit_waits_for_the_disk(path: Path) -> None:
    store = SqliteStore(path)
    async with store.open():
        assert store._file._writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert store._file._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_of_two_streams_with_one_name_the_newer_is_kept(path: Path) -> None:
    """The older had been removed and begun again when the process died before the removal was written."""
    async with (first := SqliteStore(path)).open():
        fill(first, 3)
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("INSERT INTO streams VALUES (7, 'alice', '1', 0, 1, 5, NULL, NULL)")
        file.execute("INSERT INTO events VALUES (7, 1, 'newer')")
    async with (second := SqliteStore(path)).open():
        assert await drain(second.follow(KEY)) == [(1, "newer")]
        await second.flush()
        assert second.append(StreamKey("alice", "2"), b"x") == 1
    assert rows(path, "SELECT id FROM streams ORDER BY id") == [(7,), (8,)]
    assert rows(path, "SELECT stream FROM events ORDER BY stream") == [(7,), (8,)]


# -- faults


async def test_an_event_missing_in_the_file_is_not_skipped(path: Path) -> None:
    async with (first := SqliteStore(path)).open():
        events = fill(first, 5)
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("DELETE FROM events WHERE seq = 3")
    async with (second := SqliteStore(path)).open():
        follower = second.follow(KEY)
        assert await take(follower, 2) == events[:2]
        with pytest.raises(LaggedBehind):
            await follower.receive()


async def test_a_full_disk_degrades_the_store_until_there_is_space(path: Path, quick_retries: None) -> None:
    """F22: calls are still answered, the flag is up, and what memory holds is written when there is room."""
    states = States()
    store = SqliteStore(path, on_state=states)
    async with store.open():
        early = fill(store, 1)
        await store.flush()
        (pages,) = store._file._writer.execute("PRAGMA page_count").fetchone()
        store._file._writer.execute(f"PRAGMA max_page_count = {pages}")
        follower = store.follow(KEY)
        seq = store.append(KEY, bytes(100_000))
        assert "full" in (await states.next() or "")
        assert store.degraded is not None
        later = fill(store, 3)
        assert await take(follower, 5) == [*early, (seq, bytes(100_000)), *later]
        await store.flush()  # returns, though nothing can be written
        store._file._writer.execute("PRAGMA max_page_count = 1000000")
        assert await states.next() is None
        assert store.degraded is None
        events = [*early, (seq, bytes(100_000)), *later, *fill(store, 1, last=True)]
        assert await drain(store.follow(KEY)) == events
    async with (second := SqliteStore(path)).open():
        assert await drain(second.follow(KEY)) == events


async def test_a_gap_is_refused_and_never_served_with_a_hole(
    path: Path, monkeypatch: pytest.MonkeyPatch, quick_retries: None
) -> None:
    """More was lost than memory holds: cursors before the gap start over, those after it are served."""
    states = States()
    store = SqliteStore(path, limits=StoreLimits(tail_events=4), on_state=states)
    async with store.open():
        store.begin(KEY)
        slow = store.follow(KEY)
        events = fill(store, 3)
        await store.flush()
        with monkeypatch.context() as patch:
            patch.setattr(store._file, "commit", failing(sqlite3.OperationalError("disk I/O error")))
            events += fill(store, 1)
            await states.next()
            events += fill(store, 9)
            with pytest.raises(LaggedBehind):
                await slow.receive()
            with pytest.raises(UnknownCursor):
                store.follow(KEY, 2)
            assert await take(store.follow(KEY, 9), 4) == events[9:]
        assert await states.next() is None
        events += fill(store, 2, last=True)
        await store.flush()
    assert rows(path, "SELECT min(seq), max(seq), count(*) FROM events") == [(10, 15, 6)]
    async with (second := SqliteStore(path)).open():
        for after in (0, 3, 8):
            with pytest.raises(UnknownCursor):
                second.follow(KEY, after)
        assert await drain(second.follow(KEY, 9)) == events[9:]


async def test_a_session_forgotten_while_a_commit_fails_stays_forgotten(
    path: Path, monkeypatch: pytest.MonkeyPatch, quick_retries: None
) -> None:
    store = SqliteStore(path)
    async with store.open():
        with monkeypatch.context() as patch:
            patch.setattr(store._file, "commit", failing(sqlite3.OperationalError("disk I/O error")))
            gate = Gate(store, patch)
            fill(store, 2)
            while not gate.entered:
                await trio.lowlevel.checkpoint()
            store.forget("alice")
            gate.opened.set()
            with trio.fail_after(30):
                while store.degraded is None:
                    await trio.lowlevel.checkpoint()
    assert rows(path, "SELECT * FROM streams") == []
    assert rows(path, "SELECT * FROM events") == []


async def test_a_removal_that_failed_is_done_later(
    path: Path, monkeypatch: pytest.MonkeyPatch, quick_retries: None
) -> None:
    states = States()
    store = SqliteStore(path, on_state=states)
    async with store.open():
        fill(store, 2)
        await store.flush()
        with monkeypatch.context() as patch:
            patch.setattr(store._file, "commit", failing(sqlite3.OperationalError("disk I/O error")))
            store.forget("alice")
            await states.next()
        assert await states.next() is None
    assert rows(path, "SELECT * FROM streams") == []
    assert rows(path, "SELECT * FROM events") == []


async def test_sessions_of_a_file_that_cannot_be_written_are_refused_until_it_can(
    path: Path, monkeypatch: pytest.MonkeyPatch, quick_retries: None
) -> None:
    """A session whose last record is not in the file is not given to another object; one that was removed is gone."""
    states = States()
    store = SqliteStore(path, on_state=states)
    async with store.open():
        store.sessions.put("kept", 0, b"one")
        store.sessions.put("removed", 0, b"one")
        await store.flush()
        with monkeypatch.context() as patch:
            patch.setattr(store._file, "commit", failing(sqlite3.OperationalError("disk I/O error")))
            store.sessions.put("kept", 0, b"two")
            store.sessions.forget("removed", 0)
            assert await states.next() is not None
            with pytest.raises(Overloaded, match="the store is not available"):
                await store.sessions.claim("kept")
            assert await store.sessions.claim("removed") is None
            assert not await store.sessions.release("kept", 0, b"three", ttl=60)
        assert await states.next() is None
        assert await stored_record(store, "kept") == b"three"
        with monkeypatch.context() as patch:
            patch.setattr(store._file, "claim", failing(sqlite3.OperationalError("disk I/O error")))
            with pytest.raises(Overloaded, match="the store is not available"):
                await store.sessions.claim("kept")


async def test_a_file_locked_for_too_long_degrades_the_store(path: Path, quick_retries: None) -> None:
    """F23: another program holds the write lock, for instance a backup."""
    states = States()
    store = SqliteStore(path, on_state=states)
    async with store.open():
        store._file._writer.execute("PRAGMA busy_timeout = 50")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            events = fill(store, 2)
            follower = store.follow(KEY)
            assert "locked" in (await states.next() or "")
            assert await take(follower, 2) == events
            other.execute("ROLLBACK")
        assert await states.next() is None
    assert rows(path, "SELECT count(*) FROM events") == [(2,)]


async def test_a_backlog_above_its_bound_degrades_the_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """append() may neither wait nor refuse: events flow at once until the disk has caught up."""
    states = States()
    store = SqliteStore(path, limits=StoreLimits(backlog_events=10), on_state=states)
    async with store.open():
        gate = Gate(store, monkeypatch)
        events = fill(store, 1)
        follower = store.follow(KEY)
        while not gate.entered:
            await trio.lowlevel.checkpoint()
        events += fill(store, 11)
        assert "behind" in (store.degraded or "")
        assert await take(follower, 12) == events
        await states.next()
        gate.opened.set()
        assert await states.next() is None
    assert rows(path, "SELECT count(*) FROM events") == [(12,)]


async def test_a_commit_that_hangs_degrades_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    monkeypatch.setattr("mcptrio.stores._group_commit.SLOW_COMMIT", 0.0)
    states = States()
    store = SqliteStore(path, on_state=states)
    async with store.open():
        gate = Gate(store, monkeypatch)
        events = fill(store, 2)
        follower = store.follow(KEY)
        while not gate.entered:
            await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()
        mock_clock.jump(1)
        assert "longer" in (await states.next() or "")
        assert await take(follower, 2) == events
        gate.opened.set()
        assert await states.next() is None


async def test_a_damaged_store_is_moved_aside_and_an_empty_file_started(path: Path) -> None:
    async with (first := SqliteStore(path)).open():
        fill(first, 500)
    sound = read(path)
    damaged = sound[:100] + b"\xff" * (len(sound) - 100)  # the header still says whose file it is
    write(path, damaged)
    write(path.with_name("store.db.corrupt-1"), b"an earlier one")
    store = SqliteStore(path)
    async with store.open():
        assert store.moved_aside == path.with_name("store.db.corrupt-2")
        assert store.moved_aside.read_bytes() == damaged
        events = fill(store, 2, last=True)
    async with (second := SqliteStore(path)).open():
        assert second.moved_aside is None
        assert await drain(second.follow(KEY)) == events


@pytest.mark.defect("D21")
@pytest.mark.parametrize(
    "content", [b"from mcptrio import Server\n" * 10, b"x", bytes(4096), b"SQLite format 3\0" + b"\xff" * 5000]
)
async def test_a_file_that_is_not_a_store_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    write(path, content)
    for _ in range(2):  # the first refusal leaves nothing that makes the file look like a store
        with pytest.raises(StoreFailed, match="is not an SQLite database"):
            async with SqliteStore(path).open():
                pytest.fail("opened")
    assert read(path) == content
    assert not list(path.parent.glob("*.corrupt*"))


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    write(path, b"")
    async with (store := SqliteStore(path)).open():
        events = fill(store, 1)
        assert await take(store.follow(KEY), 1) == events


@pytest.mark.defect("C30")
@pytest.mark.parametrize("name", [":memory:", ""])
def test_a_database_that_is_not_durable_is_refused_with_a_hint(name: str) -> None:
    with pytest.raises(DeclarationError, match=r"MemoryStore\(\)"):
        SqliteStore(name)


@pytest.mark.defect("C30")
async def test_a_removed_file_is_reported_and_replaced_by_an_empty_one(path: Path, mock_clock: MockClock) -> None:
    states = States()
    store = SqliteStore(path, on_state=states)
    async with store.open():
        store.tasks.put("task", b"result")
        await store.flush()
        os.unlink(path)
        await wait_all_tasks_blocked()
        mock_clock.jump(CHECK_FILE_EVERY)
        mock_clock.rate = 3.0  # so that the bound of `States.next` is one
        assert "removed" in (await states.next() or "")
        assert await states.next() is None
        assert store.degraded is None
    assert rows(path, "SELECT task FROM tasks") == [("task",)]


@pytest.mark.defect("C30")
async def test_a_commit_notices_that_the_file_was_removed(path: Path) -> None:
    states = States()
    store = SqliteStore(path, on_state=states)
    async with store.open():
        await store.flush()
        os.unlink(path)
        events = fill(store, 2)
        await store.flush()
        assert "removed" in (states.seen[0] or "")  # not by the periodic check, which comes later
        assert await take(store.follow(KEY), 2) == events
        with trio.fail_after(30):
            while store.degraded is not None:
                await trio.lowlevel.checkpoint()
    assert rows(path, "SELECT count(*) FROM events") == [(2,)]


@pytest.mark.defect("C30")
async def test_a_file_put_in_place_of_the_store_is_left_alone(path: Path) -> None:
    store = SqliteStore(path)
    async with store.open():
        await store.flush()
        os.unlink(path)
        write(path, b"something else")
        fill(store, 1)
        with trio.fail_after(30):
            while "another file" not in (store.degraded or ""):
                assert read(path) == b"something else"
                await trio.lowlevel.checkpoint()
    assert read(path) == b"something else"


@pytest.mark.defect("D05")
async def test_one_store_opened_twice_is_refused_at_once_and_the_first_goes_on(path: Path) -> None:
    store = SqliteStore(path)
    async with store.open():
        events = fill(store, 1)
        with trio.fail_after(30), pytest.raises(LocalProtocolError, match="open already"):
            async with store.open():
                pytest.fail("opened")
        events += fill(store, 1, last=True)
        assert await drain(store.follow(KEY)) == events
        await store.flush()
        assert store.degraded is None
    assert rows(path, "SELECT count(*) FROM events") == [(2,)]


async def test_one_store_can_be_opened_again_after_it_was_closed(path: Path) -> None:
    store = SqliteStore(path)
    async with store.open():
        events = fill(store, 3)
    for _ in range(2):
        async with store.open():
            await store.flush()
            assert await drain(store.follow(KEY)) == events
    assert rows(path, "SELECT count(*) FROM events") == [(3,)]


async def test_a_burst_is_announced_as_one_outage(
    path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    """Each commit catches up, and the next burst begins before the store has been calm for long."""
    monkeypatch.setattr("mcptrio.stores._health.RECOVERED_AFTER", 5.0)
    states = States()
    store = SqliteStore(path, limits=StoreLimits(backlog_events=10), on_state=states)
    async with store.open():
        for number in range(4):
            fill(store, 20, StreamKey("alice", str(number)))
            assert store.degraded is not None
            with trio.fail_after(10):
                while store.degraded is not None:
                    await trio.lowlevel.checkpoint()
            mock_clock.jump(1)
        assert len(states.seen) == 1
        await states.next()
        await wait_all_tasks_blocked()
        mock_clock.jump(5)
        assert await states.next() is None
    assert len(states.seen) == 2


async def test_damage_found_by_a_commit_costs_only_what_memory_does_not_hold(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = States()
    store = SqliteStore(path, limits=StoreLimits(tail_events=3), on_state=states)
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    over = StreamKey("alice", "over")
    async with store.open():
        secret = store.secret
        store.sessions.put("alice", 0, b"record")
        events = fill(store, 5)
        finished = fill(store, 2, over, last=True)
        await store.flush()
        follower = store.follow(KEY, 4)
        with monkeypatch.context() as patch:
            patch.setattr(store._file, "commit", failing(error))
            events += fill(store, 1)
            assert "malformed" in (await states.next() or "")
        assert await states.next() is None
        assert store.moved_aside is not None
        events += fill(store, 1, last=True)
        assert await drain(follower) == events[4:]
        with pytest.raises(UnknownCursor):
            store.follow(KEY, 2)
    async with (second := SqliteStore(path)).open():
        assert second.secret == secret
        assert await stored_record(second, "alice") == b"record"
        assert await drain(second.follow(KEY, 3)) == events[3:]
        assert await drain(second.follow(over)) == finished


async def test_damage_found_by_a_reader_starts_a_fresh_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (first := SqliteStore(path)).open():
        fill(first, 3)
    store = SqliteStore(path)
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    async with store.open():
        monkeypatch.setattr(store._file, "read", failing(error))
        with pytest.raises(LaggedBehind):
            await store.follow(KEY).receive()
        with trio.fail_after(30):
            while store.moved_aside is None:
                await trio.lowlevel.checkpoint()
        key = StreamKey("alice", "2")
        events = fill(store, 1, key, last=True)
        assert await drain(store.follow(key)) == events


@contextlib.contextmanager
def as_an_ordinary_user() -> Iterator[None]:
    """The superuser may write anywhere, so a test that runs as one steps down."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def unwritable() -> Iterator[Path]:
    """A directory that an ordinary user can read only. Not below tmp_path, whose parents he cannot even enter."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        os.chmod(name, 0o700)


@pytest.mark.parametrize("existing", [False, True])
async def test_a_directory_that_cannot_be_written_refuses_to_start(unwritable: Path, existing: bool) -> None:
    if existing:
        async with SqliteStore(unwritable / "store.db").open():
            pass
    os.chmod(unwritable, 0o555)
    with as_an_ordinary_user(), pytest.raises(StoreFailed, match=r"store\.db.*[Pp]ermission"):
        async with SqliteStore(unwritable / "store.db").open():
            pytest.fail("opened")


async def test_a_missing_directory_refuses_to_start(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="no directory"):
        async with SqliteStore(tmp_path / "missing" / "store.db").open():
            pytest.fail("opened")


async def test_a_file_of_another_application_is_left_alone(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE streams (something)")
    with pytest.raises(StoreFailed, match="another application"):
        async with SqliteStore(path).open():
            pytest.fail("opened")
    assert rows(path, "SELECT name FROM sqlite_schema") == [("streams",)]


async def test_a_file_of_a_newer_layout_is_left_alone(path: Path) -> None:
    async with SqliteStore(path).open():
        pass
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreFailed, match="newer"):
        async with SqliteStore(path).open():
            pytest.fail("opened")


FIRST_LAYOUT = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, stream TEXT NOT NULL,
    floor INTEGER NOT NULL, last INTEGER NOT NULL, size INTEGER NOT NULL
);
CREATE TABLE events (
    stream INTEGER NOT NULL, seq INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (stream, seq)
) WITHOUT ROWID;
CREATE TABLE sessions (session TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
PRAGMA application_id = 1296257108;
PRAGMA user_version = 1;
INSERT INTO meta VALUES ('secret', x'00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff');
INSERT INTO sessions VALUES ('old', x'7b7d');
INSERT INTO streams VALUES (1, 'session', 'stream', 0, 2, 6);
INSERT INTO events VALUES (1, 1, 'one'), (1, 2, 'two');
"""
OLD_MARKS = "INSERT INTO sessions VALUES ('once chain key', x'31'), ('state digest', x''), ('statement', x'32');"
WITH_TASKS = "CREATE TABLE tasks (task TEXT PRIMARY KEY, record BLOB NOT NULL, expires REAL) WITHOUT ROWID;"


@pytest.mark.parametrize("more", ["", WITH_TASKS], ids=["before tasks", "with tasks"])
async def test_a_file_of_the_first_layout_is_brought_up_to_date(path: Path, more: str) -> None:
    """Nothing of it is lost, and it can keep tasks; both kinds of file were written under that number."""
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(FIRST_LAYOUT + more)
    for _ in range(2):
        store = SqliteStore(path)
        async with store.open():
            assert store.secret == bytes.fromhex("00112233445566778899aabbccddeeff" * 2)
            assert await stored_record(store, "old") == b"{}"
            store.tasks.put("task", b"record", owner="alice")
            await store.flush()
    assert rows(path, "PRAGMA user_version") == [(5,)]
    assert rows(path, "SELECT task, owner FROM tasks") == [("task", "alice")]
    assert rows(path, "SELECT last FROM streams") == [(2,)]


async def test_marks_leave_the_session_directory_of_an_older_layout(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(FIRST_LAYOUT + OLD_MARKS)
    async with (store := SqliteStore(path)).open():
        assert await store.marks.get("once", "chain key") == b"1"
        assert await store.marks.get("state", "digest") == b""
        assert await stored_record(store, "state digest") is None
        assert await stored_record(store, "statement") == b"2"


async def test_an_upgrade_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(FIRST_LAYOUT)
    monkeypatch.setitem(_sqlite_file.UPGRADES, 1, "CREATE TABLE meta (nothing)")
    with pytest.raises(StoreFailed, match="cannot open the store"):
        async with SqliteStore(path).open():
            pytest.fail("opened")
    assert rows(path, "PRAGMA user_version") == [(1,)]
    assert rows(path, "SELECT record FROM sessions") == [(b"{}",)]


async def test_a_file_of_no_layout_is_left_alone(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.executescript(FIRST_LAYOUT + "PRAGMA user_version = 0;")
    with pytest.raises(StoreFailed, match="which never existed"):
        async with SqliteStore(path).open():
            pytest.fail("opened")


async def test_a_second_owner_of_the_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take the running streams of the first for abandoned ones."""
    monkeypatch.setattr("mcptrio.stores._sqlite_file.BUSY_TIMEOUT", 0.0)
    async with (first := SqliteStore(path)).open():
        with pytest.raises(StoreFailed, match="in use"):
            async with SqliteStore(path).open():
                pytest.fail("opened")
        fill(first, 1)
    async with SqliteStore(path).open():
        pass


async def test_a_writer_that_keeps_crashing_takes_the_store_down(
    path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    """F24: six crashes in thirty seconds come out of open(), and until then events flow."""
    store = SqliteStore(path)
    with pytest.raises(StoreFailed, match="crashed 6 times"):
        async with store.open():
            monkeypatch.setattr(store._backend, "_in_thread", _inline)
            with monkeypatch.context() as patch:
                patch.setattr(store._file, "commit", failing(RuntimeError("a bug")))
                events = fill(store, 1)
                await wait_all_tasks_blocked()
                assert "a bug" in (store.degraded or "")
                assert await take(store.follow(KEY), 1) == events
                mock_clock.autojump_threshold = 0
                await trio.sleep(29)
                pytest.fail("still running")


async def test_crashes_far_apart_are_survived(
    path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    store = SqliteStore(path)
    async with store.open():
        monkeypatch.setattr(store._backend, "_in_thread", _inline)
        mock_clock.autojump_threshold = 0
        for _ in range(8):
            with monkeypatch.context() as patch:
                patch.setattr(store._file, "commit", failing(RuntimeError("a bug")))
                fill(store, 1)
                await trio.sleep(0.1)
                assert store.degraded is not None
            await trio.sleep(10)
            assert store.degraded is None
    assert rows(path, "SELECT count(*) FROM events") == [(8,)]


async def _inline(function: Callable[..., Any], *args: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return function(*args)


async def test_a_failing_state_listener_does_not_stop_the_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path, limits=StoreLimits(backlog_events=1), on_state=failing(RuntimeError("a bug")))
    async with store.open():
        events = fill(store, 5, last=True)
        assert await drain(store.follow(KEY)) == events


async def test_events_that_could_not_be_written_are_reported_at_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with (store := SqliteStore(path)).open():
        monkeypatch.setattr(store._file, "commit", failing(sqlite3.OperationalError("database or disk is full")))
        fill(store, 3)
    assert "without 3 events" in caplog.text


async def test_a_store_must_be_open_to_append(path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="not open"):
        SqliteStore(path).append(KEY, b"x")
