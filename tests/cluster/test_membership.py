"""The lease of a worker on a real server: joining, expiry, death, an emptied server, leaving."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio

from mcptrio.cluster import ClusterConfig
from mcptrio.cluster.membership import Membership, WorkerInfo
from mcptrio.errors import Overloaded
from mcptrio.stores import HomeAt, StoreFailed
from mcptrio.stores.redis import RedisStore
from tests.redis_server import RedisServer, running_server

LEASE = 0.5


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with running_server() as running:
        yield running


class Member:
    """A worker without an endpoint."""

    def __init__(self, store: RedisStore, slot: str, server: str = "orders", lease: float = LEASE, **more: str) -> None:
        self.store = store
        self.alive: set[str] = set()
        self.fenced: list[str] = []
        store.on_fenced = self.fenced.append
        info = WorkerInfo(f"/{slot}", server, "1", slot)
        self.membership = Membership(store, ClusterConfig(lease=lease, slot=slot, **more), info, self._on_alive)

    def _on_alive(self, alive: set[str]) -> None:
        self.alive = alive

    @property
    def id(self) -> str:
        return self.membership.worker


@asynccontextmanager
async def joined(url: str, slot: str, server: str = "orders", lease: float = LEASE) -> AsyncIterator[Member]:
    store = RedisStore.from_url(url)
    async with store.open():
        member = Member(store, slot, server, lease)
        async with member.membership.open():
            yield member


async def until(condition: object) -> None:
    with trio.fail_after(30):
        while not condition():  # type: ignore[operator]
            await trio.sleep(0.005)


async def test_workers_see_each_other_join_and_leave(server: RedisServer) -> None:
    url = server.url
    async with joined(url, "1", lease=60) as one:
        async with joined(url, "2", lease=0.5) as other:
            assert one.membership.serves
            assert one.membership.may_claim
            await until(lambda: other.alive == {one.id, other.id})
            assert other.id.startswith("2-")
            assert other.membership.workers[one.id][1].slot == "1"
            await one.membership._renew()
            assert one.alive == {one.id, other.id}
        await until(lambda: one.alive == {one.id})  # it declared itself dead: no lease had to end


async def test_a_lost_server_ends_the_lease_and_its_return_renews_it(server: RedisServer) -> None:
    async with joined(server.url, "1") as one:
        one.store.sessions.put("alice", 0, b"record")
        await one.store.flush()
        server.command("CLIENT", "PAUSE", 1_200)
        await until(lambda: not one.membership.serves)
        await until(lambda: one.store.holds_back)
        await until(lambda: one.membership.serves)
        assert not one.store.holds_back
        assert one.fenced == []


async def test_a_worker_that_was_declared_dead_loses_its_sessions_and_joins_under_a_new_id(server: RedisServer) -> None:
    url = server.url
    async with joined(url, "1") as one, joined(url, "2") as other:
        one.store.sessions.put("alice", 0, b"record")
        await one.store.flush()
        old = one.id
        await other.membership.declare_dead(old)
        await until(lambda: one.id != old and one.membership.serves)
        assert one.fenced == ["alice"]
        await until(lambda: other.alive == {one.id, other.id})


async def test_sessions_that_were_taken_over_while_the_lease_had_expired_are_lost(server: RedisServer) -> None:
    url = server.url
    async with joined(url, "1", lease=60) as one, joined(url, "2") as other:
        for session in ("alice", "bob"):
            one.store.sessions.put(session, 0, b"record")
        await one.store.flush()
        await other.store.sessions.claim("alice", HomeAt(one.id, "", 0))
        one.membership._lease = one.membership._lease.at(trio.current_time() + 1000)
        await one.membership._renew()
        assert one.membership.serves
        assert one.fenced == ["alice"]


async def test_an_emptied_server_costs_no_session_and_no_name(server: RedisServer) -> None:
    url = server.url
    async with joined(url, "1") as one, joined(url, "2") as other:
        one.store.sessions.put("alice", 0, b"record")
        await one.store.flush()
        ids = {one.id, other.id}
        server.command("FLUSHALL")
        await until(lambda: one.alive == other.alive == ids and is_home(server, url, one.id))
        assert one.fenced == []
        found = await other.store.sessions.claim("alice")
        assert isinstance(found, HomeAt)


def is_home(server: RedisServer, url: str, worker: str) -> bool:
    name = url.partition("name=")[2]
    return bool(server.command("HGET", f"mcptrio:{{{name}}}:s:alice", "home") == worker.encode())


async def test_a_worker_that_drains_claims_nothing(server: RedisServer) -> None:
    async with joined(server.url, "1") as one:
        one.membership.drain()
        assert one.membership.serves
        assert not one.membership.may_claim
        await trio.sleep(LEASE)
        assert one.membership.serves


async def test_a_renewal_does_not_undo_a_drain(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: the drain begins while the store is asked."""
    async with joined(server.url, "1", lease=60) as one:
        sweep = one.store.sessions.sweep

        async def drain_first() -> tuple[list[str], dict[str, tuple[int, str]]]:
            one.membership.drain()
            return await sweep()

        monkeypatch.setattr(one.store.sessions, "sweep", drain_first)
        await one.membership._renew()
        assert one.membership.serves
        assert not one.membership.may_claim


async def test_another_server_with_the_same_name_is_refused(server: RedisServer) -> None:
    url = server.url
    async with joined(url, "1"):
        with pytest.RaisesGroup(
            pytest.RaisesExc(StoreFailed, match="name of its own"), allow_unwrapped=True, flatten_subgroups=True
        ):
            async with joined(url, "2", server="shop"):
                pass


async def test_a_claim_without_a_lease_is_refused(server: RedisServer) -> None:
    url = server.url
    async with joined(url, "1", lease=60) as one, joined(url, "2") as other:
        other.store.sessions.put("alice", 0, b"record")
        await other.store.flush()
        await other.membership.declare_dead(one.id)
        with pytest.raises(Overloaded):
            await one.store.sessions.claim("alice")


async def test_a_worker_may_serve_its_sessions_without_the_store(server: RedisServer) -> None:
    """Under `on_store_loss="serve"`; it claims nothing meanwhile."""
    store = RedisStore.from_url(server.url)
    async with store.open():
        member = Member(store, "1", on_store_loss="serve")
        async with member.membership.open():
            server.stop()
            await until(lambda: member.membership.lease_left <= 0)
            assert member.membership.serves
            assert not member.membership.may_claim
            assert not store.holds_back
            server.start()
            await until(lambda: member.membership.may_claim)


async def test_a_worker_that_has_not_joined_serves_no_session(server: RedisServer) -> None:
    store = RedisStore.from_url(server.url)
    async with store.open():
        assert not Member(store, "1", on_store_loss="serve").membership.serves
