"""Two workers of one endpoint in one process: two runtimes, one real Redis server, a real link between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio
from attrs import define, evolve

from mcptrio.cluster import ClusterConfig
from mcptrio.cluster.cluster import WorkerCluster, open_cluster
from mcptrio.stores.redis import RedisStore
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from tests.transports.app_for_tests import Client, Stage, app_of, open_endpoint, stage_of


@define(eq=False)
class Worker:
    """One worker, with the means to let it die."""

    endpoint: Endpoint
    cluster: WorkerCluster
    store: RedisStore

    @property
    def id(self) -> str:
        return self.cluster.membership.worker

    @property
    def stage(self) -> Stage:
        return stage_of(self.endpoint)

    @property
    def sessions(self) -> dict[str, Any]:
        return self.endpoint.runtime.supervisor.sessions

    def counted(self, name: str) -> int:
        return app_of(self.endpoint).counted(name)

    def client(self, client: Client) -> Client:
        """Return a copy of the client that sends its requests to this worker."""
        return evolve(client, endpoint=self.endpoint)


@asynccontextmanager
async def working(
    url: str,
    slot: str = "0",
    *,
    lease: float = 60.0,
    config: HttpConfig | None = None,
    server: str = "orders",
    parent: str = "",
    **options: Any,
) -> AsyncIterator[Worker]:
    store = RedisStore.from_url(url)
    async with open_endpoint(config, store=store, **options) as endpoint:
        settings = ClusterConfig(lease=lease, slot=slot)
        async with open_cluster(endpoint, settings, server=server, version="1", parent=parent) as cluster:
            yield Worker(endpoint, cluster, store)


@asynccontextmanager
async def two_workers(url: str, **options: Any) -> AsyncIterator[tuple[Worker, Worker]]:
    async with AsyncExitStack() as workers:
        one, other = [await workers.enter_async_context(working(url, slot, **options)) for slot in "12"]
        await one.cluster.membership._renew()  # it knows the other one
        yield one, other


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(30):
        while not condition():
            await trio.sleep(0.002)
