"""Workers of a cluster are killed under streaming clients: no event is lost, doubled or out of order."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import trio

from tests.cli.test_workers import Cluster, serving
from tests.redis_server import running_server
from tests.tiers import exhaustive

from .cluster_clients import ClusterClient, ConnectionProbe, stream_until, summary

APP = str(Path(__file__).with_name("cluster_app.py"))

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="--workers is refused there")


FULL = bool(os.environ.get("MCPTRIO_FAULTS"))


async def kill_workers(
    clusters: list[Cluster], clients: list[ClusterClient], kills: int, pause: float, seed: int
) -> ConnectionProbe:
    """Kill one worker after the other, of one parent after the other, at random moments while the clients work."""
    chance = random.Random(seed)
    done = False
    probe = ConnectionProbe(clusters[0].port)

    async def kill() -> None:
        nonlocal done
        for number in range(kills):
            await trio.sleep(pause + chance.uniform(0.1, 1.5))
            cluster = clusters[number % len(clusters)]
            with_children = cluster.workers
            victim = chance.choice(with_children)
            os.kill(victim, signal.SIGKILL)
            with trio.move_on_after(30) as timeout:
                while victim in cluster.workers or len(cluster.workers) < len(with_children):
                    await trio.sleep(0.02)
            assert not timeout.cancelled_caught, cluster.said[-3000:]
        await trio.sleep(0.5)
        done = True

    async with trio.open_nursery() as probing:
        probing.start_soon(probe.run)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            await stream_until(lambda: done, clients)
        probing.cancel_scope.cancel()
    return probe


async def check_kills(
    clusters: list[Cluster], runs: Path, kills: int, sessions: int, pause: float
) -> list[ClusterClient]:
    """Kill workers under clients; check that nothing was lost, doubled or executed twice."""
    clients = [ClusterClient(*(cluster.port for cluster in clusters)) for _ in range(sessions)]
    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(client.open)
    probe = await kill_workers(clusters, clients, kills, pause, seed=kills)
    print(summary(clients), probe, sep="; ")
    said = "".join(cluster.said[-3000:] for cluster in clusters)
    assert [failure for client in clients for failure in client.failures] == [], said
    assert sum(client.results for client in clients) > 0
    doubled = [name for name, count in Counter((await trio.Path(runs).read_text()).split()).items() if count > 1]
    assert doubled == []  # nothing is executed twice
    assert probe.refused <= 1.0  # the parent holds the socket
    return clients


@pytest.mark.parametrize(("kills", "sessions"), [(30, 60) if FULL else (2, 12)])
async def test_killed_workers_cost_no_event_and_no_session(tmp_path: Path, kills: int, sessions: int) -> None:
    runs = tmp_path / "runs"
    with (
        running_server() as redis,
        serving(tmp_path, "--store", redis.url, workers=3, app=APP, env={"RUNS_FILE": str(runs)}) as cluster,
    ):
        # The parent gives up when more than five of three workers die within 30 s.
        await check_kills([cluster], runs, kills, sessions, pause=6.0 if FULL else 0.0)
        assert psutil.Process(cluster.process.pid).is_running()


@exhaustive
@pytest.mark.parametrize(("kills", "sessions"), [(12, 60) if FULL else (2, 12)])
async def test_killed_workers_that_only_their_lease_tells_of(tmp_path: Path, kills: int, sessions: int) -> None:
    """Three parents with one worker each stand for three machines: no parent declares the worker of another dead."""
    runs = tmp_path / "runs"
    with running_server() as redis, ExitStack() as stack:
        options, clusters = ("--store", redis.url), []
        for name in ("one", "two", "three"):
            (tmp_path / name).mkdir()
            machine = serving(tmp_path / name, *options, workers=1, app=APP, env={"RUNS_FILE": str(runs)})
            clusters.append(stack.enter_context(machine))
        clients = await check_kills(clusters, runs, kills, sessions, pause=6.0 if FULL else 0.0)
        if FULL:
            resumes = sorted(second for client in clients for second in client.resumes)
            assert resumes[int(len(resumes) * 0.99)] <= 3.5
