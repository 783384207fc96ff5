"""A peer that is hostile in every way, one after the other: other clients are served as before.

Each attack takes a second in the suite, which checks answers and memory, and a minute in `make fault-test`, which also
compares the response times of the others with a control: the same clients at a second server that is not attacked, at
the same time. Time in which a server waited for a processor does not count. So a busy machine does not decide.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
import trio
from joserfc.jwk import ECKey

from tests.bad_inputs.issuers import serving
from tests.bad_inputs.tokens import good
from tests.deadlines import RunQueue
from tests.e2e.server_process import ServerProcess, running
from tests.e2e.wires import SocketWire
from tests.engines import ENGINES, VARIABLE

from .bystanders import Bystander, Group, Wrong
from .hostile_peer import ATTACKS

FULL = "MCPTRIO_FAULTS" in os.environ
SECONDS = float(os.environ.get("MCPTRIO_HOSTILE_SECONDS", "60" if FULL else "1"))
MIB = 2**20
GROWTH = 64
"""MiB that the process may grow by during an attack; half of it must come back."""
TIMES = 5
"""The 99th percentile of response times may be so many times that of the control."""
KEPT = {"read_old_streams_slowly", "leave_tasks", "keep_arguments"}
"""Attacks that leave entries which the server keeps for their time to live: streams that may be resumed, results of
tasks, calls that wait for the user. The bounds of the store apply to them; other tests check that they expire."""
ROOT = Path(__file__).parents[2]


SHORT = {
    "announce_bodies", "listen_to_thousands", "leave_listeners", "leave_running_tasks", "send_frames", "read_slowly",
    "hold_threads", "pipeline_garbage",
}  # fmt: skip
"""In the suite one attack of each class runs, on one engine; all of them run on both in `make fault-test`."""
Servers = list[ServerProcess]
CASES = [
    (engine, attack)
    for number, engine in enumerate(ENGINES)
    for turn, attack in enumerate(ATTACKS)
    if FULL or (attack in SHORT and turn % len(ENGINES) == number)
]


@pytest.fixture
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A server for each attack: what one attack used up, such as its sessions, must not weaken the next. In full, also
    the control."""
    folder = tmp_path_factory.mktemp("hostile")
    with serving() as issuer, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, request.param)
        patch.setenv("MCPTRIO_TEST_KEYS", f"http://127.0.0.1:{issuer}/keys")
        patch.setenv("PYTHONPATH", str(ROOT))
        # Large pieces are given back to the system at once, so that the size of the process says what is in use.
        patch.setenv("MALLOC_MMAP_THRESHOLD_", "32768")
        with ExitStack() as servers:
            names = ("attacked", "control") if FULL else ("attacked",)
            yield [servers.enter_context(running("attacked.py", folder / name, command=())) for name in names]


@contextmanager
def hostile(attack: str, port: int, token: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.faults.hostile_peer", attack, str(port), str(SECONDS)]
    key = ECKey.generate_key("P-256")
    bound = {"token": good(sub="hostile", cnf={"jkt": key.thumbprint()}), "key": key.as_dict(private=True)}
    environment = {**os.environ, "MCPTRIO_TEST_TOKEN": token, "MCPTRIO_TEST_BOUND": json.dumps(bound)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def endure(groups: list[Group], attack: str, port: int) -> int:
    """Run one attack while the groups work; return the number of its requests."""
    with hostile(attack, port, good(sub="hostile")) as process:
        assert process.stdout is not None
        assert await trio.to_thread.run_sync(process.stdout.readline) == b"ready\n"
        async with trio.open_nursery() as watcher:
            watcher.start_soon(groups[0].watch_memory)
            async with trio.open_nursery() as nursery:
                for group in groups:
                    nursery.start_soon(group.live, SECONDS)
            watcher.cancel_scope.cancel()
        with trio.fail_after(20):
            said, _ = await trio.to_thread.run_sync(process.communicate, abandon_on_cancel=True)
    return int(said)


async def settled(group: Group, before: int) -> int:
    """Wait until the memory is back, at most ten seconds."""
    for _ in range(100):
        if group.memory() - before < GROWTH / 2 * MIB:
            break
        await trio.sleep(0.1)
    return group.memory()


@pytest.mark.parametrize(("served", "attack"), CASES, indirect=["served"])
async def test_a_hostile_peer_does_not_disturb_others(attack: str, served: Servers) -> None:
    groups = [await gather(server) for server in served]
    try:
        await judge(groups, attack, served[0])
    finally:
        for group in groups:
            for client in group.clients:
                client.wire.close()


async def gather(server: ServerProcess) -> Group:
    await server.wait_ready()
    queue = RunQueue.of(server.process.pid)
    clients = [Bystander(f"honest {number}", SocketWire(server.port), queue) for number in range(4)]
    for client in clients:
        await prepare(client)
    return Group(psutil.Process(server.process.pid), clients)


async def prepare(client: Bystander) -> None:
    """Prepare a client; on a busy machine a fetch of the signing keys may fail, and is repeated seconds later (503)."""
    for _ in range(60):
        try:
            await client.prepare()
            return
        except Wrong as error:
            if "status 503" not in str(error):
                raise
        await trio.sleep(0.5)
    await client.prepare()


async def judge(groups: list[Group], attack: str, served: ServerProcess) -> None:
    group, control = groups[0], groups[-1]
    before = group.memory()
    requests = await endure(groups, attack, served.port)
    p99, usual = group.percentile(), control.percentile()
    for client in group.clients:
        await client.finish()
    after = await settled(group, before)
    grown, kept = (group.peak - before) / MIB, (after - before) / MIB
    print(f"\n{attack}: {requests} requests; p99 {p99 * 1000:.1f} ms, without it {usual * 1000:.1f} ms; ", end="")
    print(f"+{grown:.0f} MiB, {kept:.0f} MiB kept; load average {os.getloadavg()[0]:.1f}")
    wrong = group.complaints()
    assert control.complaints() == []
    assert served.process.poll() is None, served.log.read_text()[-2000:]
    assert wrong == [], served.log.read_text()[-1000:]
    assert grown < GROWTH, "MiB"
    if attack not in KEPT:
        assert kept < GROWTH / 2, "MiB"
    if FULL:
        assert p99 < TIMES * usual
