"""The bus, the names of stores, and a model of the memory store."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from mcptrio.errors import DeclarationError, Overloaded
from mcptrio.stores import (
    Follower,
    LaggedBehind,
    MemoryBus,
    MemoryStore,
    StoreLimits,
    StreamKey,
    UnknownCursor,
    open_store,
)
from mcptrio.stores.sqlite import SqliteStore

STREAMS = [StreamKey(session, stream) for session in ("alice", "bob") for stream in ("1", "2")]
# Three streams of 60 bytes cannot reach 200: what is kept of a stream depends on that stream alone.
LIMITS = StoreLimits(stream_events=6, stream_bytes=60, total_bytes=200, streams=3)


class StreamModel(RuleBasedStateMachine):
    """F38: the store against the plainest model there is, a list of everything ever appended to each stream."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore(LIMITS)
        self.log: dict[StreamKey, list[bytes]] = {}
        self.finished: set[StreamKey] = set()
        self.followers: list[tuple[list[bytes], Follower]] = []
        self.number = 0

    @rule(key=st.sampled_from(STREAMS), size=st.integers(3, 40), last=st.booleans())
    def append(self, key: StreamKey, size: int, last: bool) -> None:
        if key in self.finished:
            return
        self.number += 1
        data = str(self.number).encode().ljust(size, b".")
        try:
            seq = self.store.append(key, data, last=last)
        except Overloaded:
            assert key not in self.log
            return
        log = self.log.setdefault(key, [])
        log.append(data)
        assert seq == len(log)
        if last:
            self.finished.add(key)
        self.forget_what_was_evicted()

    @rule(key=st.sampled_from(STREAMS), after=st.integers(-1, 30))
    def follow(self, key: StreamKey, after: int) -> None:
        try:
            follower = self.store.follow(key, after)
        except UnknownCursor:
            assert key not in self.log or not self.floor(key) <= after <= len(self.log[key])
            return
        assert self.floor(key) <= after <= len(self.log[key])
        self.followers.append((self.log[key], follower))

    def floor(self, key: StreamKey) -> int:
        """How many events a stream has lost, by the rule: at most 6 and 60 bytes are kept, and always the newest."""
        floor = 0
        for end in range(1, len(self.log[key]) + 1):
            while end - floor > 6 or (sum(map(len, self.log[key][floor:end])) > 60 and end - floor > 1):
                floor += 1
        return floor

    @precondition(lambda self: self.followers)
    @rule(which=st.integers(0, 100), count=st.integers(1, 8))
    def receive(self, which: int, count: int) -> None:
        index = which % len(self.followers)
        log, follower = self.followers[index]
        for _ in range(count):
            place = follower.cursor
            try:
                event = follower.receive_nowait()
            except trio.WouldBlock:
                assert place == len(log)
                return
            except trio.EndOfChannel:
                assert place == len(log)
                del self.followers[index]
                return
            except LaggedBehind:
                assert place < len(log)
                del self.followers[index]
                return
            assert (event.seq, event.data) == (place + 1, log[place])

    @rule(key=st.sampled_from(STREAMS))
    def finish(self, key: StreamKey) -> None:
        self.store.finish(key)
        if key in self.log:
            self.finished.add(key)

    @rule(session=st.sampled_from(["alice", "bob"]))
    def forget(self, session: str) -> None:
        self.store.forget(session)
        for key in STREAMS:
            if key.session == session:
                self.log.pop(key, None)
                self.finished.discard(key)

    def forget_what_was_evicted(self) -> None:
        """Room is made by finished streams alone; running ones are never unknown."""
        for key in list(self.log):
            if self.store._index.find(key) is None:
                assert key in self.finished
                del self.log[key]
                self.finished.discard(key)

    @invariant()
    def bounds_are_kept(self) -> None:
        index = self.store._index
        streams = list(index)
        assert index.count == len(streams) == len(self.log) <= LIMITS.streams
        assert index.size == sum(len(data) for stream in streams for data in stream.tail) <= LIMITS.total_bytes
        for stream in streams:
            assert stream.tail == self.log[stream.key][stream.floor :]
            assert len(stream.tail) <= LIMITS.stream_events
            assert stream.size <= LIMITS.stream_bytes or len(stream.tail) == 1


