"""A cluster whose workers are stopped or replaced, and whose Redis server is killed, paused or emptied."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import trio

from tests.cli.test_workers import Cluster, is_free, serving
from tests.redis_server import RedisServer, running_server
from tests.tiers import exhaustive

from .cluster_clients import ClusterClient, StatelessCaller, stream_until, summary

FULL = "MCPTRIO_FAULTS" in os.environ
APP = str(Path(__file__).with_name("cluster_app.py"))

pytestmark = [
    exhaustive,
    pytest.mark.skipif(sys.platform == "win32", reason="--workers is refused there"),
]


@contextmanager
def cluster_of(tmp_path: Path, redis: RedisServer, *options: str) -> Iterator[Cluster]:
    with serving(tmp_path, "--store", redis.url, "--drain-timeout", "10", *options, workers=3, app=APP) as cluster:
        yield cluster


def memory_of(cluster: Cluster) -> int:
    """Return the private bytes of all workers."""
    return sum(psutil.Process(worker).memory_full_info().uss for worker in cluster.workers)


async def trouble(
    cluster: Cluster,
    what: Callable[[], Awaitable[object]],
    *,
    sessions: int = 20,
    before: float = 0.5,
    after: float = 2.0,
) -> list[ClusterClient]:
    """Let clients work while something happens; return them, after a last call of each."""
    clients = [ClusterClient(cluster.port) for _ in range(sessions)]
    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(client.open)
    done = False

    async def happen() -> None:
        nonlocal done
        await trio.sleep(before)
        await what()
        await trio.sleep(after)
        done = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(happen)
        await stream_until(lambda: done, clients)
    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(client.ping, -1)
    print(summary(clients))
    failures = [failure for client in clients for failure in client.failures]
    assert not failures, f"{failures}\n{cluster.said[-3000:]}"
    return clients


async def test_a_stopped_worker_is_fenced_when_it_goes_on(tmp_path: Path) -> None:
    with running_server() as redis, cluster_of(tmp_path, redis) as cluster:

        async def stop() -> None:
            victim = cluster.workers[0]
            os.kill(victim, signal.SIGSTOP)
            await trio.sleep(4)  # twice the lease
            os.kill(victim, signal.SIGCONT)

        clients = await trouble(cluster, stop)
        assert sum(client.results for client in clients) > 0


@pytest.mark.parametrize("keeps", [True, False], ids=["with its data", "empty"])
async def test_a_redis_server_that_was_killed_for_three_seconds(tmp_path: Path, keeps: bool) -> None:
    options = ("--appendonly", "yes", "--appendfsync", "always") if keeps else ()
    with running_server(*options) as redis, cluster_of(tmp_path, redis) as cluster:
        stateless, memory = StatelessCaller(cluster.port), memory_of(cluster)
        back = 0.0

        async def kill() -> None:
            nonlocal back
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stateless.run)
                await trio.to_thread.run_sync(redis.stop)
                await trio.sleep(3)
                await trio.to_thread.run_sync(redis.start)
                back = time.monotonic()
                await trio.sleep(2)
                nursery.cancel_scope.cancel()

        clients = await trouble(cluster, kill, after=2.0)
        grown = memory_of(cluster) - memory
        recovery = max(client.last_trouble for client in clients) - back
        print(f"{stateless.results} stateless calls, recovery {recovery:.2f} s, memory {grown / 2**20:+.1f} MiB")
        assert sum(client.results for client in clients) > 0
        assert stateless.failures == []
        assert stateless.results > 50
        assert grown < 3 * 16 * 2**20
        if FULL:  # among other tests a worker may get no processor for so long
            assert recovery <= 2.0


async def test_a_redis_server_that_is_paused(tmp_path: Path) -> None:
    with running_server() as redis, cluster_of(tmp_path, redis) as cluster:

        async def pause() -> None:
            with redis.paused():
                await trio.sleep(3)

        await trouble(cluster, pause, after=4.0)


async def test_an_emptied_redis_server(tmp_path: Path) -> None:
    with running_server() as redis, cluster_of(tmp_path, redis) as cluster:

        async def empty() -> None:
            await trio.to_thread.run_sync(redis.command, "FLUSHALL")

        await trouble(cluster, empty, after=3.0)


async def test_all_workers_are_replaced_and_no_call_fails(tmp_path: Path) -> None:
    # A worker that gets no processor for the length of a lease answers 503, which is not the subject here.
    with running_server() as redis, cluster_of(tmp_path, redis, "--lease", "30") as cluster:
        before = set(cluster.workers)

        async def replace() -> None:
            cluster.process.send_signal(signal.SIGHUP)
            with trio.fail_after(60):
                while before & set(cluster.workers) or len(cluster.workers) != 3:
                    await trio.sleep(0.05)

        clients = await trouble(cluster, replace)
        assert sum(client.errors for client in clients) == 0
        assert [text for client in clients for text in client.unavailable] == []


async def test_the_port_is_free_after_the_parent_was_killed(tmp_path: Path) -> None:
    with running_server() as redis, cluster_of(tmp_path, redis) as cluster:
        workers = cluster.workers
        client = ClusterClient(cluster.port)
        await client.open()
        cluster.process.kill()
        cluster.process.wait()
        with trio.fail_after(15):  # the drain timeout and five seconds
            while not is_free(cluster.port):
                await trio.sleep(0.1)
        assert len(workers) == 3
