"""Workers of a cluster with a real server, and clients that post stateless requests to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import trio
from attrs import define

from mcptrio import Server
from mcptrio._actors import parking
from mcptrio.auth.server import Principal
from mcptrio.cluster import ClusterConfig
from mcptrio.cluster.cluster import WorkerCluster, open_cluster
from mcptrio.stores.redis import RedisStore
from mcptrio.transports.http_server.config import HttpConfig
from tests.stateless.kit import Poster, Trail, endpoint_of

from .two_workers import until

ADA, EVE = Principal(subject="ada"), Principal(subject="eve")
MakeServer = Callable[[Trail, trio.Event], Server]
"""Makes the server of a worker: its handlers say what they do, and some wait for the event."""


@define(eq=False)
class PostingWorker:
    """A worker of a cluster, and a client that posts to it."""

    poster: Poster
    cluster: WorkerCluster
    server: Server
    trail: Trail
    cue: trio.Event
    """The event that its handlers wait for."""

    @property
    def id(self) -> str:
        return self.cluster.membership.worker

    @property
    def parking(self) -> parking.Parking:
        return self.poster.endpoint.runtime.parking

    @property
    def store(self) -> RedisStore:
        store = self.poster.endpoint.runtime.store
        assert isinstance(store, RedisStore)
        return store

    def as_principal(self, principal: Principal) -> Poster:
        return Poster(self.poster.endpoint, principal)

    async def renew(self) -> None:
        await self.cluster.membership._renew()

    async def freeze(self, *others: PostingWorker) -> None:
        """Have it declared dead by the first of these workers, and wait until all of them know.

        Until then they forward requests to it. It goes on, and learns of it when it renews its lease.
        """
        worker = self.id
        await others[0].cluster.membership.declare_dead(worker)
        await until(lambda: all(worker not in other.cluster.membership.workers for other in others))


@asynccontextmanager
async def posting_worker(
    make: MakeServer, url: str, slot: str = "0", *, lease: float = 60.0, stream_after: float = 0.05
) -> AsyncIterator[PostingWorker]:
    trail, cue = Trail(), trio.Event()
    server = make(trail, cue)
    async with endpoint_of(server, HttpConfig(stream_after=stream_after), RedisStore.from_url(url)) as endpoint:
        settings = ClusterConfig(lease=lease, slot=slot)
        async with open_cluster(endpoint, settings, server="orders", version="1") as cluster:
            yield PostingWorker(Poster(endpoint), cluster, server, trail, cue)


@asynccontextmanager
async def posting_workers(
    make: MakeServer, url: str, count: int = 2, **options: float
) -> AsyncIterator[list[PostingWorker]]:
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(posting_worker(make, url, str(slot), **options)) for slot in range(count)
        ]
        for worker in workers:
            await worker.renew()  # each one knows the others
        yield workers
