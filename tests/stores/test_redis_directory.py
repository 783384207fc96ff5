"""Sessions and workers in Redis: homes, epochs, leases, and streams that are followed in another process.

Two stores with one URL stand for two processes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
from msgspec.structs import replace

from mcptrio.errors import Overloaded
from mcptrio.stores import Claimed, HomeAt, LaggedBehind, StoreLimits, StreamKey, UnknownCursor
from mcptrio.stores.redis import RedisStore, backend, mirrors
from mcptrio.stores.redis.connection import StoreUnavailable
from tests.redis_server import RedisServer, running_server

from .reading import KEY, drain, fill, take
from .test_redis import key_of, stored, wait_until

LEASE = 60.0


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    with running_server() as server:
        yield server


@asynccontextmanager
async def worker(url: str, name: str = "", lease: float = LEASE, **limits: float) -> AsyncIterator[RedisStore]:
    """A store; with a name, that of a worker with a lease."""
    store = RedisStore.from_url(url, limits=StoreLimits(**limits))  # type: ignore[arg-type]
    async with store.open():
        if name:
            store.sessions.worker = name
            assert await store.sessions.renew(f"at {name}", lease, store.secret) == "live"
        yield store


def note_fenced(store: RedisStore) -> list[str]:
    fenced: list[str] = []
    store.on_fenced = fenced.append
    return fenced


# -- sessions


def without_time_left(claimed: Claimed | HomeAt | None) -> Claimed:
    assert isinstance(claimed, Claimed)
    assert claimed.left is not None
    return replace(claimed, left=None)


async def test_a_session_has_one_home_at_a_time(url: str) -> None:
    async with worker(url, "one") as one, worker(url, "other") as other:
        one.sessions.put("alice", 0, b"first", owner="a")
        await one.flush()
        assert await other.sessions.claim("alice") == HomeAt("one", "at one", 0)
        assert await one.sessions.release("alice", 0, b"second", ttl=60)
        assert await other.sessions.look("alice") is None
        assert without_time_left(await other.sessions.claim("alice")) == Claimed(epoch=1, record=b"second", owner="a")
        assert await one.sessions.claim("alice") == HomeAt("other", "at other", 1)
        assert await one.sessions.look("alice") == HomeAt("other", "at other", 1)
        other.sessions.forget("alice", 1)
        await other.flush()
        assert await one.sessions.claim("alice") is None


async def test_a_claim_of_a_session_at_home_here_does_not_raise_the_epoch(url: str) -> None:
    """R9: the reply to an earlier claim may have been lost."""
    async with worker(url, "one") as one:
        one.sessions.put("alice", 0, b"record")
        assert await one.sessions.release("alice", 0, b"record", ttl=60)
        for _ in range(2):
            assert without_time_left(await one.sessions.claim("alice")) == Claimed(epoch=1, record=b"record")


@pytest.mark.parametrize("how", ["declared dead", "lease ends", "not a worker", "denies"])
async def test_a_session_of_a_dead_worker_can_be_claimed(redis_server: RedisServer, url: str, how: str) -> None:
    async with worker(url, "" if how == "not a worker" else "one") as one, worker(url, "other") as other:
        fenced = note_fenced(one)
        one.sessions.put("alice", 0, b"record")
        one.begin(KEY, call=b"call")
        events = fill(one, 2)
        await one.flush()
        denied = None
        match how:
            case "declared dead":
                await other.sessions.declare_dead("one")
            case "lease ends":
                redis_server.command("HSET", key_of(url, "workers"), "one", "1 at one")
            case "denies":
                denied = HomeAt("one", "", 0)
        claimed = await other.sessions.claim("alice", denied)
        previous = one.sessions.worker
        expected = Claimed(epoch=1, record=b"record", previous=previous, calls={"1": b"call"})
        assert without_time_left(claimed) == expected
        assert await other.reopen(KEY) == 2
        events.append((other.append(KEY, b"error", last=True), b"error"))
        await other.flush()
        follower = one.follow(KEY)
        fill(one, 3)
        assert await take(follower, 2) == events[:2]
        with trio.fail_after(30), pytest.raises(trio.ClosedResourceError):  # R2
            await follower.receive()
        assert fenced == ["alice"]
        assert stored(redis_server, url) == events
        if how != "declared dead":
            assert isinstance(await one.sessions.claim("alice"), HomeAt)


async def test_a_fenced_worker_writes_and_deletes_nothing(redis_server: RedisServer, url: str) -> None:
    async with worker(url) as one, worker(url) as other:
        fenced = note_fenced(one)
        one.sessions.put("alice", 0, b"record")
        events = fill(one, 2)
        await one.flush()
        await other.sessions.claim("alice")
        one.sessions.put("alice", 0, b"changed")
        await one.flush()
        assert fenced == ["alice"]
        fill(one, 1)
        one.append(StreamKey("alice", "2"), b"new")
        one.sessions.put("alice", 0, b"changed")
        assert await one.sessions.release("alice", 0, b"changed", ttl=60)
        one.forget("alice")
        one.sessions.forget("alice", 0)
        await one.flush()
        assert stored(redis_server, url) == events
        assert redis_server.command("EXISTS", key_of(url, "e:alice:2")) == 0
        assert redis_server.command("HGET", key_of(url, "s:alice"), "record") == b"record"
        other.sessions.forget("alice", 1)
        await other.flush()
        one.append(StreamKey("alice", "3"), b"late")  # also after the session has ended elsewhere
        await one.flush()
        assert redis_server.command("EXISTS", key_of(url, "e:alice:3")) == 0
        assert fenced == ["alice"]


async def test_a_late_event_of_an_earlier_epoch_is_refused(url: str) -> None:
    """Writes of an earlier object are lost after its worker has claimed the session again."""
    async with worker(url) as one, worker(url) as other:
        one.sessions.put("alice", 0, b"record")
        fill(one, 1)
        await one.flush()
        await other.sessions.claim("alice")
        fill(one, 1)
        await one.flush()
        await one.sessions.claim("alice")
        assert await one.reopen(KEY) == 1
        assert one.append(KEY, b"second") == 2
        await one.flush()
        assert await take(one.follow(KEY), 2) == [(1, b"alice/1/0"), (2, b"second")]


async def test_a_pinned_session_is_gone_with_its_worker(redis_server: RedisServer, url: str) -> None:
    async with worker(url, "one") as one, worker(url, "other") as other:
        one.sessions.put("alice", 0, b"record", pinned=True)
        fill(one, 1)
        await one.flush()
        assert isinstance(await other.sessions.claim("alice"), HomeAt)
        await other.sessions.declare_dead("one")
        assert await other.sessions.claim("alice") is None
        assert redis_server.command("EXISTS", *(key_of(url, name) for name in ("s:alice", "e:alice:1", "k:alice"))) == 0


async def test_a_record_of_a_newer_version_is_not_claimed(redis_server: RedisServer, url: str) -> None:
    async with worker(url) as one, worker(url) as other:
        one.sessions.put("alice", 0, b"record")
        await one.flush()
        redis_server.command("HSET", key_of(url, "s:alice"), "format", "99")
        with pytest.raises(Overloaded, match="newer version"):
            await other.sessions.claim("alice")


async def test_a_release_waits_for_the_events(own_server: RedisServer) -> None:
    url = own_server.url
    async with worker(url) as one, worker(url) as other:
        one.sessions.put("alice", 0, b"record")
        events = fill(one, 300)
        assert await one.sessions.release("alice", 0, b"record", ttl=60)
        assert stored(own_server, url) == events
        assert list(one._streams.index) == []
        await other.sessions.claim("alice")
        own_server.stop()
        fill(other, 1)
        assert not await other.sessions.release("alice", 1, b"record", ttl=60)
        own_server.start()


async def test_a_release_that_is_not_answered_is_tried_again(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been executed, and the session may have another home since."""
    url = own_server.url
    async with worker(url, "one") as one, worker(url, "other") as other:
        one.sessions.put("alice", 0, b"record")
        await one.flush()

        async def unavailable(*_: object) -> list[object]:
            raise StoreUnavailable("gone")

        one.connection._slow_until = float("inf")  # requests are refused; it is none
        with monkeypatch.context() as broken:
            broken.setattr(one.connection, "execute", unavailable)
            assert not await one.sessions.release("alice", 0, b"changed", ttl=60)
        assert one.sessions.epoch_of("alice") == 0
        assert await one.sessions.release("alice", 0, b"changed", ttl=60)
        claimed = await other.sessions.claim("alice")
        assert isinstance(claimed, Claimed)
        assert claimed.record == b"changed"
        assert one.sessions._home.find("alice") is None


