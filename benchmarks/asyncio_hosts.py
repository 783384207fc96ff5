"""Compare the cost of a tool call under asyncio servers, with Trio as a guest: `python benchmarks/asyncio_hosts.py`

The hosts take turns in every round, so that other work on the machine affects all of them alike. The figure is the CPU
time of the server's process for one standard call (`add` waits for one turn of the event loop); the ratio to the
hypercorn engine of `mcptrio run` is taken within each round, and the table shows the median of these ratios. The rows
"fixed response" are the host alone, with an application that always sends the same response.

The last lines divide a call's cost: into the host (its fixed response), the endpoint with the tool (a call on the
hypercorn engine less that engine's fixed response), and the guest (the rest: getting into Trio and back).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import messages
import psutil
from load import Connection, free_port, open_session, send_repeatedly, wait_for

SERVERS = Path(__file__).resolve().parent / "servers"
UVICORN = ("-m", "uvicorn", "mcptrio_server:app", "--log-level", "warning", "--timeout-keep-alive", "75", "--port")
HYPERCORN = ("-m", "hypercorn", "mcptrio_server:app", "-c", "hypercorn.toml", "-b")
HOSTS = {
    "hypercorn engine": ("mcptrio_server.py", "--engine", "hypercorn", "--port", "{port}"),
    "uvicorn": (*UVICORN, "{port}", "--loop", "asyncio"),
    "uvicorn, uvloop": (*UVICORN, "{port}", "--loop", "uvloop"),
    "hypercorn -k asyncio": (*HYPERCORN, "127.0.0.1:{port}", "-k", "asyncio"),
    "hypercorn -k trio": (*HYPERCORN, "127.0.0.1:{port}", "-k", "trio"),
}
BASE = next(iter(HOSTS))
FIXED = ", fixed response"
GUESTS = ("uvicorn", "uvicorn, uvloop", "hypercorn -k asyncio")
HOSTS |= {
    host + FIXED: tuple(part.replace("mcptrio_server:", "static_server:") for part in HOSTS[host]) for host in GUESTS
}
HOSTS[BASE + FIXED] = ("static_server.py", "--port", "{port}")


def cpu_of(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU seconds of a process and its children, as the kernel counts them: Hypercorn serves in a child."""
    children = psutil.Process(process.pid).children(recursive=True)
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in (process.pid, *(child.pid for child in children)))


def start(host: str, opened: ExitStack) -> tuple[subprocess.Popen[bytes], int]:
    port = free_port()
    command = [part.format(port=port) for part in HOSTS[host]]
    process = subprocess.Popen([sys.executable, *command], cwd=SERVERS, stderr=subprocess.DEVNULL)
    opened.callback(process.wait)
    opened.callback(process.terminate)
    wait_for(port, process)
    return process, port


def share(index: int, host: str, costs: dict[str, list[float]]) -> tuple[float, float, float]:
    """Return the shares of one round: host, endpoint and guest, as parts of a call on the hypercorn engine."""
    base, base_fixed = costs[BASE][index], costs[BASE + FIXED][index]
    alone, whole = costs[host + FIXED][index], costs[host][index]
    return alone / base, (base - base_fixed) / base, (whole - alone - (base - base_fixed)) / base


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--connections", type=int, nargs="*", default=(1, 16))
    given = parser.parse_args()
    with ExitStack() as opened:
        running = {host: start(host, opened) for host in HOSTS}
        for number in given.connections:
            lines: dict[str, tuple[list[Connection], list[bytes]]] = {}
            for host, (_, port) in running.items():
                sessions = [open_session(port) for _ in range(number)]
                body = messages.call("add", {"a": 1, "b": 2})
                lines[host] = [c for c, _ in sessions], [messages.post(port, body, session) for _, session in sessions]
                send_repeatedly(*lines[host], 0.2, b'"3"')
            costs: dict[str, list[float]] = {host: [] for host in HOSTS}
            for _ in range(given.rounds):
                for host, (process, _) in running.items():
                    before = cpu_of(process)
                    count, _took = send_repeatedly(*lines[host], given.seconds, b'"3"')
                    costs[host].append((cpu_of(process) - before) / count * 1e6)
            print(f"{number} connections, {given.rounds} rounds")
            for host, found in costs.items():
                ratios = [cost / base for cost, base in zip(found, costs[BASE], strict=True)]
                print(f"  {host:38} {statistics.median(found):6.0f} µs   {statistics.median(ratios):5.2f} x")
            for host in GUESTS:
                shares = [share(index, host, costs) for index in range(given.rounds)]
                text = ", ".join(
                    f"{name} {statistics.median(found):.2f}"
                    for name, found in zip(("host", "endpoint", "guest"), zip(*shares, strict=True), strict=True)
                )
                print(f"  {host:38} {text}")


if __name__ == "__main__":
    main()
