"""Workers of a cluster are killed under streaming clients: no event is lost, doubled or out of order."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
import trio

from tests.cli.test_workers import Cluster, serving
from tests.redis_server import running_server

from .cluster_clients import ClusterClient, stream_until, summary

APP = str(Path(__file__).with_name("cluster_app.py"))

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="--workers is refused there")


async def kill_workers(cluster: Cluster, clients: list[ClusterClient], kills: int, pause: float, seed: int) -> None:
    """Kill one worker after the other at random moments while the clients work."""
    chance = random.Random(seed)
    done = False

    async def kill() -> None:
        nonlocal done
        for _ in range(kills):
            await trio.sleep(pause + chance.uniform(0.1, 1.5))
            with_children = cluster.workers
            victim = chance.choice(with_children)
            os.kill(victim, signal.SIGKILL)
            with trio.move_on_after(30) as patience:
                while victim in cluster.workers or len(cluster.workers) < len(with_children):
                    await trio.sleep(0.02)
            assert not patience.cancelled_caught, cluster.said[-3000:]
        await trio.sleep(0.5)
        done = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        await stream_until(lambda: done, clients)


@pytest.mark.parametrize(("kills", "sessions"), [(30, 60) if os.environ.get("MCPTRIO_FAULTS") else (2, 12)])
async def test_killed_workers_cost_no_event_and_no_session(tmp_path: Path, kills: int, sessions: int) -> None:
    runs = tmp_path / "runs"
    with (
        running_server() as redis,
        serving(tmp_path, "--store", redis.url, workers=3, app=APP, env={"RUNS_FILE": str(runs)}) as cluster,
    ):
        clients = [ClusterClient(cluster.port) for _ in range(sessions)]
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.open)
        # The parent gives up when more than five of three workers die within 30 s.
        await kill_workers(cluster, clients, kills, pause=0.0 if kills < 6 else 6.0, seed=kills)
        print(summary(clients))
        assert [failure for client in clients for failure in client.failures] == [], cluster.said[-3000:]
        assert sum(client.results for client in clients) > 0
        doubled = [name for name, count in Counter(runs.read_text().split()).items() if count > 1]
        assert doubled == []  # nothing is executed twice
        assert psutil.Process(cluster.process.pid).is_running()
