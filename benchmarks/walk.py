"""Measure the walk of a call through the package; `--write` puts the result into `docs/design/life-of-a-call.md`.

The call is a `tools/call` of a tool that waits for one turn of the event loop, repeated in one session on one open
connection and answered with JSON: over stdio, and over HTTP on each engine. The server runs in a child process with a
real pipe or socket, as users run it. A profiler hook (`sys.setprofile`) on the thread of the event loop records each
function that is entered, from the first byte of the request until the server is idle again.

- An entry is a call of a function of the package, or the resumption of a coroutine of the package: when Trio resumes a
  task, each coroutine on its stack is entered again. Returning from a function is not an entry.
- Files are the distinct modules entered. A module change is an entry into another module than the previous entry.
- Not counted: `mcptrio.telemetry`, the watchdog (it runs at intervals), third-party code, the tool itself, and
  comprehensions (part of their function).
- Trio runs tasks that are ready at the same time in random order, so the walk varies. Reported is the longest walk that
  at least a tenth of the calls took; rarer ones contain periodic work.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import messages
from contenders import ENGINES, ROOT, SERVERS
from load import Pipe, free_port, open_session, wait_for

PACKAGE = f"{ROOT / 'mcptrio'}/"
PAGE = ROOT / "docs" / "design" / "life-of-a-call.md"
BEGIN, END = "<!-- walk of a call: benchmarks/walk.py --write -->", "<!-- end of the walk -->"
TITLES = {"stdio": "stdio", **{engine: f"HTTP, {engine}" for engine in ENGINES}}
BARS = {"stdio": (16, 32), "hypercorn": (24, 50)}  # the largest number of files and of module changes
WARM_UP, CALLS = 10, 150
IDLE = 0.01  # seconds after a response in which the server becomes idle

Entry = tuple[str, str]  # module and function
Walk = tuple[Entry, ...]


def serve(kind: str, port: int, out: Path) -> None:
    """Run the benchmark's server in this process and write the functions it enters, with the time of each."""
    sys.path.insert(0, str(SERVERS))
    from mcptrio_server import server

    entered: list[tuple[float, str, str]] = []

    def hook(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.endswith(("comp>", "expr>")):
            module = code.co_filename.removeprefix(PACKAGE).removesuffix(".py").replace("/", ".")
            if not module.startswith(("telemetry", "_actors.watchdog")):
                entered.append((time.monotonic(), module, code.co_qualname))

    sys.setprofile(hook)
    try:
        if kind == "stdio":
            server.run()
        else:
            server.run("http", port=port, engine=kind)
    finally:
        sys.setprofile(None)
        out.write_text(json.dumps(entered))


def record(kind: str) -> list[Walk]:
    """Start a server, call its tool repeatedly, and return the walk of each call."""
    port = free_port()
    call = messages.call("add", {"a": 1, "b": 2})
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "entered.json"
        command = [sys.executable, __file__, "--serve", kind, "--port", str(port), "--out", str(out)]
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        with child:
            if kind == "stdio":
                pipe = Pipe(child)
                pipe.open()
                periods = time_calls(lambda: pipe.ask([call]))
            else:
                wait_for(port, child)
                connection, session = open_session(port)
                periods = time_calls(lambda: connection.ask(messages.post(port, call, session)))
                connection.close()
                child.send_signal(signal.SIGTERM)
        entered = json.loads(out.read_text())
    return [tuple((module, name) for at, module, name in entered if begin < at < end) for begin, end in periods]


def time_calls(call: Callable[[], object]) -> list[tuple[float, float]]:
    """Make the calls one after the other and return when each began and when the server was idle again."""
    for _ in range(WARM_UP):
        call()
    periods = []
    for _ in range(CALLS):
        time.sleep(IDLE)
        began = time.monotonic()
        call()
        time.sleep(IDLE)
        periods.append((began, time.monotonic()))
    return periods


def choose(walks: Sequence[Walk]) -> Walk:
    """Return the longest walk that at least a tenth of the calls took."""
    counted = Counter(walks).most_common()
    usual = [walk for walk, count in counted if count >= len(walks) / 10] or [counted[0][0]]
    return max(usual, key=lambda walk: (changes(walk), len(walk)))


def changes(walk: Walk) -> int:
    return sum(before[0] != after[0] for before, after in itertools.pairwise(walk))


def table(walks: dict[str, Walk]) -> str:
    lines = ["| a call over | files (bar) | module changes (bar) | functions entered |", "|---|---|---|---|"]
    for kind, walk in walks.items():
        files = len({module for module, _ in walk})
        bars = [f" (≤ {bar})" for bar in BARS.get(kind, ())] or ["", ""]
        lines.append(f"| {TITLES[kind]} | {files}{bars[0]} | {changes(walk)}{bars[1]} | {len(walk)} |")
    return "\n".join(lines)


def listing(walk: Walk) -> str:
    """Format a walk with one line for each stay in a module."""
    stays = itertools.groupby(walk, key=lambda entry: entry[0])
    return "\n".join(f"{module}: {', '.join(name for _, name in stay)}" for module, stay in stays)


def write(walks: dict[str, Walk]) -> None:
    """Put the table and the walks into the documentation, between the markers."""
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} has no lines {BEGIN} and {END}")
    parts = [table(walks), *(f"### {TITLES[kind]}\n\n```text\n{listing(walk)}\n```" for kind, walk in walks.items())]
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n\n".join(parts) + f"\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"put the result into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--serve", choices=TITLES, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.port, given.out)
        return
    walks = {kind: choose(record(kind)) for kind in TITLES}
    if given.write:
        write(walks)
    else:
        for kind, walk in walks.items():
            print(f"{TITLES[kind]}\n\n{listing(walk)}\n")
    print(table(walks))


if __name__ == "__main__":
    main()
