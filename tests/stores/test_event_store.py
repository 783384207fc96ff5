"""The promises of every event store, run over each of them."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio.errors import LocalProtocolError, Overloaded
from mcptrio.stores import LaggedBehind, Store, StoredEvent, StreamKey, UnknownCursor

from .conftest import MakeStore
from .reading import KEY, drain, fill, take


async def test_numbers_count_up_from_one_in_each_stream(store: Store) -> None:
    assert [store.append(KEY, b"x") for _ in range(3)] == [1, 2, 3]
    assert store.append(StreamKey("alice", "2"), b"x") == 1
    assert store.append(StreamKey("bob", "1"), b"x") == 1


async def test_a_stream_can_be_followed_from_every_place(store: Store) -> None:
    events = fill(store, 12, last=True)
    await store.flush()
    for after in range(13):
        assert await drain(store.follow(KEY, after)) == events[after:]


async def test_replay_runs_into_the_live_tail_without_a_gap(store: Store) -> None:
    events = fill(store, 3)
    await store.flush()
    follower = store.follow(KEY, 1)
    events += fill(store, 3)
    assert await take(follower, 5) == events[1:]
    events += fill(store, 1, last=True)
    assert await drain(follower) == events[6:]


async def test_a_waiting_follower_is_woken_by_an_event(store: Store, nursery: trio.Nursery) -> None:
    store.begin(KEY)
    await store.flush()
    follower = store.follow(KEY)
    seen: list[StoredEvent] = []

    async def read() -> None:
        seen.append(await follower.receive())

    async with trio.open_nursery() as reading:
        reading.start_soon(read)
        await wait_all_tasks_blocked()
        assert seen == []
        store.append(KEY, b"hello")
    assert seen == [StoredEvent(1, b"hello")]
    assert follower.cursor == 1


async def test_two_followers_each_see_everything(store: Store) -> None:
    store.begin(KEY)
    first, second = store.follow(KEY), store.follow(KEY)
    events = fill(store, 5)
    assert await take(first, 5) == events
    events += fill(store, 5, last=True)
    assert await drain(second) == events
    assert await drain(first) == events[5:]


async def test_no_event_of_another_session_or_stream_is_ever_seen(store: Store) -> None:
    """Two sessions with streams of the same names, and two streams in one session: other runtimes leaked there."""
    keys = [StreamKey(session, stream) for session in ("alice", "bob") for stream in ("1", "2", "")]
    expected: dict[StreamKey, list[tuple[int, bytes]]] = {key: [] for key in keys}
    for last in (False, False, True):
        for key in keys:
            expected[key] += [(seq, data) for seq, data in fill(store, 2, key, last=last)]
    await store.flush()
    for key in keys:
        assert await drain(store.follow(key)) == expected[key]


async def test_a_finished_stream_ends_without_a_last_event(store: Store) -> None:
    events = fill(store, 2)
    follower = store.follow(KEY)
    store.finish(KEY)
    store.finish(KEY)
    assert await drain(follower) == events


async def test_a_waiting_follower_ends_when_its_stream_is_finished(store: Store) -> None:
    store.begin(KEY)
    follower = store.follow(KEY)
    with trio.fail_after(30):
        async with trio.open_nursery() as reading:
            reading.start_soon(drain, follower)
            await wait_all_tasks_blocked()
            store.finish(KEY)


async def test_nothing_can_be_added_to_a_finished_stream(store: Store) -> None:
    fill(store, 1, last=True)
    with pytest.raises(LocalProtocolError, match="finished"):
        store.append(KEY, b"too late")


async def test_a_stream_that_was_begun_can_be_followed_before_its_first_event(store: Store) -> None:
    store.begin(KEY)
    follower = store.follow(KEY)
    with pytest.raises(trio.WouldBlock):
        follower.receive_nowait()
    events = fill(store, 1)
    store.begin(KEY)
    assert await take(follower, 1) == events


async def test_finishing_an_unknown_stream_makes_none(store: Store) -> None:
    store.finish(KEY)
    with pytest.raises(UnknownCursor):
        store.follow(KEY)


@pytest.mark.parametrize("after", [-1, 4, 10**30])
async def test_a_cursor_outside_of_the_stream_is_refused(store: Store, after: int) -> None:
    fill(store, 3)
    await store.flush()
    with pytest.raises(UnknownCursor):
        store.follow(KEY, after)


async def test_a_stream_of_another_session_is_unknown(store: Store) -> None:
    fill(store, 3)
    await store.flush()
    for key in (StreamKey("bob", "1"), StreamKey("alice", "2"), StreamKey("1", "alice")):
        with pytest.raises(UnknownCursor):
            store.follow(key)


async def test_the_oldest_events_of_a_long_stream_are_let_go(make_store: MakeStore) -> None:
    store = make_store(stream_events=10)
    async with store.open():
        events = fill(store, 25, last=True)
        await store.flush()
        with pytest.raises(UnknownCursor):
            store.follow(KEY, 14)
        assert await drain(store.follow(KEY, 15)) == events[15:]


async def test_a_heavy_stream_keeps_its_newest_events(make_store: MakeStore) -> None:
    store = make_store(stream_bytes=100)
    async with store.open():
        for _ in range(5):
            store.append(KEY, bytes(40))
        await store.flush()
        with pytest.raises(UnknownCursor):
            store.follow(KEY, 2)
        assert len(await take(store.follow(KEY, 3), 2)) == 2


async def test_an_event_larger_than_the_bound_is_kept_alone(make_store: MakeStore) -> None:
    store = make_store(stream_bytes=100, tail_bytes=50)
    async with store.open():
        store.append(KEY, b"small")
        store.append(KEY, bytes(1_000), last=True)
        await store.flush()
        assert await drain(store.follow(KEY, 1)) == [(2, bytes(1_000))]


@pytest.mark.defect("E16")
async def test_events_that_a_connected_client_has_not_read_are_kept_beyond_the_bounds(make_store: MakeStore) -> None:
    store = make_store(stream_events=2, stream_bytes=100, tail_bytes=50)
    async with store.open():
        for number in range(5):
            store.append(KEY, bytes([number]), keep_after=1)
        store.append(KEY, bytes(1_000), keep_after=1)
        await store.flush()
        found = await take(store.follow(KEY, 1), 5)
        assert [number for number, _ in found] == [2, 3, 4, 5, 6]
        store.append(KEY, b"later", last=True)  # the client is gone
        await store.flush()
        with pytest.raises(UnknownCursor):
            store.follow(KEY, 1)


async def test_a_follower_that_was_overtaken_gets_an_error(make_store: MakeStore) -> None:
    store = make_store(stream_events=10)
    async with store.open():
        store.begin(KEY)
        follower = store.follow(KEY)
        fill(store, 10)
        assert (await take(follower, 1))[0][0] == 1
        fill(store, 5)
        await store.flush()
        with pytest.raises(LaggedBehind):
            await follower.receive()


async def test_a_forgotten_session_is_unknown_and_its_followers_end(store: Store) -> None:
    events, other = fill(store, 3), fill(store, 2, StreamKey("bob", "1"))
    await store.flush()
    follower = store.follow(KEY, 1)
    store.forget("alice")
    store.forget("unknown")
    with pytest.raises(UnknownCursor):
        store.follow(KEY)
    assert await drain(follower) == events[1:]
    store.finish(StreamKey("bob", "1"))
    assert await drain(store.follow(StreamKey("bob", "1"))) == other


async def test_a_flush_ends_although_everything_that_was_begun_is_forgotten(store: Store) -> None:
    store.begin(KEY)
    store.forget("alice")
    with trio.fail_after(30):
        await store.flush()


async def test_events_not_yet_stored_reach_the_followers_of_a_forgotten_session(store: Store) -> None:
    """The answer that ends a session must not be lost because the session is over."""
    store.begin(KEY)
    follower = store.follow(KEY)
    events = fill(store, 2)
    store.forget("alice")
    assert await drain(follower) == events


async def test_a_finished_stream_expires_and_a_running_one_does_not(
    make_store: MakeStore, mock_clock: MockClock
) -> None:
    store = make_store(stream_age=600.0)
    running = StreamKey("alice", "2")
    async with store.open():
        fill(store, 2, last=True)
        fill(store, 2, running)
        await store.flush()
        await wait_all_tasks_blocked()
        mock_clock.jump(500)
        await wait_all_tasks_blocked()
        store.follow(KEY)
        mock_clock.jump(200)
        await wait_all_tasks_blocked()
        with pytest.raises(UnknownCursor):
            store.follow(KEY)
        store.follow(running)


async def test_the_longest_finished_stream_makes_room_for_a_new_one(make_store: MakeStore) -> None:
    store = make_store(streams=3)
    keys = [StreamKey("alice", name) for name in "abcd"]
    async with store.open():
        fill(store, 1, keys[0])
        fill(store, 1, keys[1], last=True)
        fill(store, 1, keys[2], last=True)
        fill(store, 1, keys[3])
        await store.flush()
        with pytest.raises(UnknownCursor):
            store.follow(keys[1])
        for key in (keys[0], keys[2], keys[3]):
            store.follow(key)


async def test_a_new_stream_is_refused_when_all_the_others_are_running(make_store: MakeStore) -> None:
    store = make_store(streams=2)
    async with store.open():
        fill(store, 1, StreamKey("alice", "1"))
        fill(store, 1, StreamKey("alice", "2"))
        with pytest.raises(Overloaded, match=r"StoreLimits\.streams"):
            store.append(StreamKey("alice", "3"), b"x")
        fill(store, 1, StreamKey("alice", "1"))


async def test_a_full_store_lets_finished_streams_go_before_running_ones(make_store: MakeStore) -> None:
    store = make_store(total_bytes=1_000)
    finished, running, growing = (StreamKey("alice", name) for name in "abc")
    async with store.open():
        store.append(running, bytes(400))
        store.append(finished, bytes(400), last=True)
        await store.flush()
        store.append(growing, bytes(300))
        await store.flush()
        with pytest.raises(UnknownCursor):
            store.follow(finished)
        assert await take(store.follow(running), 1) == [(1, bytes(400))]
        late = store.follow(running)
        store.append(growing, bytes(400))
        await store.flush()
        with pytest.raises(LaggedBehind):
            await late.receive()
        store.follow(running, 1)
        assert len(await take(store.follow(growing), 2)) == 2


async def test_a_cancelled_receive_takes_nothing(store: Store) -> None:
    events = fill(store, 2)
    await store.flush()
    follower = store.follow(KEY)
    with trio.CancelScope() as scope:
        scope.cancel()
        await follower.receive()
    assert scope.cancelled_caught
    assert await take(follower, 2) == events


async def test_receive_is_a_checkpoint(store: Store) -> None:
    fill(store, 1)
    await store.flush()
    follower = store.follow(KEY)
    with trio.testing.assert_checkpoints():
        await follower.receive()


async def test_closing_a_follower_wakes_the_task_that_waits_in_it(store: Store) -> None:
    """A new resume wins: the old connection's follower is closed from outside."""
    store.begin(KEY)
    old, new = store.follow(KEY), store.follow(KEY)

    async def read_old() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await old.receive()

    with trio.fail_after(30):
        async with trio.open_nursery() as reading:
            reading.start_soon(read_old)
            await wait_all_tasks_blocked()
            old.close()
    events = fill(store, 1)
    assert await take(new, 1) == events
    with pytest.raises(trio.ClosedResourceError):
        old.receive_nowait()


