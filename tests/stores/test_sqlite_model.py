"""The durable store under random faults, against a list of everything ever appended.

Commits fail, hang or succeed as the example says; streams are trimmed, forgotten and begun again meanwhile. No follower
may see a gap or a repetition, the books must balance after each step, and when the disk is well again the file must
hold exactly what the store says it holds.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptrio.errors import LocalProtocolError, Overloaded
from mcptrio.stores import LaggedBehind, StoreLimits, StreamKey, UnknownCursor
from mcptrio.stores._streams import StreamFollower
from mcptrio.stores.sqlite import SqliteStore

KEYS = [StreamKey(session, stream) for session in ("alice", "bob") for stream in ("1", "2")]
LIMITS = StoreLimits(
    stream_events=8, stream_bytes=120, streams=3, total_bytes=160, tail_events=3, tail_bytes=60, tail_total=100,
    backlog_events=12,
)  # fmt: skip
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(KEYS), st.integers(1, 50)),
        st.tuples(st.just("burst"), st.sampled_from(KEYS), st.integers(2, 7)),
        st.tuples(st.just("last"), st.sampled_from(KEYS), st.integers(1, 50)),
        st.tuples(st.just("follow"), st.sampled_from(KEYS), st.integers(0, 8)),
        st.tuples(st.just("forget"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.sampled_from(["works", "fails", "hangs"]), st.just(KEYS[0]), st.just(0)),
        st.tuples(st.just("read"), st.just(KEYS[0]), st.integers(1, 10)),
        st.tuples(st.just("wait"), st.just(KEYS[0]), st.integers(1, 8)),
    ),
    min_size=5,
    max_size=60,
)


class Disk:
    """Stands between the store and its file, without threads, so that an example runs the same way each time."""

    def __init__(self, store: SqliteStore) -> None:
        self.mode = "works"
        self._turned = trio.Event()
        self._commit = store._file.commit
        store._backend._in_thread = self.call  # type: ignore[method-assign]

    def turn(self, mode: str) -> None:
        self.mode = mode
        self._turned.set()
        self._turned = trio.Event()

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=True):  # as a thread is
            while self.mode == "hangs" and function == self._commit:
                await self._turned.wait()
            await trio.lowlevel.checkpoint()
        if self.mode == "fails" and function == self._commit:
            raise sqlite3.OperationalError("disk I/O error")
        return function(*args)


class Model:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.logs: dict[StreamKey, list[bytes]] = {}
        self.followers: list[tuple[list[bytes], StreamFollower]] = []
        self.number = 0

    def append(self, key: StreamKey, size: int, *, last: bool) -> None:
        self.number += 1
        data = str(self.number).encode().ljust(size, b".")
        with contextlib.suppress(Overloaded, LocalProtocolError):
            seq = self.store.append(key, data, last=last)
            if seq == 1:
                self.logs[key] = []  # new, or begun again after it was evicted
            self.logs[key].append(data)
            assert seq == len(self.logs[key])

    def follow(self, key: StreamKey, back: int) -> None:
        after = max(0, len(self.logs.get(key, ())) - back)
        with contextlib.suppress(UnknownCursor):
            self.followers.append((self.logs.get(key, []), self.store.follow(key, after)))

    async def read(self, count: int) -> None:
        for log, follower in list(self.followers):
            for _ in range(count):
                place = follower.cursor
                stream = follower._stream
                if place == stream.visible and (stream.ended is None or place < stream.last):
                    break  # it would wait
                try:
                    event = await follower.receive()
                except trio.EndOfChannel:
                    assert place == len(log)
                    self.followers.remove((log, follower))
                    break
                except LaggedBehind:
                    assert place < len(log)
                    self.followers.remove((log, follower))
                    break
                assert (event.seq, event.data) == (place + 1, log[place])

    def check_the_books(self) -> None:
        store = self.store
        streams = list(store._streams.index)
        for stream in streams:
            log = self.logs[stream.key]
            assert stream.last == len(log)
            assert stream.floor <= stream.tail_floor <= max(stream.floor, stream.written)
            assert stream.tail == log[stream.tail_floor :]
            assert list(stream.sizes) == [len(data) for data in log[stream.floor :]]
            assert stream.size == sum(stream.sizes)
            assert stream.tail_size == sum(map(len, stream.tail))
        assert set(store._streams.recent.streams) == {stream for stream in streams if stream.tail}
        assert store._streams.recent.total == sum(stream.tail_size for stream in streams)
        assert store._streams.index.size == sum(stream.size for stream in streams)
        assert store._streams.index.count == len(streams) <= LIMITS.streams
        assert set(store._streams.dirty) <= set(streams)

    def check_the_file(self, path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as file:
            held = {}
            for serial, session, name, floor, last in file.execute(
                "SELECT id, session, stream, floor, last FROM streams"
            ):
                held[serial] = self.logs[StreamKey(session, name)][floor:last]
            assert sorted(held) == sorted(stream.serial for stream in self.store._streams.index)
            found: dict[int, list[bytes]] = {serial: [] for serial in held}
            for serial, data in file.execute("SELECT stream, data FROM events ORDER BY stream, seq"):
                found[serial].append(data)
            assert found == held


@settings(max_examples=100, deadline=None)
@given(steps=STEPS)
async def test_under_faults_no_follower_sees_a_gap_and_the_file_catches_up(
    steps: list[tuple[str, StreamKey, int]],
) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcptrio.stores.sqlite.RETRY_AFTER", (0.0,))
        path = Path(directory) / "store.db"
        store = SqliteStore(path, limits=LIMITS)
        async with store.open():
            model, disk = Model(store), Disk(store)
            for step, key, number in steps:
                match step:
                    case "append" | "last":
                        model.append(key, number, last=step == "last")
                    case "burst":
                        for _ in range(number):
                            model.append(key, 12, last=False)
                    case "follow":
                        model.follow(key, number)
                    case "forget":
                        store.forget(key.session)
                    case "read":
                        await model.read(number)
                    case "works" | "fails" | "hangs":
                        disk.turn(step)
                    case _:
                        for _ in range(number):
                            await trio.lowlevel.checkpoint()
                model.check_the_books()
            disk.turn("works")
        model.check_the_books()
        model.check_the_file(path)
        again = SqliteStore(path, limits=LIMITS)
        async with again.open():
            for stream in store._streams.index:
                log = model.logs[stream.key]
                follower = again.follow(stream.key, stream.saved_floor)
                assert [event.data async for event in follower] == log[stream.saved_floor :]
