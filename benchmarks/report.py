"""Results as a table, as JSON and as SVG charts."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from chart import chart, number, summary
from contenders import BASE, CONTENDERS

BEGIN, END = "<!-- the last full run -->", "<!-- end of the run -->"


@dataclass
class Result:
    """The figures of one row: a list with one figure per round for each contender."""

    key: str
    title: str
    unit: str
    figures: dict[str, list[float]] = field(default_factory=dict)
    fault: dict[str, str] = field(default_factory=dict)

    def ratios(self, key: str) -> list[float]:
        """Return the cost of the official high-level server divided by that of a contender, for each round."""
        base, own = self.figures.get(BASE, []), self.figures.get(key, [])
        return [b / o for b, o in zip(base, own, strict=False) if o > 0]


def machine(**more: Any) -> dict[str, Any]:
    return {
        "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()) + " UTC",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "trio": version("trio"),
        "load average": round(os.getloadavg()[0], 1),
        **more,
    }


def table(results: list[Result], about: dict[str, Any]) -> str:
    """Format the results as a Markdown table."""
    keys = [key for key in CONTENDERS if any(key in result.figures for result in results)]
    head = ["", *(CONTENDERS[key].title for key in keys)]
    rows = [head, ["---"] * len(head)]
    rows += [[f"{result.title} ({result.unit})", *(cell(result, key) for key in keys)] for result in results]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.append("")
    lines.append(
        f"{about['when']}, {about['machine']}, Python {about['python']}, {about['rounds']} rounds, load average "
        f"{about['load average']}. The load client itself: {about['load'] * 1e6:.0f} µs per call."
    )
    lines += [f"{CONTENDERS[k].title}, {r.title}: {text}" for r in results for k, text in r.fault.items()]
    return "\n".join(lines)


def cell(result: Result, key: str) -> str:
    figures = result.figures.get(key)
    if not figures:
        return "–"
    shown = number(statistics.median(figures))
    ratios = result.ratios(key)
    if key == BASE or not ratios:
        return shown
    low, high = min(ratios), max(ratios)
    spread = f", {number(low)}–{number(high)}" if len(ratios) > 1 else ""
    return f"{shown} (**{number(statistics.median(ratios))}**×{spread})"


def save(results: list[Result], about: dict[str, Any], folder: Path, *, whole: bool) -> None:
    name = "last-full" if whole else "last"
    (folder / f"{name}.json").write_text(
        json.dumps({"about": about, "rows": [asdict(result) for result in results]}, indent=1)
    )
    (folder / f"{name}.md").write_text(table(results, about) + "\n")
    print(f"» results are in {folder}/{name}.md and .json", file=sys.stderr)


def publish(folder: Path, docs: Path) -> None:
    """Copy the last full run into the documentation: the table into its page, the figures and the charts as files."""
    page = docs / "performance.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(before + BEGIN + "\n" + (folder / "last-full.md").read_text() + END + after)
    figures = (folder / "last-full.json").read_text()
    (docs / "performance.json").write_text(figures)
    draw(docs)


def draw(docs: Path) -> None:
    """Draw the charts of the documentation from its figures."""
    rows = [Result(**row) for row in json.loads((docs / "performance.json").read_text())["rows"]]
    (docs / "performance.svg").write_text(chart(rows))
    (docs / "performance-summary.svg").write_text(summary(rows))
