"""F20: a process that appends is killed at random points; whatever it had shown is there afterwards, in order."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from mcptrio.stores import Claimed, StreamKey
from mcptrio.stores.sqlite import SqliteStore

KILLS = int(os.environ.get("MCPTRIO_KILLS", "12"))

# Appends in bursts of its own making to three streams, and prints what a follower was shown: stream, number, content.
CHILD = """
import os, random, sys, trio
from mcptrio.stores import StreamKey
from mcptrio.stores.sqlite import SqliteStore

async def follow(store, name):
    follower = store.follow(StreamKey("alice", name))
    while True:
        event = await follower.receive()
        os.write(1, f"{name} {event.seq} {event.data.decode()}\\n".encode())

async def main(run):
    store = SqliteStore(sys.argv[1])
    async with store.open(), trio.open_nursery() as nursery:
        store.sessions.put(f"session {run}", 0, run.encode())
        await store.flush()
        os.write(1, f"secret 0 {store.secret.hex()}\\n".encode())
        names = [f"{run}.{number}" for number in range(3)]
        for name in names:
            store.begin(StreamKey("alice", name))
            nursery.start_soon(follow, store, name)
        while True:
            for _ in range(random.randrange(1, 8)):
                name = random.choice(names)
                seq = store._streams.index.find(StreamKey("alice", name)).last + 1
                assert store.append(StreamKey("alice", name), f"{name}#{seq}".encode()) == seq
            await trio.sleep(random.random() * 0.002)

trio.run(main, sys.argv[2])
"""


def run_and_kill(path: Path, run: int, lines: int) -> list[tuple[str, int, str]]:
    """Kills the child after it has shown so many lines; says what it had shown by then."""
    with subprocess.Popen([sys.executable, "-c", CHILD, str(path), str(run)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        shown = []
        for line in child.stdout:
            shown.append(line)
            if len(shown) == lines:
                child.kill()
    if not shown[-1].endswith(b"\n"):
        shown.pop()
    fields = [line.decode().split() for line in shown]
    return [(name, int(seq), data) for name, seq, data in fields]


@pytest.mark.slow
async def test_no_event_that_was_shown_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    shown: dict[str, list[tuple[int, str]]] = {}
    for run in range(KILLS):
        lines = random.Random(run).choice([1, 2, 5, 20, 50, 150])
        for name, seq, data in run_and_kill(path, run, lines):
            shown.setdefault(name, []).append((seq, data))
    assert len(set(shown.pop("secret"))) == 1

    store = SqliteStore(path)
    async with store.open():
        assert store.moved_aside is None
        for run in range(KILLS):
            claimed = await store.sessions.claim(f"session {run}")
            assert isinstance(claimed, Claimed)
            assert claimed.record == str(run).encode()
        for name, events in shown.items():
            key = StreamKey("alice", name)
            stored = [(event.seq, event.data.decode()) async for event in store.follow(key)]
            assert stored[: len(events)] == events
            assert stored == [(seq, f"{name}#{seq}") for seq in range(1, len(stored) + 1)]
            for after in {0, len(events) // 2, len(stored)}:
                with trio.fail_after(30):
                    rest = [event.seq async for event in store.follow(key, after)]
                assert rest == list(range(after + 1, len(stored) + 1))
    assert shown
