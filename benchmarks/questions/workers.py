"""How much faster do two workers answer stateless calls than one?

The figures are wall time, since the CPU time of a call is the same. The load client shares the cores with the workers,
so on two cores the factor stays below two. `python benchmarks/questions/workers.py` measures only this, in turns, and
prints the factor of each round.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import messages
from contenders import CONTENDERS, ENGINES, SERVERS, Child, Contender, Effort, Row, Servers
from load import Connection, free_port, send_repeatedly, wait_for

from questions.tools_call import ADD

CONNECTIONS = 64  # enough for an even share of each worker


def start(servers: Servers, contender: Contender, workers: int) -> Child:
    """Start a parent with its workers, once."""
    key = (contender.key, "workers", str(workers))
    if key not in servers.children:
        port = free_port()
        words = ["-m", "mcptrio", "run", str(SERVERS / contender.script), "--transport", "http", "--port", str(port)]
        options = ["--json-only", "--protocol", messages.STATELESS, "--workers", str(workers), "--drain-timeout", "0"]
        command = [sys.executable, *words, *options, *contender.options]
        process = subprocess.Popen(command, cwd=SERVERS, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        servers.children[key] = Child(process, port)
        wait_for(port, process)
        answer_once(port)
    return servers.children[key]


def answer_once(port: int) -> None:
    """Wait until a worker has answered: the socket of the parent accepts connections before."""
    connection = Connection(port)
    connection.ask(messages.post_stateless(port, ADD))
    connection.close()


def wall_time(servers: Servers, contender: Contender, effort: Effort, workers: int) -> float:
    """Return the microseconds between two responses, with all workers busy."""
    child = start(servers, contender, workers)
    connections = [Connection(child.port) for _ in range(CONNECTIONS)]
    try:
        requests = [messages.post_stateless(child.port, ADD)] * CONNECTIONS
        send_repeatedly(connections, requests, effort.seconds / 4, b'"3"')
        count, _ = send_repeatedly(connections, requests, effort.seconds, b'"3"')
        return effort.seconds / count * 1e6
    finally:
        for connection in connections:
            connection.close()


ROWS = tuple(
    Row(
        key=f"call-json-stateless-workers-{workers}",
        title=f"tools/call, JSON, stateless, wall time with {name}",
        unit="µs",
        contenders=ENGINES,
        measure=partial(wall_time, workers=workers),
    )
    for workers, name in ((1, "one worker"), (2, "two workers"))
)


def main() -> None:
    effort = Effort(rounds=7, seconds=1.0)
    servers = Servers()
    try:
        for engine in ENGINES:
            factors = []
            for _ in range(effort.rounds):
                one, two = (wall_time(servers, CONTENDERS[engine], effort, workers) for workers in (1, 2))
                factors.append(one / two)
                print(f"{engine}: one worker {1e6 / one:.0f}/s, two {1e6 / two:.0f}/s, factor {one / two:.2f}")
            print(
                f"{engine}: median factor {statistics.median(factors):.2f}, load {os.getloadavg()[0]:.1f}", flush=True
            )
    finally:
        servers.close()


if __name__ == "__main__":
    main()