async def test_the_memory_store_behaves_like_a_list_of_everything() -> None:
    run_state_machine_as_test(StreamModel, settings=settings(max_examples=200, stateful_step_count=40, deadline=None))


async def test_an_idle_stream_costs_little_memory() -> None:
    """Ten thousand sessions may have an open stream each."""
    store = MemoryStore()
    keys = [StreamKey(f"session-{number}", "get") for number in range(2_000)]
    gc.collect()
    tracemalloc.start()
    for key in keys:
        store.begin(key)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / len(keys) < 1_024
    assert sys.getsizeof(store._index.find(keys[0])) < 200


def test_every_bound_must_be_positive() -> None:
    with pytest.raises(ValueError, match="streams"):
        StoreLimits(streams=0)


# -- the bus


def test_a_change_reaches_subscribers_only() -> None:
    bus = MemoryBus()
    heard: list[tuple[str, str, Any]] = []
    bus.subscribe(["tools", "prompts"], lambda topic, payload: heard.append(("a", topic, payload)))
    second = bus.subscribe(["tools", "tools"], lambda topic, payload: heard.append(("b", topic, payload)))
    bus.publish("tools", 1)
    bus.publish("prompts")
    bus.publish("resources", 3)
    second.close()
    second.close()
    bus.publish("tools", 4)
    assert heard == [("a", "tools", 1), ("b", "tools", 1), ("a", "prompts", None), ("a", "tools", 4)]


def test_one_failing_subscriber_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    bus = MemoryBus()
    heard: list[Any] = []

    def fail(topic: str, payload: Any) -> None:
        raise RuntimeError("a bug")

    bus.subscribe(["tools"], fail)
    bus.subscribe(["tools"], lambda topic, payload: heard.append(payload))
    bus.publish("tools", 1)
    assert heard == [1]
    assert "a bug" in caplog.text


def test_a_subscriber_may_close_another_and_subscribe_while_it_is_called() -> None:
    bus = MemoryBus()
    heard: list[str] = []

    def first(topic: str, payload: Any) -> None:
        heard.append("first")
        second.close()
        bus.subscribe(["tools"], lambda topic, payload: heard.append("third"))

    bus.subscribe(["tools"], first)
    second = bus.subscribe(["tools"], lambda topic, payload: heard.append("second"))
    bus.publish("tools")
    assert heard == ["first"]


def test_the_subscriptions_of_a_topic_are_bounded_and_leave_nothing_behind() -> None:
    bus = MemoryBus(limit=2)
    handles = [bus.subscribe(["tools"], print) for _ in range(2)]
    with pytest.raises(Overloaded, match="tools"):
        bus.subscribe(["prompts", "tools"], print)
    for handle in handles:
        handle.close()
    assert bus._topics == {}
    bus.subscribe(["tools"], print)


# -- names of stores


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:///state.db", "state.db"), ("sqlite:///a/b.db", "a/b.db"), ("sqlite:////var/lib/s.db", "/var/lib/s.db")],
)
def test_a_store_is_chosen_by_its_url(url: str, path: str) -> None:
    store = open_store(url, limits=LIMITS)
    assert isinstance(store, SqliteStore)
    assert store._file.path == Path(path)
    assert store.limits is LIMITS
    assert store.durable


def test_memory_is_a_store_too() -> None:
    store = open_store("memory")
    assert isinstance(store, MemoryStore)
    assert not store.durable
    assert store.degraded is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "Memory",
        "sqlite",
        "sqlite:///",
        "sqlite://state.db",
        "sqlite:///dir/",
        "redit://localhost",
    ],
)
def test_any_other_url_is_refused_with_the_way_to_write_it(url: str) -> None:
    with pytest.raises(DeclarationError, match="sqlite:////absolute"):
        open_store(url)


@pytest.mark.defect("C30")
def test_the_url_of_a_database_in_memory_is_refused_with_a_hint() -> None:
    with pytest.raises(DeclarationError, match="--store memory"):
        open_store("sqlite:///:memory:")
