"""No byte of one client reaches another, and every request has one outcome, whatever else happens.

200 clients use the same ids and meet every fault at once. `make fault-test` has them exchange a million messages in one
process, a million over sockets, on both engines together, and a million with two workers.
"""

from __future__ import annotations

import logging
import os
import random
import sys
from pathlib import Path

import psutil
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from tests.e2e.programs.canary import server as canary_server
from tests.redis_server import running_server

from .canary import STATEFUL, STATELESS, Tally, run_canaries
from .canary_pipe import open_pipe
from .server_process import PROGRAMS, running
from .wires import InnerWire, SocketWire, SpreadWire, Wire

FULL = "MCPTRIO_FAULTS" in os.environ
CLIENTS = 200


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "mcptrio")  # handlers fail by the thousand, and each time it is logged


def report(tally: Tally) -> None:
    print(f"\n{tally.messages:,} messages:", ", ".join(f"{count:,} {name}" for name, count in tally.outcomes.items()))


async def test_clients_get_only_their_own_messages_in_one_process(autojump_clock: MockClock) -> None:
    """Without sockets, on virtual time: what is slow is only what the clients and the server do."""
    steps = 1100 if FULL else 20
    async with canary_server._app.make_runtime().open() as runtime:
        endpoint = Endpoint(runtime, HttpConfig())
        wires: list[Wire] = [InnerWire(endpoint) for _ in range(CLIENTS)]
        tally = await run_canaries(wires, steps, seed=1, timeout=float("inf"))
        await wait_all_tasks_blocked()
        assert not runtime.supervisor.sessions
        assert endpoint.calls == 0
    report(tally)


@pytest.mark.timeout(1500 if FULL else 300)
async def test_clients_get_only_their_own_messages_over_sockets(engine: str, tmp_path: Path) -> None:
    """Connections are reset and closed in the middle; afterwards the process is as it was."""
    with running("canary.py", tmp_path / "log", "--log-level", "error") as server:
        await server.wait_ready()
        process = psutil.Process(server.process.pid)
        await run_canaries([SocketWire(server.port) for _ in range(10)], 5, seed=2)
        fds, threads = process.num_fds(), process.num_threads()
        wires: list[Wire] = [SocketWire(server.port) for _ in range(CLIENTS)]
        tally = await run_canaries(wires, 540 if FULL else 4, seed=3, timeout=1200 if FULL else 300)
        with trio.fail_after(30):
            while process.num_fds() > fds:
                await trio.sleep(0.05)
        assert process.num_threads() <= threads
        assert server.process.poll() is None
    report(tally)


@pytest.mark.skipif(sys.platform == "win32", reason="the Redis server of the tests listens on a unix socket")
@pytest.mark.timeout(6000 if FULL else 300)
async def test_clients_get_only_their_own_messages_over_two_workers(tmp_path: Path) -> None:
    """Each request of a client goes to the other worker, so half of those with a session are forwarded."""
    with running_server() as redis:
        # A lease that no load on this machine ends: a worker that dies is another test's subject.
        shared = ("--store", redis.url, "--lease", "600", "--log-level", "error")
        with (
            running("canary.py", tmp_path / "1", *shared) as one,
            running("canary.py", tmp_path / "2", *shared) as other,
        ):
            await one.wait_ready()
            await other.wait_ready()
            clients = CLIENTS if FULL else 60
            spread = [SpreadWire([SocketWire(one.port), SocketWire(other.port)]) for _ in range(clients)]
            wires: list[Wire] = [*spread]
            tally = await run_canaries(wires, 1100 if FULL else 8, seed=4, timeout=5400 if FULL else 240, resumes=True)
            assert one.process.poll() is other.process.poll() is None
    report(tally)
    print(f"{sum(wire.repeated for wire in spread)} requests were repeated after 503")


@pytest.mark.parametrize("date", [STATEFUL, STATELESS])
async def test_callers_get_only_their_own_messages_on_a_pipe(date: str) -> None:
    """Many callers share one pipe; between their messages there are lines that are none."""
    tally = Tally()
    async with open_pipe(PROGRAMS / "canary.py", date, tally) as pipe:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(pipe.run, random.Random(number), 400 if FULL else 20)
        assert await pipe.leave() == 0
        assert not pipe.waiting
    report(tally)
