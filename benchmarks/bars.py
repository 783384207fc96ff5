"""Compare a run with the bars it should reach: `python benchmarks/bars.py [FILE]` after `make bench`.

FILE is a result of `run.py`, by default the last full run. The exit code is 1 if a bar is missed or was not measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from contenders import ENGINES, ROOT
from report import Result, number

# The bounds on hypercorn and on direct. Rows without an engine have one bound.
# How many times less than the official SDK's high-level server, at least:
LEAST_RATIO: dict[str, tuple[float, ...]] = {
    "call-json": (2.8, 4.5),
    "call-json-stateless": (2.4, 4),
    "call-sse": (3, 6.5),
    "call-json-never-waits": (2.3, 6),
    "call-json-stateless-never-waits": (2, 5),
    "call-def": (1.8, 2.5),
    "list-100": (15, 40),
    "progress": (4, 6.5),
    "fan-out": (1.5, 4),
    "stdio-1": (6,),
    "stdio-64": (10,),
    "stdio-1-never-waits": (9,),
    "stdio-64-never-waits": (25,),
    "cold-start": (4,),
}
# The figure itself, in the unit of its row, at most:
LARGEST_FIGURE: dict[str, tuple[float, ...]] = {
    "memory": (32,),
    "idle-session": (8, 8),
    "idle-stream": (60, 40),
    "growth-sessions": (1.2, 1.2),
}


def compare(results: Mapping[str, Result]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield a line for each bar: row, engine, bar, measured median, verdict."""
    for row, bounds in (LEAST_RATIO | LARGEST_FIGURE).items():
        result = results.get(row, Result(row, row, ""))
        for engine, bound in zip(ENGINES, bounds, strict=False):
            least = row in LEAST_RATIO
            bar = f"≥ {bound:g} ×" if least else f"≤ {bound:g} {result.unit}"
            values = result.ratios(engine) if least else result.figures.get(engine)
            if not values:
                yield result.title, engine, bar, "–", "not measured"
                continue
            median = statistics.median(values)
            reached = median >= bound if least else median <= bound
            yield result.title, engine, bar, number(median), "reached" if reached else "missed"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = ROOT / ".cache" / "bench" / "last-full.json"
    parser.add_argument("file", nargs="?", type=Path, default=default, help="a result of run.py")
    file = parser.parse_args().file
    if not file.exists():
        parser.error(f"{file} does not exist: run make bench first, or name the result of another run")
    rows = json.loads(file.read_text())["rows"]
    lines = list(compare({row["key"]: Result(**row) for row in rows}))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    return 0 if all(line[-1] == "reached" for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
