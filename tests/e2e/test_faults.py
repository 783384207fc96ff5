"""Faults that need a process: resets, a process that is stopped, memory that runs out. The others: `tests/faults`."""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from tests.engines import both_engines

from .canary import STATEFUL, STATELESS, StatefulCanary, StatelessCanary, Tally
from .server_process import ServerProcess, running
from .wires import SocketWire

MIB = 2**20

pytestmark = [both_engines, pytest.mark.slow]


async def open_client(server: ServerProcess, date: str, *, reset: bool = False) -> Any:
    wire = SocketWire(server.port, reset=not reset)
    canary = StatefulCanary if date == STATEFUL else StatelessCanary
    client = canary(wire, Tally(), random.Random(server.port + reset))
    if isinstance(client, StatefulCanary):
        await client.open()
    return client


@pytest.mark.parametrize("date", [STATEFUL, STATELESS])
@pytest.mark.parametrize("reset", [True, False], ids=["RST", "FIN"])
async def test_fault_client_gone_over_a_socket(date: str, reset: bool, tmp_path: Path) -> None:
    """F01, F02: nothing is left of it, nothing is logged, and others are served."""
    with running("canary.py", tmp_path / "log", "--log-level", "warning") as server:
        await server.wait_ready()
        client, other = await open_client(server, date, reset=reset), await open_client(server, date)
        process = psutil.Process(server.process.pid)
        await other.echo()
        before = process.num_fds()
        for number in range(20):
            answer = await client.begin_call("tell", 100 + number, arguments={"times": 4}, **client.token(100 + number))
            client.wire.reset = not reset  # `cut` turns it around
            await client.read(answer, [], only=1)
            answer.cut()
            answer = await client.begin_call("wait", 200 + number, arguments={"seconds": 20})
            client.wire.reset = not reset
            answer.cut()
        with trio.fail_after(30):
            while process.num_fds() > before:
                await trio.sleep(0.02)
        await other.echo()
        client.wire.close()
        other.wire.close()
        assert server.process.poll() is None
        assert "Traceback" not in server.log.read_text()


async def test_fault_process_is_stopped_for_a_while(tmp_path: Path) -> None:
    """F34: what came meanwhile is served when it goes on, and no call is ended for it."""
    with running("canary.py", tmp_path / "log", "--log-level", "error") as server:
        await server.wait_ready()
        clients = [await open_client(server, date) for date in (STATEFUL, STATELESS)]
        answers = [await client.begin_call("wait", 1, arguments={"seconds": 0.5}) for client in clients]
        server.signal(signal.SIGSTOP)
        with trio.fail_after(30):
            while psutil.Process(server.process.pid).status() != psutil.STATUS_STOPPED:
                await trio.sleep(0.01)
        outcomes: list[str] = []

        async def echo(client: Any) -> None:
            await client.echo()
            outcomes.append("echo")

        async with trio.open_nursery() as nursery:
            for client in clients:
                client.last_id = 4
                nursery.start_soon(echo, client)
            await trio.sleep(1.5)
            assert outcomes == []
            server.signal(signal.SIGCONT)
            for client, answer in zip(clients, answers, strict=True):
                frames: list[dict[str, Any]] = []
                await client.read(answer, frames)
                assert client.text(client.outcome(frames, 1)) == client.word
        assert outcomes == ["echo", "echo"]
        for client in clients:
            client.wire.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is set from outside")
async def test_fault_memory_runs_out_in_a_call(tmp_path: Path) -> None:
    """F43: that call fails, and the process lives."""
    with running("canary.py", tmp_path / "log", "--log-level", "error") as server:
        await server.wait_ready()
        client = await open_client(server, STATELESS)
        assert client.text(await client.call("grab", arguments={"mib": 300})) == client.word
        process = psutil.Process(server.process.pid)
        limit = process.memory_info().vms + 100 * MIB
        process.rlimit(psutil.RLIMIT_AS, (limit, limit))
        for _ in range(5):
            failed = await client.call("grab", arguments={"mib": 300})
            assert failed["result"]["isError"]
            await client.echo()
        assert client.text(await client.call("grab", arguments={"mib": 10})) == client.word
        client.wire.close()
        assert server.process.poll() is None
        assert b"MemoryError" in server.log.read_bytes()
