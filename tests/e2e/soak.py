"""Mixed traffic and faults for a long time: `make soak MINUTES=60`. Fails if memory, tasks, threads or files grow.

The clients are the canaries, so leaks between them and lost answers are found as well. Every ten seconds the process is
measured; a straight line is laid through what came after the warm-up (fifteen minutes, two fifths of a shorter run).
In an hour memory may grow by 1 MiB, in a shorter run by 1 MiB altogether: ten minutes cannot show less than that. With
MCPTRIO_TRACE set, the server tells where the memory went.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import trio
from attrs import define, field

from tests.engines import ENGINES

from .canary import Canary, StatefulCanary, StatelessCanary, Tally
from .server_process import ServerProcess, running
from .wires import Broken, SocketWire

EVERY = 10.0
CLIENTS = 24
MIB = 2**20
QUIET = 60.0
"""When the clients have left, after so long everything that was theirs must be gone."""
BOUNDS = {"rss": MIB, "tasks": 40.0, "threads": 1.0, "fds": 10.0}
"""The maximum growth of each figure, on the line through the samples: per hour, or in a run that is shorter.
Tasks and files come and go with the traffic, so their line is only roughly level; in the end they are counted."""


@define
class Samples:
    """The measured figures, and their time in seconds."""

    times: list[float] = field(factory=list)
    values: dict[str, list[float]] = field(factory=dict)

    def add(self, now: float, **values: float) -> None:
        self.times.append(now)
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)

    def slope(self, name: str, since: float) -> float:
        """Return the growth per second, by least squares."""
        points = [(at, value) for at, value in zip(self.times, self.values[name], strict=True) if at >= since]
        middle = sum(at for at, _ in points) / len(points)
        spread = sum((at - middle) ** 2 for at, _ in points)
        return sum((at - middle) * value for at, value in points) / spread if spread else 0.0


async def soak(minutes: float, seed: int, pause: float, engine: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        with running("soaked.py", Path(folder, "log"), engine, command=()) as server:
            await server.wait_ready()
            return await soak_server(server, minutes * 60, seed, pause)


async def soak_server(server: ServerProcess, seconds: float, seed: int, pause: float) -> bool:
    tally, samples, quiet = Tally(), Samples(), Samples()
    await ask(server, "figures")
    await measure(server, quiet, 0)
    warm_up = min(0.4 * seconds, 900)
    async with trio.open_nursery() as nursery:
        for number in range(CLIENTS):
            nursery.start_soon(live, server.port, random.Random(seed * 1000 + number), tally, pause)
        began = trio.current_time()
        print(f"{'minute':>6} {'RSS MiB':>8} {'tasks':>6} {'threads':>7} {'files':>6} {'objects':>9} {'messages':>10}")
        traced = False
        while (now := trio.current_time() - began) < seconds:
            await measure(server, samples, now)
            last = {name: values[-1] for name, values in samples.values.items()}
            line = f"{now / 60:6.1f} {last['rss'] / MIB:8.1f} {last['tasks']:6.0f} {last['threads']:7.0f}"
            print(f"{line} {last['fds']:6.0f} {last['objects']:9.0f} {tally.messages:10,}", flush=True)
            if not traced and now >= warm_up and "MCPTRIO_TRACE" in os.environ:
                traced = True
                await ask(server, "growth")
            await trio.sleep(EVERY)
        nursery.cancel_scope.cancel()
    assert server.process.poll() is None
    print(f"\n{tally.messages:,} messages:", ", ".join(f"{count:,} {name}" for name, count in tally.outcomes.items()))
    passed = judge(samples, warm_up, seconds)
    await trio.sleep(QUIET)
    await measure(server, quiet, QUIET)
    if traced:
        print("\n".join(await ask(server, "growth")))
    for name in ("tasks", "threads", "fds"):
        first, last = quiet.values[name]
        passed &= last <= first
        print(f"{name:8} {first:.0f} before, {last:.0f} after  {'ok' if last <= first else 'LEFT BEHIND'}")
    return passed


def judge(samples: Samples, warm_up: float, seconds: float) -> bool:
    passed = True
    span = min(3600.0, seconds - warm_up)
    for name, bound in BOUNDS.items():
        grown = samples.slope(name, warm_up) * span
        passed &= grown <= bound
        unit, scale = ("MiB", MIB) if name == "rss" else ("", 1)
        verdict = "ok" if grown <= bound else "TOO MUCH"
        print(f"{name:8} {grown / scale:+8.2f} {unit} in {span / 60:.0f} min (at most {bound / scale:g})  {verdict}")
    return passed


async def measure(server: ServerProcess, samples: Samples, now: float) -> None:
    process = psutil.Process(server.process.pid)
    own = await ask(server, "figures")
    await trio.sleep(0.2)  # the server closes the connection of this question
    # Connections and calls come and go with the traffic: what counts is that their number has no trend.
    samples.add(now, rss=process.memory_info().rss, fds=process.num_fds(), **own)


async def ask(server: ServerProcess, tool: str) -> Any:
    canary = StatelessCanary(SocketWire(server.port), Tally(), random.Random(0))
    frames: list[dict[str, Any]] = []
    await canary.read(await canary.begin("tools/call", {"name": tool, "arguments": {}}, 1), frames)
    canary.wire.close()
    content = frames[-1]["result"]["structuredContent"]
    return content.get("result", content)


async def live(port: int, dice: random.Random, tally: Tally, pause: float) -> None:
    """Run one client after the other, stateful and stateless, each for a while; some disconnect abruptly."""
    while True:
        kind: type[Canary] = dice.choice([StatefulCanary, StatelessCanary])
        canary = kind(SocketWire(port), tally, dice)
        if isinstance(canary, StatefulCanary):
            await canary.open()
        names, weights = list(canary.steps), list(canary.steps.values())
        for name in dice.choices(names, weights, k=dice.randrange(5, 40)):
            try:
                await getattr(canary, name)()
            except Broken as error:
                raise AssertionError(f"{canary.word}: the server hung up at {name}") from error
            await trio.sleep(dice.random() * 2 * pause)
        if isinstance(canary, StatefulCanary) and dice.random() < 0.8:
            await canary.close()
        canary.wire.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="printed, to run the same again")
    parser.add_argument(
        "--pause",
        type=float,
        default=0.4,
        help="mean seconds between the steps of a client; so many that the pace is the same on a busy machine (0.4)",
    )
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="what serves the requests (hypercorn)")
    args = parser.parse_args()
    print(json.dumps(vars(args)))
    return 0 if trio.run(soak, args.minutes, args.seed, args.pause, args.engine) else 1


if __name__ == "__main__":
    sys.exit(main())
