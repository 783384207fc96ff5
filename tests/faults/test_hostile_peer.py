"""A peer that is hostile in every way, one after the other: other clients are served as before.

Each attack takes a second in the suite, which checks answers and memory, and a minute in `make fault-test`, which also
compares the response times of the others with a control of the same run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import trio

from tests.bad_inputs.issuers import serving
from tests.bad_inputs.tokens import good
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
FLOOR = 0.1
"""Seconds: a percentile below this is good enough, whatever the control was."""
KEPT_TO_RESUME = {"read_old_streams_slowly"}
"""Attacks that leave streams which may be resumed: their events are kept for `resume_grace`, five minutes."""
ROOT = Path(__file__).parents[2]


CASES = [
    (engine, attack)
    for number, engine in enumerate(ENGINES)
    for turn, attack in enumerate(ATTACKS)
    if FULL or turn % len(ENGINES) == number
]
"""In the suite each attack runs on one engine; all of them on both: `make fault-test`."""


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all attacks: each of them finds what the ones before it left."""
    log = tmp_path_factory.mktemp("hostile") / "log"
    with serving() as issuer, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, request.param)
        patch.setenv("MCPTRIO_TEST_KEYS", f"http://127.0.0.1:{issuer}/keys")
        patch.setenv("PYTHONPATH", str(ROOT))
        # Large pieces are given back to the system at once, so that the size of the process says what is in use.
        patch.setenv("MALLOC_MMAP_THRESHOLD_", "32768")
        with running("attacked.py", log, command=()) as server:
            yield server


@contextmanager
def hostile(attack: str, port: int, token: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.faults.hostile_peer", attack, str(port), str(SECONDS)]
    environment = {**os.environ, "MCPTRIO_TEST_TOKEN": token}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def endure(group: Group, attack: str, port: int) -> tuple[float, int]:
    """Run one attack; return the 99th percentile of the others' response times, and the requests of the attack."""
    with hostile(attack, port, good(sub="hostile")) as process:
        assert process.stdout is not None
        assert await trio.to_thread.run_sync(process.stdout.readline) == b"ready\n"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.watch_memory)
            p99 = await group.live(SECONDS)
            nursery.cancel_scope.cancel()
        with trio.fail_after(20):
            said, _ = await trio.to_thread.run_sync(process.communicate, abandon_on_cancel=True)
    return p99, int(said)


async def settled(group: Group, before: int) -> int:
    """Wait until the memory is back, at most ten seconds."""
    for _ in range(100):
        if group.memory() - before < GROWTH / 4 * MIB:
            break
        await trio.sleep(0.1)
    return group.memory()


@pytest.mark.parametrize(("served", "attack"), CASES, indirect=["served"])
async def test_a_hostile_peer_does_not_disturb_others(attack: str, served: ServerProcess) -> None:
    await served.wait_ready()
    clients = [Bystander(f"honest {number}", SocketWire(served.port)) for number in range(4)]
    group = Group(psutil.Process(served.process.pid), clients)
    try:
        await judge(group, attack, served)
    finally:
        for client in clients:
            client.wire.close()


async def prepare(client: Bystander) -> None:
    """Prepare a client; on a busy machine the server's first fetch of the signing keys may be too late (503)."""
    for _ in range(10):
        try:
            await client.prepare()
            return
        except Wrong as error:
            if "status 503" not in str(error):
                raise
        await trio.sleep(0.5)
    await client.prepare()


async def judge(group: Group, attack: str, served: ServerProcess) -> None:
    for client in group.clients:
        await prepare(client)
    control = await group.live(max(0.2, SECONDS / 6))
    assert group.complaints() == []
    before = group.memory()
    p99, requests = await endure(group, attack, served.port)
    for client in group.clients:
        await client.finish()
    after = await settled(group, before)
    grown, kept = (group.peak - before) / MIB, (after - before) / MIB
    print(f"\n{attack}: {requests} requests; p99 {p99 * 1000:.1f} ms, without it {control * 1000:.1f} ms; ", end="")
    print(f"+{grown:.0f} MiB, {kept:.0f} MiB kept")
    wrong = group.complaints()
    assert served.process.poll() is None, served.log.read_text()[-2000:]
    assert wrong == [], served.log.read_text()[-1000:]
    assert grown < GROWTH, "MiB"
    if attack not in KEPT_TO_RESUME:
        assert kept < GROWTH / 2, "MiB"
    if FULL:
        assert p99 < max(5 * control, FLOOR)