async def test_a_released_session_expires_with_its_time_to_live(redis_server: RedisServer, url: str) -> None:
    async with worker(url) as one:
        one.sessions.put("alice", 0, b"record")
        await one.sessions.release("alice", 0, b"record", ttl=30)
        assert 0 < redis_server.command("PTTL", key_of(url, "s:alice")) <= 30_000


# -- workers


async def test_an_expired_worker_is_swept_and_joins_again_under_a_new_id(redis_server: RedisServer, url: str) -> None:
    news: list[bytes] = []
    async with worker(url, "one") as one, worker(url, "other") as other:
        await other.listen_to_workers(news.append)
        one.sessions.put("alice", 0, b"record")
        await one.flush()
        redis_server.command("HSET", key_of(url, "workers"), "one", "1 at one")
        dead, live = await other.sessions.sweep()
        assert dead == ["one"]
        assert [(name, about) for name, (_, about) in live.items()] == [("other", "at other")]
        await wait_until(lambda: news == [b"dead one"])
        assert await one.sessions.renew("at one", LEASE, one.secret) == "dead"
        with pytest.raises(Overloaded):
            await one.sessions.claim("alice")
        fenced = note_fenced(one)
        one.sessions.start_over()
        assert fenced == ["alice"]
        one.sessions.worker = "new"
        assert await one.sessions.renew("at one", LEASE, one.secret) == "live"
        claimed = await one.sessions.claim("alice")
        assert without_time_left(claimed) == Claimed(epoch=1, record=b"record", previous="one")