async def test_the_secret_is_long_and_not_shared(store: Store, make_store: MakeStore) -> None:
    assert len(store.secret) == 32
    assert store.secret != bytes(32)


async def test_an_exception_in_the_block_comes_out_plainly(make_store: MakeStore) -> None:
    with pytest.raises(ZeroDivisionError):
        async with make_store().open():
            raise ZeroDivisionError


async def test_the_store_can_be_cancelled_from_outside(make_store: MakeStore) -> None:
    with trio.CancelScope() as scope:
        async with make_store().open():
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("ab"), st.integers(1, 4)),
        st.tuples(st.just("resume"), st.sampled_from("ab"), st.integers(0, 100)),
        st.tuples(st.just("pass"), st.just(""), st.integers(1, 3)),
        st.tuples(st.just("flush"), st.just(""), st.just(0)),
    ),
    max_size=20,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, tail=st.integers(1, 8))
async def test_readers_that_come_and_go_while_events_arrive_miss_and_repeat_nothing(
    make_store: MakeStore, steps: list[tuple[str, str, int]], tail: int
) -> None:
    """F38: every reader's log is exactly what was appended after its cursor, whatever happened meanwhile."""
    store = make_store(tail_events=tail)
    keys = {name: StreamKey(f"session {name}", "1") for name in "ab"}
    written: dict[str, list[tuple[int, bytes]]] = {"a": [], "b": []}
    logs: list[tuple[str, int, list[tuple[int, bytes]]]] = []

    async def read(name: str, after: int, log: list[tuple[int, bytes]]) -> None:
        log += await drain(store.follow(keys[name], after))

    async with store.open():
        store.forget("session a")  # the file is shared by the examples
        store.forget("session b")
        async with trio.open_nursery() as readers:
            for key in keys.values():
                store.begin(key)
            for step, name, number in steps:
                if step == "append":
                    written[name] += fill(store, number, keys[name])
                elif step == "resume":
                    await store.flush()
                    after = number % (len(written[name]) + 1)
                    logs.append((name, after, []))
                    readers.start_soon(read, *logs[-1])
                elif step == "pass":
                    for _ in range(number):
                        await trio.lowlevel.checkpoint()
                else:
                    await store.flush()
            for name in "ab":
                store.finish(keys[name])
    for name, after, log in logs:
        assert log == written[name][after:]
