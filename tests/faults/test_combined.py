"""F46: three faults at once, chosen at random; only the invariants count. The seed is printed.

The suite draws a few; `make fault-test` goes on for minutes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.e2e.canary import StatefulCanary

from .conftest import Open, WatchedServer
from .serving import make_server

RUNS = 2000 if "MCPTRIO_FAULTS" in os.environ else 15


async def vanish(watched: WatchedServer, dice: random.Random) -> None:
    guest = await watched.guest(dice.choice(["stateful", "stateless"]))
    answer = await watched.begin(guest, "tell", {"times": 5, "pause": dice.random()})
    await trio.sleep(dice.random())
    answer.cut()


async def come_back(watched: WatchedServer, dice: random.Random) -> None:
    guest = await watched.guest("stateful")
    assert isinstance(guest, StatefulCanary)
    for _ in range(3):
        await guest.tell_and_lose()


async def cancel(watched: WatchedServer, dice: random.Random) -> None:
    guest = await watched.guest("stateful")
    assert isinstance(guest, StatefulCanary)
    for _ in range(dice.randrange(1, 4)):
        await guest.cancel()


async def send_garbage(watched: WatchedServer, dice: random.Random) -> None:
    guest = await watched.guest(dice.choice(["stateful", "stateless"]))
    for _ in range(5):
        await guest.bad()


async def hang(watched: WatchedServer, dice: random.Random) -> None:
    guest = await watched.guest(dice.choice(["stateful", "stateless"]))
    assert (await watched.call(guest, "wait", {"seconds": 1e4}))["result"]["isError"] is True
    watched.blame("outcome=timeout", guest, 1)


async def flood(watched: WatchedServer, dice: random.Random) -> None:
    guest = await watched.guest(dice.choice(["stateful", "stateless"]))
    frames: list[dict[str, Any]] = []
    answer = await watched.begin(guest, "tell", {"times": 40, "kib": dice.choice([0, 64, 300]), "pause": 0})
    await guest.read(answer, frames)
    assert guest.text(guest.outcome(frames, 1)) == guest.word


async def never_answer(watched: WatchedServer, dice: random.Random) -> None:
    guest = await watched.guest("stateless")
    for _ in range(4):
        assert "inputRequests" in (await watched.call(guest, "ask"))["result"]


async def leave_for_good(watched: WatchedServer, dice: random.Random) -> None:
    guest = await watched.guest("stateful")
    assert isinstance(guest, StatefulCanary)
    await watched.begin(guest, "wait", {"seconds": 50.0})
    await trio.sleep(dice.random())
    await guest.close()


async def use_an_id_twice(watched: WatchedServer, dice: random.Random) -> None:
    guest = await watched.guest("stateful")
    assert isinstance(guest, StatefulCanary)
    await guest.twice()


async def steal(watched: WatchedServer, dice: random.Random) -> None:
    thief = await watched.guest("stateful")
    assert isinstance(thief, StatefulCanary)
    for _ in range(3):
        await thief.steal()
        await trio.sleep(dice.random())


FAULTS: list[Callable[[WatchedServer, random.Random], Awaitable[None]]] = [
    vanish, come_back, cancel, send_garbage, hang, flood, never_answer, leave_for_good, use_an_id_twice, steal,
]  # fmt: skip


@pytest.mark.parametrize("part", range(max(1, RUNS // 15)))
async def test_fault_three_at_once(part: int, open_watched: Open, autojump_clock: MockClock) -> None:
    for number in range(15):
        seed = part * 15 + number
        dice = random.Random(seed)
        chosen = dice.sample(FAULTS, 3)
        print(f"seed {seed}: {', '.join(getattr(fault, '__name__', '') for fault in chosen)}")
        async with open_watched(make_server(parked_ttl=30)) as watched:
            async with trio.open_nursery() as nursery:
                for fault in chosen:
                    nursery.start_soon(fault, watched, dice)
            await trio.sleep(32)
            watched.blame_limits()
