"""Run the benchmarks: `python benchmarks/run.py [--work WORD] [--quick] [--self-check]` (or `make bench`).

The contenders take turns in every round, so that other work on the machine affects all of them alike. The figure is the
CPU time of the server's process; the ratio to the official SDK's high-level server is taken within each round, and the
table shows the median of these ratios with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import report
from contenders import BASE, CONTENDERS, Effort, Row, Servers
from load import Broken, own_cost

from tests.conformance.toolchain import ROOT, Unavailable

QUESTIONS = (
    "tools_call",
    "tools_list",
    "progress",
    "stdio",
    "start",
    "latency",
    "in_memory",
    "elicitation",
    "resume",
    "fan_out",
    "sessions",
    "many_tools",
    "workers",
)
FULL = Effort(rounds=7, seconds=0.6)
QUICK = Effort(rounds=3, seconds=0.08, scale=0.1)
SELF_CHECK = Effort(rounds=1, seconds=0.05, scale=0.01)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", default="", help="only rows whose key, or whose question, contains this")
    parser.add_argument("--contenders", default="", help="only these (comma-separated)")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: two minutes instead of twelve")
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 7, quick: 3)")
    parser.add_argument("--self-check", action="store_true", help="run each row for a moment, without other contenders")
    parser.add_argument("--publish", action="store_true", help="put the last full run into docs/ and exit")
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "bench", help="folder of the results")
    given = parser.parse_args()
    if given.publish:
        report.publish(given.out, ROOT / "docs")
        return 0
    effort = SELF_CHECK if given.self_check else QUICK if given.quick else FULL
    if given.rounds:
        effort = Effort(rounds=given.rounds, seconds=effort.seconds, scale=effort.scale)
    keys = {key for key in CONTENDERS if not given.contenders or key in given.contenders.split(",")}
    if given.self_check:
        keys = {key for key in keys if CONTENDERS[key].ours}
    selected = select(given.work)
    if not selected:
        parser.error(f"no row matches {given.work!r}; the questions are {', '.join(QUESTIONS)}")
    progress = Progress(sum(rounds_of(row, effort) * len(keys & set(row.contenders)) for _, row in selected))
    keys = install(keys, progress)
    results = []
    for question in dict.fromkeys(question for question, _ in selected):
        rows = [row for name, row in selected if name == question]
        results += measure(rows, keys, effort, progress)
    progress.clear()
    machine = report.machine(load=own_cost(effort.seconds), rounds=effort.rounds)
    print(report.table(results, machine))
    if not given.self_check:
        given.out.mkdir(parents=True, exist_ok=True)
        report.save(results, machine, given.out, whole=not (given.work or given.quick or given.contenders))
    return 1 if any(result.fault for result in results if given.self_check) else 0


def select(word: str) -> list[tuple[str, Row]]:
    """Return the matching rows, each with the name of its question."""
    every = [(name, row) for name in QUESTIONS for row in importlib.import_module(f"questions.{name}").ROWS]
    return [(name, row) for name, row in every if word in name or word in row.key]


def rounds_of(row: Row, effort: Effort) -> int:
    return min(row.rounds or effort.rounds, effort.rounds)


def install(keys: set[str], progress: Progress) -> set[str]:
    """Install contenders and return those that are available; report the others on standard error."""
    available = set()
    for key in sorted(keys):
        progress.say(f"installing {CONTENDERS[key].title}")
        try:
            CONTENDERS[key].install()
            available.add(key)
        except Unavailable as reason:
            progress.clear()
            print(f"» without {CONTENDERS[key].title}: {reason}", file=sys.stderr)
    return available


def measure(rows: list[Row], keys: set[str], effort: Effort, progress: Progress) -> list[report.Result]:
    """Measure all rows of one question, with the contenders in turns."""
    servers = Servers()
    results = [report.Result(row.key, row.title, row.unit) for row in rows]
    try:
        for round_ in range(effort.rounds):
            for row, result in zip(rows, results, strict=True):
                if round_ >= rounds_of(row, effort):
                    continue
                for key in row.contenders:
                    if key not in keys or key in result.fault:
                        continue
                    progress.step(f"round {round_ + 1}: {row.key}, {key}")
                    try:
                        figure = row.measure(servers, CONTENDERS[key], effort)
                    except (Broken, OSError) as error:
                        result.fault[key] = f"{type(error).__name__}: {error}"
                    else:
                        result.figures.setdefault(key, []).append(figure)
    finally:
        servers.close()
    return results


class Progress:
    """The progress display: one changing line on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.began = self.shown = time.monotonic()

    def step(self, text: str) -> None:
        self.done += 1
        self.say(f"{100 * self.done // max(self.total, 1):3} %  {text}")

    def say(self, text: str) -> None:
        now = time.monotonic()
        if sys.stderr.isatty():
            print(f"\r\033[K  {now - self.began:4.0f} s  {text}", end="", file=sys.stderr, flush=True)
        elif now - self.shown > 10:
            self.shown = now
            print(f"» {now - self.began:.0f} s: {text}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    assert BASE in CONTENDERS
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())
