"""Results as a table, as JSON and as an SVG chart."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from contenders import BASE, CONTENDERS

BEGIN, END = "<!-- the last full run -->", "<!-- end of the run -->"
COLOURS = {  # of the chart, which leaves out the fixed response
    "hypercorn": "#0b6e4f",
    "direct": "#3aa17e",
    BASE: "#6b7280",
    "official-low": "#9ca3af",
    "fastmcp": "#c08457",
    "typescript": "#4f7cac",
}


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


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def save(results: list[Result], about: dict[str, Any], folder: Path, *, whole: bool) -> None:
    name = "last-full" if whole else "last"
    (folder / f"{name}.json").write_text(
        json.dumps({"about": about, "rows": [asdict(result) for result in results]}, indent=1)
    )
    (folder / f"{name}.md").write_text(table(results, about) + "\n")
    (folder / f"{name}.svg").write_text(chart(results))
    print(f"» results are in {folder}/{name}.md, .json and .svg", file=sys.stderr)


def publish(folder: Path, docs: Path) -> None:
    """Copy the last full run into the documentation: the table into its page, the chart and the figures as files."""
    page = docs / "performance.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(before + BEGIN + "\n" + (folder / "last-full.md").read_text() + END + after)
    for kind in ("svg", "json"):
        (docs / f"performance.{kind}").write_text((folder / f"last-full.{kind}").read_text())


LEFT, WIDE, BAR, GAP, TOP = 300, 460, 13, 16, 56


def chart(results: list[Result]) -> str:
    """Draw a bar for each contender and row: how many times cheaper than the baseline, on a logarithmic scale."""
    rows = [(r, [k for k in COLOURS if r.ratios(k)]) for r in results if r.figures.get(BASE)]
    width, height = LEFT + WIDE + 60, sum(len(keys) * BAR + GAP for _, keys in rows) + TOP + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="11">',
        f"<title>CPU time and memory, times less than {CONTENDERS[BASE].title}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *legend(dict.fromkeys(key for _, keys in rows for key in keys)),
    ]
    for mark in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64):
        x = place(mark)
        parts.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{TOP - 8}" y2="{height - 8}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{x:.0f}" y="{TOP - 14}" text-anchor="middle" fill="#6b7280">{mark:g}×</text>')
    y = TOP
    for result, keys in rows:
        parts.append(f'<text x="{LEFT - 8}" y="{y + 10}" text-anchor="end">{result.title}</text>')
        for key in keys:
            parts += bar(y, key, statistics.median(result.ratios(key)))
            y += BAR
        y += GAP
    return "\n".join([*parts, "</svg>"]) + "\n"


def place(ratio: float) -> float:
    """Return the horizontal position of a ratio: from 1/4 to 64, with equal steps for each doubling."""
    return LEFT + WIDE * (min(max(math.log2(ratio), -2.0), 6.0) + 2) / 8


def bar(y: int, key: str, ratio: float) -> Iterator[str]:
    x, one = place(ratio), place(1)
    yield (
        f'<rect x="{min(x, one):.1f}" y="{y}" width="{max(abs(x - one), 1):.1f}" height="{BAR - 2}" '
        f'fill="{COLOURS[key]}"><title>{CONTENDERS[key].title}: {number(ratio)}×</title></rect>'
    )
    if CONTENDERS[key].ours:
        yield f'<text x="{x + 4:.1f}" y="{y + 9}" fill="#374151">{number(ratio)}</text>'


def legend(keys: Iterable[str]) -> Iterator[str]:
    """Name the colours above the chart, three contenders to a line."""
    for index, key in enumerate(keys):
        x, y = 120 + 240 * (index % 3), 6 + 14 * (index // 3)
        yield f'<rect x="{x}" y="{y}" width="10" height="10" fill="{COLOURS[key]}"/>'
        yield f'<text x="{x + 15}" y="{y + 9}">{CONTENDERS[key].title}</text>'
