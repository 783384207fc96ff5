"""Promises of the Redis store alone: several processes share it, and a server that fails is visible, not fatal.

Two stores with one URL stand for two processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio.errors import DeclarationError
from mcptrio.stores import LaggedBehind, StoreLimits, StreamKey, UnknownCursor, open_store
from mcptrio.stores.base import StoreFailed
from mcptrio.stores.redis import RedisStore, backend
from mcptrio.stores.redis.connection import StoreUnavailable
from tests.redis_server import RedisServer, running_server

from .reading import KEY, drain, fill, stored_record, take


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    with running_server() as server:
        yield server


def make(url: str, **limits: float) -> RedisStore:
    return RedisStore.from_url(url, limits=StoreLimits(**limits))  # type: ignore[arg-type]


def key_of(url: str, rest: str) -> str:
    return f"mcptrio:{{{url.partition('name=')[2]}}}:{rest}"


def stored(server: RedisServer, url: str, stream: str = "alice:1") -> list[tuple[int, bytes]]:
    """The events of a stream in the server."""
    entries = server.command("XRANGE", key_of(url, f"e:{stream}"), "-", "+")
    return [(int(id.partition(b"-")[0]), fields[1]) for id, fields in entries]


async def wait_until(condition: Callable[[], object]) -> None:
    with trio.fail_after(30):
        while not condition():
            await trio.lowlevel.checkpoint()


# -- streams


async def test_the_number_of_an_event_is_its_id_in_the_server(redis_server: RedisServer, url: str) -> None:
    async with (store := make(url)).open():
        events = fill(store, 3, last=True)
        await store.flush()
        entries = redis_server.command("XRANGE", key_of(url, "e:alice:1"), "-", "+")
        assert [id for id, _ in entries] == [b"1-0", b"2-0", b"3-0"]
        assert [fields for _, fields in entries][1:] == [[b"d", events[1][1]], [b"d", events[2][1], b"l", b"1"]]
        assert 0 < redis_server.command("PTTL", key_of(url, "e:alice:1")) <= 600_000


async def test_an_event_is_not_visible_before_it_is_stored(own_server: RedisServer) -> None:
    async with (store := make(own_server.url)).open():
        store.begin(KEY)
        await store.flush()
        own_server.command("CLIENT", "PAUSE", 300)
        follower = store.follow(KEY)
        events = fill(store, 1)
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        with pytest.raises(trio.WouldBlock):
            follower.receive_nowait()
        assert await take(follower, 1) == events


async def test_everything_that_waits_goes_into_one_pipeline(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (store := make(url)).open():
        sizes: list[int] = []
        execute = store.connection.execute

        async def count(commands: Any) -> Any:
            sizes.append(len(commands))
            return await execute(commands)

        monkeypatch.setattr(store.connection, "execute", count)
        for number in range(50):
            fill(store, 3, StreamKey("alice", str(number)))
        await store.flush()
        assert sizes == [50]


async def test_a_slow_reader_continues_from_the_server(url: str) -> None:
    async with (store := make(url, tail_events=2)).open():
        store.begin(KEY)
        follower = store.follow(KEY)
        events = fill(store, 300)
        await store.flush()
        seen = await take(follower, 10)
        events += fill(store, 50, last=True)
        assert seen + await drain(follower) == events


async def test_events_leave_the_server_with_their_stream(redis_server: RedisServer, url: str) -> None:
    async with (store := make(url, stream_events=4)).open():
        for _ in range(3):
            fill(store, 3)
            await store.flush()
        assert [seq for seq, _ in stored(redis_server, url)] == [6, 7, 8, 9]
        store.forget("alice")
        await store.flush()
        assert redis_server.command("EXISTS", key_of(url, "e:alice:1"), key_of(url, "k:alice")) == 0


async def test_a_stream_that_is_begun_again_has_nothing_of_the_earlier_one(redis_server: RedisServer, url: str) -> None:
    """R10: also if so many are removed that one commit does not remove them all."""
    keys = [StreamKey("alice", str(number)) for number in range(600)]
    async with (store := make(url, backlog_events=10_000)).open():  # or a flush would not wait
        for key in keys:
            fill(store, 2, key)
        await store.flush()
        store.forget("alice")
        for key in keys:
            store.append(key, b"new", last=True)
        await store.flush()
        await wait_until(lambda: not store._streams.changed)
        await store.flush()
        for key in keys:
            assert await drain(store.follow(key)) == [(1, b"new")]
            assert stored(redis_server, url, f"alice:{key.stream}") == [(1, b"new")]


async def test_sessions_with_odd_names_do_not_share_a_stream(redis_server: RedisServer, url: str) -> None:
    async with (store := make(url)).open():
        keys = [StreamKey("a:b", "c"), StreamKey("a", "b:c"), StreamKey("a%3Ab", "c")]
        for number, key in enumerate(keys):
            store.append(key, str(number).encode(), last=True)
        await store.flush()
        found = redis_server.command("KEYS", key_of(url, "e:*"))
        assert len(found) == 3


async def test_endpoints_with_other_names_see_nothing(redis_server: RedisServer) -> None:
    async with (one := make(redis_server.url)).open(), (other := make(redis_server.url)).open():
        one.tasks.put("task", b"record", 60)
        await one.flush()
        assert await other.tasks.get("task") is None
        assert one.secret != other.secret


# -- streams of another process


async def test_the_stream_of_another_process_can_be_followed_while_it_is_written(
    redis_server: RedisServer, url: str
) -> None:
    async with (one := make(url, stream_events=200)).open(), (other := make(url)).open():
        events = fill(one, 300)
        await one.flush()
        with pytest.raises(UnknownCursor):
            other.follow(KEY, 100)
        await other.prepare_follow(KEY)
        followers = [(after, other.follow(KEY, after)) for after in (100, 150, 300)]
        for after, follower in followers:
            assert await take(follower, 300 - after) == events[after:]
        for after in (99, 301):
            with pytest.raises(UnknownCursor):
                other.follow(KEY, after)
        events += fill(one, 2)
        events.append((one.append(KEY, b"end", last=True), b"end"))
        for _, follower in followers:
            assert await drain(follower) == events[300:]
        other.forget("alice")
        await other.flush()
        assert len(stored(redis_server, url)) == 200  # it belongs to the other process
        await one.prepare_follow(KEY)
        assert await drain(one.follow(KEY, 300)) == events[300:]


async def test_a_stream_that_was_never_stored_stays_unknown(url: str) -> None:
    async with (store := make(url)).open():
        await store.prepare_follow(KEY)
        with pytest.raises(UnknownCursor):
            store.follow(KEY)
        store.begin(KEY)
        await store.prepare_follow(KEY)
        events = fill(store, 1, last=True)
        assert await drain(store.follow(KEY)) == events


# -- fencing and retries


@pytest.mark.parametrize("shown", [0, 2])
async def test_a_fenced_event_is_never_shown(redis_server: RedisServer, url: str, shown: int) -> None:
    """R1, R2: another process has raised the epoch of the session."""
    async with (store := make(url)).open():
        store.sessions.put("alice", 0, b"record")
        store.begin(KEY)
        events = fill(store, shown)
        await store.flush()
        follower = store.follow(KEY)
        redis_server.command("HSET", key_of(url, "s:alice"), "epoch", "1")
        fill(store, 3)
        assert await take(follower, shown) == events
        with trio.fail_after(30), pytest.raises(trio.ClosedResourceError):
            await follower.receive()
        fill(store, 2)
        await store.flush()
        assert stored(redis_server, url) == events
        with pytest.raises(UnknownCursor):
            store.follow(KEY, shown + 1)
        assert store.degraded is None


async def test_a_fenced_process_changes_and_deletes_nothing(redis_server: RedisServer, url: str) -> None:
    async with (store := make(url)).open():
        store.sessions.put("alice", 0, b"record")
        events = fill(store, 2)
        await store.flush()
        redis_server.command("HSET", key_of(url, "s:alice"), "epoch", "1")
        fill(store, 1)
        store.sessions.put("alice", 0, b"changed")
        await store.flush()
        store.forget("alice")
        store.sessions.forget("alice", 0)
        fill(store, 1, StreamKey("alice", "2"))
        await store.flush()
    assert stored(redis_server, url) == events
    assert redis_server.command("HGET", key_of(url, "s:alice"), "record") == b"record"
    assert redis_server.command("EXISTS", key_of(url, "e:alice:2")) == 0


async def test_a_process_that_does_not_know_that_it_is_fenced_deletes_nothing(
    redis_server: RedisServer, url: str
) -> None:
    async with (store := make(url)).open():
        store.sessions.put("alice", 0, b"record")
        events = fill(store, 2)
        await store.flush()
        redis_server.command("HSET", key_of(url, "s:alice"), "epoch", "1")
        store.forget("alice")
        await store.flush()
        assert stored(redis_server, url) == events


async def test_an_append_whose_reply_was_lost_is_not_doubled(
    redis_server: RedisServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (store := make(url)).open():
        events = fill(store, 2)
        await store.flush()
        execute = store.connection.execute
        lost = 0

        async def lose_reply(commands: Any) -> Any:
            nonlocal lost
            replies = await execute(commands)
            if lost < 3:
                lost += 1
                raise StoreUnavailable("the reply was lost")
            return replies

        monkeypatch.setattr(store.connection, "execute", lose_reply)
        events += fill(store, 3)
        await wait_until(lambda: lost == 3 and store.degraded is None)
        events += fill(store, 2, last=True)
        await store.flush()
        assert stored(redis_server, url) == events
        assert await drain(store.follow(KEY)) == events


async def test_events_that_a_failover_lost_are_written_again(redis_server: RedisServer, url: str) -> None:
    """F30: the new primary has an older state of the stream."""
    async with (store := make(url)).open():
        events = fill(store, 5)
        await store.flush()
        stream = key_of(url, "e:alice:1")
        redis_server.command("DEL", stream)
        for seq, data in events[:2]:
            redis_server.command("XADD", stream, f"{seq}-0", "d", data)
        events += fill(store, 1)
        await wait_until(lambda: len(stored(redis_server, url)) == 6)
        assert stored(redis_server, url) == events
        events += fill(store, 1, last=True)
        assert await drain(store.follow(KEY)) == events


async def test_lost_events_that_memory_does_not_hold_leave_a_gap_that_is_refused(
    redis_server: RedisServer, url: str
) -> None:
    async with (store := make(url, tail_events=3)).open():
        events = fill(store, 10)
        await store.flush()
        late = store.follow(KEY, 1)
        redis_server.command("DEL", key_of(url, "e:alice:1"))
        events += fill(store, 1)
        await wait_until(lambda: len(stored(redis_server, url)) == 4)
        with pytest.raises(LaggedBehind):
            await late.receive()
        with pytest.raises(UnknownCursor):
            store.follow(KEY, 6)
        assert await take(store.follow(KEY, 7), 4) == events[7:]


# -- a server that fails


async def test_killed_connections_cost_no_event(redis_server: RedisServer, url: str) -> None:
    async with (store := make(url)).open():
        store.begin(KEY)
        follower = store.follow(KEY)
        events: list[tuple[int, bytes]] = []
        for _ in range(10):
            events += fill(store, 5)
            await trio.lowlevel.checkpoint()
            redis_server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            events += fill(store, 5)
        events += fill(store, 1, last=True)
        assert await drain(follower) == events
        await wait_until(lambda: store.degraded is None and not store._streams.dirty)
        await store.flush()
        assert stored(redis_server, url) == events


async def test_a_server_that_is_down_degrades_the_store_until_it_is_back(own_server: RedisServer) -> None:
    """Events flow from memory; the server comes back empty, and gets everything that memory holds."""
    states: list[str | None] = []
    url = own_server.url
    store = make(url)
    store.on_state = states.append
    async with store.open():
        store.sessions.put("alice", 0, b"session")
        store.tasks.put("task", b"task", 60)
        store.marks.done("once", "key", b"mark", 60)
        events = fill(store, 3)
        await store.flush()
        secret = store.secret
        follower = store.follow(KEY)
        own_server.stop()
        events += fill(store, 2)
        assert await take(follower, 5) == events
        assert store.degraded is not None
        await store.flush()  # returns, though nothing can be written
        assert await store.tasks.get("task") == b"task"
        with trio.fail_after(30), pytest.raises(StoreUnavailable):
            await store.tasks.get("unknown")
        with pytest.raises(StoreUnavailable):
            await store.marks.use("state", "one", b"", 60)
        own_server.start()
        await wait_until(lambda: store.degraded is None)
        events += fill(store, 1, last=True)
        assert await drain(follower) == events[5:]
        await store.flush()
        assert stored(own_server, url) == events
        assert own_server.command("GET", key_of(url, "secret")) == secret
        for name, key in (("s:alice", b"session"), ("t:task", b"task")):
            assert own_server.command("HGET", key_of(url, name), "record") == key
        assert await store.marks.get("once", "key") == b"mark"
    assert states == [states[0], None]


async def test_an_emptied_server_is_noticed_and_filled_again(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "CHECK_EVERY", 0.05)
    url = own_server.url
    async with (store := make(url, tail_events=3)).open():
        store.sessions.put("alice", 0, b"session")
        events = fill(store, 6)
        await store.flush()
        own_server.command("FLUSHALL")
        await wait_until(lambda: own_server.command("HGET", key_of(url, "s:alice"), "record") == b"session")
        await wait_until(lambda: stored(own_server, url) == events[3:])
        with pytest.raises(UnknownCursor):
            store.follow(KEY, 2)
        assert own_server.command("GET", key_of(url, "secret")) == store.secret


async def test_a_store_with_nothing_to_write_recovers_from_an_emptied_server(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "CHECK_EVERY", 0.05)
    url = own_server.url
    async with (store := make(url)).open():
        own_server.command("FLUSHALL")
        await wait_until(lambda: own_server.command("GET", key_of(url, "secret")) == store.secret)
        await wait_until(lambda: store.degraded is None)
        store.sessions.put("alice", 0, b"session")
        await store.flush()
        assert own_server.command("HGET", key_of(url, "s:alice"), "record") == b"session"


async def test_a_commit_notices_that_the_server_was_emptied(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "CHECK_EVERY", 1_000)
    url = own_server.url
    async with (store := make(url)).open():
        store.tasks.put("task", b"record", 60)
        events = fill(store, 2)
        await store.flush()
        own_server.command("FLUSHALL")
        events += fill(store, 1)
        await wait_until(lambda: stored(own_server, url) == events)
        await wait_until(lambda: own_server.command("HGET", key_of(url, "t:task"), "record") == b"record")


async def test_a_server_with_another_secret_is_not_written_to(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "CHECK_EVERY", 0.05)
    url = own_server.url
    async with (store := make(url)).open():
        own_server.command("SET", key_of(url, "secret"), bytes(32))
        await wait_until(lambda: "restart this process" in (store.degraded or ""))
        assert own_server.command("GET", key_of(url, "secret")) == bytes(32)


async def test_a_read_only_replica_degrades_the_store(own_server: RedisServer) -> None:
    url = own_server.url
    async with (store := make(url)).open():
        events = fill(store, 1)
        await store.flush()
        own_server.command("REPLICAOF", "127.0.0.1", "1")
        events += fill(store, 2)
        await wait_until(lambda: store.degraded)
        own_server.command("REPLICAOF", "NO", "ONE")
        await wait_until(lambda: store.degraded is None)
        await store.flush()
        assert stored(own_server, url) == events


async def test_a_full_server_degrades_the_store(own_server: RedisServer) -> None:
    url = own_server.url
    async with (store := make(url)).open():
        events = fill(store, 1)
        await store.flush()
        own_server.command("CONFIG", "SET", "maxmemory", "1")
        events += fill(store, 2)
        await wait_until(lambda: "OOM" in (store.degraded or ""))
        assert await take(store.follow(KEY), 3) == events
        own_server.command("CONFIG", "SET", "maxmemory", "0")
        await wait_until(lambda: store.degraded is None)
        await store.flush()
        assert stored(own_server, url) == events


async def test_a_slow_server_degrades_the_store(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcptrio.stores._group_commit.SLOW_COMMIT", 0.1)
    url = own_server.url
    async with (store := make(url)).open():
        store.begin(KEY)
        await store.flush()
        follower = store.follow(KEY)
        own_server.command("CLIENT", "PAUSE", 2_500)
        events = fill(store, 2)
        assert await take(follower, 2) == events
        assert "longer than" in (store.degraded or "")
        own_server.command("CLIENT", "UNPAUSE")
        await wait_until(lambda: store.degraded is None)
        assert stored(own_server, url) == events


async def test_scripts_that_the_server_forgot_are_sent_again(redis_server: RedisServer, url: str) -> None:
    async with (store := make(url)).open():
        redis_server.command("SCRIPT", "FLUSH")
        events = fill(store, 2, last=True)
        await store.flush()
        assert store.degraded is None
        assert stored(redis_server, url) == events
        redis_server.command("SCRIPT", "FLUSH")
        assert await store.marks.use("state", "one", b"", 60) is None


async def test_waiting_events_are_written_when_the_store_is_cancelled(redis_server: RedisServer, url: str) -> None:
    with trio.CancelScope() as scope:
        async with (store := make(url)).open():
            events = fill(store, 20)
            scope.cancel()
            events += fill(store, 20)
            await trio.sleep_forever()
    assert stored(redis_server, url) == events


async def test_a_server_that_may_evict_keys_is_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with running_server("--maxmemory-policy", "allkeys-lru") as server:
        async with make(server.url).open():
            assert "set it to noeviction" in caplog.text


# -- records


async def test_records_are_read_by_every_process(url: str) -> None:
    async with (one := make(url)).open(), (other := make(url)).open():
        assert one.secret == other.secret
        one.sessions.put("alice", 0, b"session")
        one.tasks.put("task", b"working", 60, owner="alice")
        one.marks.done("once", "key", b"result", 60)
        await one.flush()
        assert await stored_record(other, "alice") == b"session"
        assert await other.tasks.get("task") == b"working"
        assert await other.marks.get("once", "key") == b"result"
        one.tasks.put("task", b"completed", 60)
        await one.flush()
        assert await other.tasks.get("task") == b"completed"
        other.tasks.drop("task")
        await other.flush()
        assert await one.tasks.get("task") is None


async def test_of_all_processes_one_is_the_first_to_use_a_mark(url: str) -> None:
    async with (one := make(url)).open(), (other := make(url)).open():
        found: list[bytes | None] = []

        async def use(store: RedisStore, value: bytes) -> None:
            found.append(await store.marks.use("dpop", "proof", value, 60))

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(use, one, b"%d" % number)
                nursery.start_soon(use, other, b"%d" % (number + 10))
        assert found.count(None) == 1
        assert len({value for value in found if value is not None}) == 1


async def test_a_cancelled_task_knows_whether_it_has_set_a_mark(url: str) -> None:
    async with (store := make(url)).open():
        with trio.CancelScope() as scope:

            async def cancel() -> None:
                await trio.lowlevel.checkpoint()
                scope.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel)
                assert await store.marks.use("once", "key", b"claim", 60) is None
                store.marks.drop("once", "key")
        await store.flush()
        assert await store.marks.get("once", "key") is None


async def test_records_expire_in_the_server(redis_server: RedisServer, url: str) -> None:
    async with (store := make(url)).open():
        store.tasks.put("short", b"1", ttl=0.05)
        store.tasks.put("late", b"1", ttl=-1)
        store.tasks.put("long", b"2", ttl=60)
        store.tasks.put("endless", b"3")
        await store.marks.use("dpop", "proof", b"first", 0.05)
        await store.flush()
        assert await store.tasks.get("late") is None
        await wait_until(
            lambda: not redis_server.command("EXISTS", key_of(url, "t:short"), key_of(url, "m:dpop:proof"))
        )
        assert await store.tasks.get("short") is None
        assert await store.marks.use("dpop", "proof", b"second", 60) is None
        assert [await store.tasks.get("long"), await store.tasks.get("endless")] == [b"2", b"3"]
        assert redis_server.command("PTTL", key_of(url, "t:endless")) > 0
        assert await store.marks.get("dpop", "proof") == b"second"


async def test_the_expiry_of_a_mark_here_does_not_free_one_that_another_process_set(url: str) -> None:
    async with (one := make(url)).open(), (other := make(url)).open():
        assert await one.marks.use("dpop", "proof", b"one", 0.02) is None
        with trio.fail_after(30):
            while await other.marks.use("dpop", "proof", b"other", 60) is not None:
                pass
        await wait_until(lambda: len(one.marks) == 0)
        await one.flush()
        assert await one.marks.use("dpop", "proof", b"again", 60) == b"other"


async def test_the_life_of_a_live_session_is_prolonged(
    redis_server: RedisServer, url: str, mock_clock: MockClock
) -> None:
    """Also that of its unfinished streams; finished ones and other sessions expire."""
    finished = StreamKey("alice", "2")
    async with (store := make(url)).open():
        store.sessions.put("alice", 0, b"record")
        store.sessions.put("gone", 0, b"record")
        fill(store, 1)
        fill(store, 1, finished, last=True)
        await store.flush()
        store._home._rows.pop("gone")  # as if the process that had it was killed
        keys = [key_of(url, name) for name in ("s:alice", "k:alice", "e:alice:1", "e:alice:2", "s:gone")]
        for key in keys:
            assert 0 < redis_server.command("PTTL", key) <= 1_800_000
            redis_server.command("PEXPIRE", key, 50_000)
        await wait_all_tasks_blocked()
        mock_clock.jump(601)
        await wait_all_tasks_blocked()
        await store.flush()
        prolonged = [redis_server.command("PTTL", key) > 1_000_000 for key in keys]
        assert prolonged == [True, True, True, False, False]


# -- the bus


class Listener:
    """Notes what a callback hears."""

    def __init__(self, store: RedisStore, *topics: str) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.handle = store.bus.subscribe(topics, lambda topic, payload: self.heard.append((topic, payload)))


async def test_a_change_reaches_the_subscribers_of_every_process_once(url: str) -> None:
    async with (one := make(url)).open(), (other := make(url)).open():
        near, far, deaf = Listener(one, "tools"), Listener(other, "tools", "prompts"), Listener(other, "prompts")
        await one.bus.settled()
        await other.bus.settled()
        one.bus.publish("tools", {"uri": "a://b", "n": [1, None, "ü"]})
        assert near.heard == [("tools", {"uri": "a://b", "n": [1, None, "ü"]})]
        await wait_until(lambda: far.heard)
        one.bus.publish("prompts")
        await wait_until(lambda: deaf.heard)
        assert far.heard == [("tools", {"uri": "a://b", "n": [1, None, "ü"]}), ("prompts", None)]
        assert len(near.heard) == 1
        assert deaf.heard == [("prompts", None)]


async def test_a_topic_without_subscribers_is_left(redis_server: RedisServer, url: str) -> None:
    async with (store := make(url)).open():
        channel = key_of(url, "b:tools").encode()
        first, second = Listener(store, "tools"), Listener(store, "tools")
        await store.bus.settled()
        assert redis_server.command("PUBSUB", "NUMSUB", channel) == [channel, 1]
        first.handle.close()
        first.handle.close()
        await store.bus.settled()
        assert redis_server.command("PUBSUB", "NUMSUB", channel) == [channel, 1]
        second.handle.close()
        await store.bus.settled()
        assert redis_server.command("PUBSUB", "NUMSUB", channel) == [channel, 0]
        third = Listener(store, "tools")
        third.handle.close()
        fourth = Listener(store, "tools")
        await store.bus.settled()
        assert redis_server.command("PUBSUB", "NUMSUB", channel) == [channel, 1]
        fourth.handle.close()


async def test_changes_during_a_lost_connection_arrive_after_it(redis_server: RedisServer, url: str) -> None:
    async with (one := make(url)).open(), (other := make(url)).open():
        changed, same, fresh = Listener(other, "changed"), Listener(other, "same"), Listener(other, "fresh")
        await other.bus.settled()
        one.bus.publish("changed", 1)
        one.bus.publish("same", 1)
        await wait_until(lambda: changed.heard and same.heard)
        (client,) = await other.connection.execute([("CLIENT", "ID")])
        other.connection.address, address = (
            other.connection.address.__class__(unix_path="/nowhere"),
            other.connection.address,
        )
        redis_server.command("CLIENT", "KILL", "ID", client)
        await wait_until(lambda: other.connection._failures)
        one.bus.publish("changed", 2)
        one.bus.publish("changed", 3)
        one.bus.publish("fresh", 1)
        await wait_until(lambda: not one.bus._unsent)
        await one.connection.execute([("PING",)])
        other.connection.address = address
        await wait_until(lambda: len(changed.heard) == 2 and fresh.heard)
        assert changed.heard == [("changed", 1), ("changed", 3)]
        assert fresh.heard == [("fresh", 1)]
        one.bus.publish("same", 2)
        await wait_until(lambda: len(same.heard) > 1)
        assert same.heard == [("same", 1), ("same", 2)]


async def test_a_change_just_before_a_subscription_is_heard_and_an_older_one_is_not(
    redis_server: RedisServer, url: str
) -> None:
    async with (one := make(url)).open(), (other := make(url)).open():
        one.bus.publish("new", 1)
        one.bus.publish("old", 1)
        await wait_until(lambda: not one.bus._unsent)
        await one.connection.execute([("PING",)])
        redis_server.command("PEXPIRE", key_of(url, "v:old"), 86_400_000 - 60_000)  # as if a minute had passed
        new, old = Listener(other, "new"), Listener(other, "old")
        await other.bus.settled()
        assert (new.heard, old.heard) == ([("new", 1)], [])
        new.handle.close()
        old.handle.close()


async def test_changes_while_the_server_is_down_are_published_later(own_server: RedisServer) -> None:
    url = own_server.url
    async with (one := make(url)).open(), (other := make(url)).open():
        far = Listener(other, "tools")
        await other.bus.settled()
        own_server.stop()
        await wait_until(lambda: one.connection._failures and other.connection._failures)
        for number in range(3):
            one.bus.publish("tools", number)
        own_server.start()
        await wait_until(lambda: far.heard)
        assert far.heard == [("tools", 2)]


async def test_the_last_change_is_published_when_the_store_is_closed(url: str) -> None:
    async with (other := make(url)).open():
        far = Listener(other, "tools")
        await other.bus.settled()
        async with (one := make(url)).open():
            one.bus.publish("tools", "last")
        await wait_until(lambda: far.heard)


async def test_a_change_of_one_process_alone_is_counted_for_all(url: str) -> None:
    """Its version shows a session that is taken over elsewhere that it has missed something."""
    async with (one := make(url)).open(), (other := make(url)).open():
        far = Listener(other, "tools")
        await other.bus.settled()
        before = await other.bus.versions(["tools"])
        one.bus.publish("tools", 1, everywhere=False)
        await wait_until(lambda: other.bus._versions["tools"])
        assert await other.bus.versions(["tools"]) != before
        one.bus.publish("tools", 2)
        one.bus.publish("tools", 3, everywhere=False)  # does not replace the one for all, which waits
        await wait_until(lambda: far.heard)
        assert far.heard == [("tools", 2)]


async def test_topics_that_wait_are_bounded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcptrio.stores.redis.bus.MAX_UNSENT", 3)
    async with (store := make(url)).open():
        for number in range(10):
            store.bus.publish(str(number % 5))
        assert len(store.bus._unsent) == 3


# -- settings

ACL = (
    "resetchannels ~mcptrio:{NAME}:* &mcptrio:{NAME}:* -@all +hello +ping +select +wait +script|load +evalsha +eval "
    "+get +mget +set +del +exists +pttl +pexpire +time +hget +hmget +hgetall +hexists +hset +hdel +hincrby +sadd +srem "
    "+smembers +xadd +xtrim +xrange +xrevrange +publish +subscribe +unsubscribe"
)
"""As docs/howto/redis.md has it."""


CHECKED = ("hello", "ping", "select", "wait", "script|load", "evalsha", "eval", "subscribe", "unsubscribe")
"""Rights that the login, or a later command of its own, shows to be missing."""


async def test_a_right_that_the_user_lacks_is_named_at_the_start(redis_server: RedisServer) -> None:
    rights = ACL.replace("NAME", "rights").split()
    url = f"redis+unix://poor:secret@{redis_server.path}?name=rights"
    needed = [right[1:] for right in rights if right[0] == "+" and right[1:] not in CHECKED]
    for right in needed:
        redis_server.command("ACL", "SETUSER", "poor", "reset", "on", ">secret", *rights, f"-{right}")
        with pytest.raises(StoreFailed, match=rf"NOPERM: \+{right} .*the how-to page on Redis"):
            async with make(url).open():
                pass
        keys = redis_server.command("KEYS", "mcptrio:{rights}:check:*")
        assert all(redis_server.command("PTTL", key) != -1 for key in keys), "they expire"
    redis_server.command("ACL", "SETUSER", "poor", "reset", "on", ">secret", *rights, "-subscribe")
    async with (store := make(url)).open():
        with pytest.raises(StoreFailed, match=r"'subscribe' command .*the how-to page on Redis"):
            await store.listen_to_workers(lambda message: None)
    redis_server.command("ACL", "SETUSER", "poor", "reset", "on", ">secret", *rights)
    async with make(url).open():
        pass
    left = redis_server.command("KEYS", "mcptrio:{rights}:*")
    assert not any(b":check:" in key for key in left)


@pytest.mark.parametrize(
    ("options", "setting", "how"),
    [
        ((), ("REPLICAOF", "127.0.0.1", "1"), "name the primary"),
        (("--maxmemory", "1"), (), "raise its maxmemory"),
        (("--min-replicas-to-write", "1"), (), "NOREPLICAS Not enough good replicas"),  # not a lack of rights
    ],
    ids=["replica", "full", "no replicas"],
)
async def test_a_server_that_cannot_be_written_is_refused_with_advice(
    options: tuple[str, ...], setting: tuple[str, ...], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running_server(*options) as server:
        if setting:
            server.command(*setting)
        with pytest.raises(StoreFailed, match=how):
            async with make(server.url).open():
                pass
    assert caplog.messages == []


async def test_the_documented_acl_is_sufficient(redis_server: RedisServer) -> None:
    rights = ACL.replace("NAME", "orders").split()
    redis_server.command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rights)
    url = f"redis+unix://app:secret@{redis_server.path}?name=orders&wait=1"
    async with (one := make(url, stream_events=3)).open(), (other := make(url)).open():
        far = Listener(other, "tools")
        await other.bus.settled()
        one.bus.publish("tools")
        await one.bus.versions(["tools"])
        one.sessions.put("alice", 0, b"record")
        one.tasks.put("task", b"record")
        one.tasks.put("other", b"record")
        one.tasks.drop("other")
        fill(one, 5, last=True)
        await one.flush()
        assert one.degraded is None
        assert await other.tasks.get("task") == b"record"
        assert await other.marks.use("state", "one", b"", 60) is None
        one.forget("alice")
        one.sessions.forget("alice", 0)
        await one.flush()
        assert one.degraded is None
        assert await stored_record(other, "alice") is None
        one.sessions.put("bob", 0, b"record")
        fill(one, 1, StreamKey("bob", "1"))
        await one.flush()
        for store in (one, other):
            assert await store.sessions.renew("x", 60, store.secret) == "live"
        await other.prepare_follow(StreamKey("bob", "1"))
        await take(other.follow(StreamKey("bob", "1")), 1)
        assert await one.sessions.release("bob", 0, b"record", ttl=60)
        assert await stored_record(other, "bob") == b"record"
        await other.sessions.sweep()
        await other.sessions.find_lost()
        await other.sessions.declare_dead(one.sessions.worker)
        await wait_until(lambda: far.heard)
        far.handle.close()
        await other.bus.settled()
        assert await other.connection.ask("PING") == b"PONG"


def test_a_store_is_chosen_by_its_url() -> None:
    store = open_store("redis://app:secret@localhost/2?name=orders", password="better")
    assert isinstance(store, RedisStore)
    assert store.shared
    assert store.connection.address.password == "better"


def test_a_wrong_url_is_refused() -> None:
    with pytest.raises(DeclarationError, match="redis"):
        open_store("redis://")
