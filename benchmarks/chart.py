"""Results as SVG bar charts that can be read on light and dark pages and on a narrow screen."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Protocol

from contenders import CONTENDERS

COLOURS = {  # on light and dark pages; the fixed response is left out
    "hypercorn": ("#0b6e4f", "#35b98a"),
    "direct": ("#4fae8c", "#93dfc2"),
    "official-high": ("#6b7280", "#a3acb9"),
    "official-low": ("#a9b0bb", "#737d8c"),
    "fastmcp": ("#c2713a", "#e3a06f"),
    "typescript": ("#3f74ad", "#7fb2e6"),
}
SUMMARY_ROWS = ("call-json", "stdio-1", "cold-start", "idle-session")
SUMMARY_CONTENDERS = ("hypercorn", "official-high", "fastmcp", "typescript")
WIDTH, MARGIN, BAR, LINE = 480, 14, 13, 18


class Row(Protocol):
    key: str
    title: str
    unit: str
    figures: dict[str, list[float]]


def summary(rows: Sequence[Row]) -> str:
    """Draw the few rows that the front page shows."""
    return chart([row for row in rows if row.key in SUMMARY_ROWS], SUMMARY_CONTENDERS)


def chart(rows: Sequence[Row], contenders: Iterable[str] = COLOURS) -> str:
    """Draw a group of bars for each row that compares several contenders; shorter is better."""
    shown = [(row, [key for key in contenders if row.figures.get(key)]) for row in rows]
    shown = [(row, keys) for row, keys in shown if len({CONTENDERS[key].ours for key in keys}) > 1]
    keys = [key for key in contenders if any(key in row_keys for _, row_keys in shown)]
    parts = [f'<text x="{MARGIN}" y="26" class="strong">CPU time and memory of a server: shorter is better</text>']
    parts += legend(keys)
    y = 40 + LINE * ((len(keys) + 1) // 2) + 8
    for row, row_keys in shown:
        parts += group(row, row_keys, y)
        y += LINE + BAR * len(row_keys) + 12
    return "\n".join([*opening(y), *parts, "</svg>\n"])


def opening(height: int) -> Iterator[str]:
    light = " ".join(f".{key} {{ fill: {colours[0]} }}" for key, colours in COLOURS.items())
    dark = " ".join(f".{key} {{ fill: {colours[1]} }}" for key, colours in COLOURS.items())
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif" font-size="13" role="img">'
    )
    yield "<title>CPU time and memory, compared with other MCP servers</title>"
    yield f"<style>.ground {{ fill: #f4f7f5 }} text {{ fill: #17211c }} .strong {{ font-weight: 600 }} {light}"
    yield f"@media (prefers-color-scheme: dark) {{ .ground {{ fill: #16201b }} text {{ fill: #eef4f0 }} {dark} }}"
    yield "</style>"
    yield f'<rect class="ground" width="{WIDTH}" height="{height}" rx="8"/>'


def legend(keys: Sequence[str]) -> Iterator[str]:
    """Name the colours, two contenders to a line."""
    for index, key in enumerate(keys):
        x, y = MARGIN + (WIDTH - MARGIN) / 2 * (index % 2), 38 + LINE * (index // 2)
        yield f'<rect class="{key}" x="{x:g}" y="{y}" width="12" height="12" rx="2"/>'
        yield f'<text x="{x + 18:g}" y="{y + 11}" font-size="12">{escape(CONTENDERS[key].title)}</text>'


def group(row: Row, keys: Sequence[str], y: int) -> Iterator[str]:
    """Draw the title of a row and its bars, as long as their median, with the figure at the end."""
    medians = {key: statistics.median(row.figures[key]) for key in keys}
    longest = max(medians.values())
    yield f'<text x="{MARGIN}" y="{y + 12}" class="strong">{escape(row.title)}</text>'
    for index, (key, value) in enumerate(medians.items()):
        top = y + LINE + BAR * index
        length = max((WIDTH - 2 * MARGIN - 72) * value / longest, 1.5)
        yield f'<rect class="{key}" x="{MARGIN}" y="{top}" width="{length:.1f}" height="{BAR - 2}"/>'
        yield f'<text x="{MARGIN + length + 6:.1f}" y="{top + 10}" font-size="12">{number(value)} {row.unit}</text>'


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