async def test_leases_that_expired_in_an_outage_of_the_server_cost_no_session(
    redis_server: RedisServer, url: str
) -> None:
    """A server that was paused finds all leases expired, and reads the claim of one worker before other renewals."""
    async with worker(url, "one") as one, worker(url, "other") as other:
        one.sessions.put("alice", 0, b"record")
        await one.flush()
        expired = int(redis_server.command("TIME")[0]) * 1000 - 1
        redis_server.command("HSET", key_of(url, "workers"), "one", f"{expired} at one", "other", f"{expired} at other")
        other.sessions._expires = expired + 200  # it knows no newer lease of its own
        other.sessions.grace = 60
        at_one = HomeAt("one", "at one", 0)
        assert (await other.sessions.sweep())[0] == []
        assert await other.sessions.claim("alice") == at_one
        await other.sessions.renew("at other", LEASE, other.secret)
        assert (await other.sessions.sweep())[0] == []  # it gives the other one time to renew its lease
        assert await other.sessions.claim("alice") == at_one
        other.sessions._grace_until = 0.0
        assert isinstance(await other.sessions.claim("alice"), Claimed)
        assert (await other.sessions.sweep())[0] == ["one"]


async def test_a_worker_whose_lease_had_expired_finds_the_sessions_that_it_lost(url: str) -> None:
    async with worker(url, "one") as one, worker(url, "other") as other:
        fenced = note_fenced(one)
        for name in ("alice", "bob"):
            one.sessions.put(name, 0, b"record")
        await one.flush()
        await other.sessions.claim("alice", HomeAt("one", "", 0))
        await one.sessions.find_lost()
        assert fenced == ["alice"]


async def test_an_emptied_server_does_not_count_as_a_dead_worker(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if another worker was faster to store the secret again."""
    monkeypatch.setattr(backend, "CHECK_EVERY", 1_000)
    url = own_server.url
    async with worker(url, "one") as one, worker(url, "other") as other:
        fenced = note_fenced(one)
        one.sessions.put("alice", 0, b"record")
        events = fill(one, 2)
        await one.flush()
        own_server.command("FLUSHALL")
        assert await other.sessions.renew("at other", LEASE, other.secret) == "emptied"
        other.note_emptied()
        await wait_until(lambda: own_server.command("EXISTS", key_of(url, "secret")))
        assert await one.sessions.renew("at one", LEASE, one.secret) == "emptied"
        events += fill(one, 1)  # the commit notices it as well, and is not fenced
        await wait_until(lambda: stored(own_server, url) == events)
        assert own_server.command("HGET", key_of(url, "s:alice"), "home") == b"one"
        assert fenced == []
        one.sessions.joined = False
        assert await one.sessions.renew("at one", LEASE, one.secret) == "live"


async def test_a_stale_worker_does_not_replace_a_session_after_the_server_was_emptied(own_server: RedisServer) -> None:
    url = own_server.url
    async with worker(url) as one, worker(url) as other:
        fenced = note_fenced(one)
        one.sessions.put("alice", 0, b"stale")
        await one.flush()
        await other.sessions.claim("alice")
        own_server.command("FLUSHALL")
        for store in (other, one):
            store.note_emptied()
            await wait_until(lambda store=store: not store._damaged and store.degraded is None)  # type: ignore[misc]
        other.sessions.put("alice", 1, b"new")
        await other.flush()
        assert own_server.command("HGET", key_of(url, "s:alice"), "record") == b"new"
        assert fenced == ["alice"]


async def test_events_are_held_back_once_the_lease_has_expired(own_server: RedisServer) -> None:
    async with worker(own_server.url) as one:
        one.begin(KEY)
        await one.flush()
        follower = one.follow(KEY)
        own_server.stop()
        events = fill(one, 1)
        assert await take(follower, 1) == events
        one.holds_back = True
        one.append(KEY, b"late")
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        with pytest.raises(trio.WouldBlock):
            follower.receive_nowait()
        own_server.start()
        assert await take(follower, 1) == [(2, b"late")]


# -- streams of other workers


async def followed(store: RedisStore, key: StreamKey = KEY, after: int = 0) -> Callable[[int], object]:
    await store.prepare_follow(key)
    follower = store.follow(key, after)
    return lambda count: take(follower, count)


async def test_a_call_that_has_sent_nothing_can_be_followed(url: str) -> None:
    async with worker(url) as one, worker(url) as other:
        one.begin(KEY, call=b"call")
        await one.flush()
        await other.prepare_follow(KEY)
        follower = other.follow(KEY)
        events = fill(one, 2)
        assert await take(follower, 2) == events
        one.finish(KEY)
        assert await drain(follower) == []


async def test_a_large_event_is_fetched(url: str) -> None:
    async with worker(url) as one, worker(url) as other:
        one.append(KEY, b"small")
        await one.flush()
        await other.prepare_follow(KEY)
        follower = other.follow(KEY)
        sent = [b"small", bytes(backend.MAX_PUSHED + 1), b"next", bytes(backend.MAX_PUSHED + 2)]
        for data in sent[1:]:
            one.append(KEY, data, last=data is sent[-1])
        assert await drain(follower) == list(enumerate(sent, 1))


async def test_a_mirror_catches_up_after_a_lost_connection(redis_server: RedisServer, url: str) -> None:
    """Events that were published meanwhile are found by their numbers."""
    async with worker(url) as one, worker(url) as other:
        events = fill(one, 2)
        await one.flush()
        await other.prepare_follow(KEY)
        follower = other.follow(KEY)
        assert await take(follower, 2) == events
        other.connection.lose("for the test")
        events += fill(one, 5)
        await one.flush()
        assert await take(follower, 5) == events[2:]
        more = fill(one, 3, last=True)
        assert await drain(follower) == more


async def test_a_gap_between_pushes_is_filled(url: str) -> None:
    async with worker(url) as one, worker(url) as other:
        events = fill(one, 1)
        await one.flush()
        await other.prepare_follow(KEY)
        follower = other.follow(KEY)
        deliver, other.mirrors.on_message = other.mirrors.on_message, lambda *_: None  # type: ignore[method-assign]
        events += fill(one, 3)
        await one.flush()
        await other.connection.ask("PING")
        other.mirrors.on_message = deliver  # type: ignore[method-assign]
        events += fill(one, 2, last=True)
        assert await drain(follower) == events


async def test_a_follower_of_a_forgotten_session_ends(url: str) -> None:
    async with worker(url) as one, worker(url) as other:
        one.sessions.put("alice", 0, b"record")
        events = fill(one, 1)
        await one.flush()
        await other.prepare_follow(KEY)
        follower = other.follow(KEY)
        assert await take(follower, 1) == events
        one.forget("alice")
        one.sessions.forget("alice", 0)
        assert await drain(follower) == []


async def test_a_follower_waits_for_events_of_an_emptied_server(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the first to notice; their home writes them again."""
    monkeypatch.setattr(backend, "CHECK_EVERY", 1_000)
    url = own_server.url
    async with worker(url) as one, worker(url) as other:
        other.sessions.grace = 60
        one.sessions.put("alice", 0, b"record")
        events = fill(one, 3)
        await one.flush()
        take_some = await followed(other)
        own_server.command("FLUSHALL")
        taken: list[object] = []

        async def read() -> None:
            taken.extend(await take_some(3))  # type: ignore[misc]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await wait_until(lambda: other.sessions.restoring)
            one.note_emptied()
        assert taken == events


async def test_a_follower_that_lags_behind_the_kept_events_gets_an_error(url: str) -> None:
    async with worker(url, stream_events=10) as one, worker(url) as other:
        fill(one, 5)
        await one.flush()
        await other.prepare_follow(KEY)
        follower = other.follow(KEY)
        one.append(KEY, bytes(backend.MAX_PUSHED + 1))
        fill(one, 30)
        await one.flush()
        await other.connection.ask("PING")
        with pytest.raises(LaggedBehind):
            await drain(follower)


async def test_a_stream_without_followers_is_left(
    redis_server: RedisServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "UNUSED_FOR", 0.01)
    channel = key_of(url, "n:alice:1")

    def subscribed() -> int:
        return int(redis_server.command("PUBSUB", "NUMSUB", channel)[1])

    async with worker(url) as one, worker(url) as other:
        fill(one, 1)
        await one.flush()
        await other.prepare_follow(KEY)
        followers = [other.follow(KEY), other.follow(KEY)]
        for follower in followers:
            assert subscribed() == 1
            follower.close()
            follower.close()
        await wait_until(lambda: subscribed() == 0 and len(other.mirrors) == 0)
        with pytest.raises(UnknownCursor):
            other.follow(KEY)


async def test_the_followed_streams_of_other_processes_are_bounded(url: str) -> None:
    async with worker(url) as one, worker(url, streams=1) as other:
        for name in ("1", "2"):
            fill(one, 1, StreamKey("alice", name))
        await one.flush()
        await other.prepare_follow(StreamKey("alice", "1"))
        with pytest.raises(Overloaded):
            await other.prepare_follow(StreamKey("alice", "2"))


async def test_a_server_that_is_down_raises_store_unavailable(own_server: RedisServer) -> None:
    async with worker(own_server.url) as one:
        own_server.stop()
        with pytest.raises(StoreUnavailable):
            await one.sessions.claim("alice")
        with pytest.raises(StoreUnavailable):
            await one.prepare_follow(KEY)
