"""Draws the diagrams of the documentation: plain text in `docs/diagrams/*.txt` becomes an SVG file of the same name.

The first line of a text is the kind and the title, for example `tree: Who owns whom`.

    tree        indented lines, `name: words`; a child belongs to the line above it that is indented less
    sequence    `actors: client, session`, then `client -> session: words` and `note session: words`
    layers      lines of boxes, `[name: words] [name: words]`; `| words` is an arrow to the next line;
                `{ title` and `}` enclose the lines between them

The files bring their own background and know light and dark, so they can be read wherever they are shown.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from html import escape
from pathlib import Path

WIDTH, MARGIN, LINE = 480, 14, 17
CHAR = 6.7  # the width of an average character at a font size of 13
STYLE = """
.ground { fill: #f4f7f5 } .box { fill: #ffffff; stroke: #0b6e4f } .group { fill: #e6efea; stroke: none }
.line { stroke: #5f6f67; fill: none } .head { fill: #5f6f67 } text { fill: #17211c }
.soft { fill: #4d5a53 } .strong { font-weight: 600 }
@media (prefers-color-scheme: dark) {
  .ground { fill: #16201b } .box { fill: #1f2d26; stroke: #5cc9a3 } .group { fill: #26382f }
  .line { stroke: #93a69c } .head { fill: #93a69c } text { fill: #eef4f0 } .soft { fill: #b9c7bf }
}
"""


def draw(source: str) -> str:
    """Return the SVG file for a text."""
    first, _, body = source.partition("\n")
    kind, _, title = first.partition(": ")
    lines = [line for line in body.splitlines() if line.strip()]
    parts, height = {"tree": tree, "sequence": sequence, "layers": layers}[kind](lines)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif" font-size="13" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto-start-reverse"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>',
            f'<rect class="ground" width="{WIDTH}" height="{height}" rx="8"/>',
            *parts,
            "</svg>\n",
        ]
    )


# -- the pieces


def text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{style}" text-anchor="{anchor}">{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, style: str = "box") -> str:
    return f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'


def line(x1: float, y1: float, x2: float, y2: float, *, head: bool = False, dashed: bool = False) -> str:
    more = ' marker-end="url(#head)"' * head + ' stroke-dasharray="4 4"' * dashed
    return f'<path class="line" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"{more}/>'


def wrapped(words: str, width: float) -> list[str]:
    return textwrap.wrap(words, int(width / CHAR), break_long_words=False, break_on_hyphens=False)


# -- the kinds


def tree(lines: list[str]) -> tuple[list[str], int]:
    """Draw one box per line, indented like the text, with a line from each box to its owner."""
    parts: list[str] = []
    owners: list[tuple[int, float]] = []  # indentation, and the bottom of the box, of each open level
    y = float(MARGIN)
    for entry in lines:
        indent = len(entry) - len(entry.lstrip())
        name, _, words = entry.strip().partition(": ")
        owners = [owner for owner in owners if owner[0] < indent]
        x = MARGIN + 26 * len(owners)
        told = wrapped(words, WIDTH - MARGIN - x - 20) if words else []
        height = LINE * (1 + len(told)) + 12
        if owners:
            trunk = x - 26 + 12
            parts += [line(trunk, owners[-1][1], trunk, y + height / 2), line(trunk, y + height / 2, x, y + height / 2)]
        parts += [rect(x, y, WIDTH - MARGIN - x, height), text(x + 10, y + 19, name, "strong")]
        parts += [text(x + 10, y + 19 + LINE * (i + 1), told_line, "soft") for i, told_line in enumerate(told)]
        owners.append((indent, y + height))
        y += height + 9
    return parts, int(y + MARGIN - 9)


def sequence(lines: list[str]) -> tuple[list[str], int]:
    """Draw one column per actor, and an arrow or a note per line."""
    actors = [name.strip() for name in lines[0].removeprefix("actors:").split(",")]
    step = (WIDTH - 2 * MARGIN) / len(actors)
    column = {name: MARGIN + step * (index + 0.5) for index, name in enumerate(actors)}
    y = MARGIN + 48.0
    steps: list[str] = []
    for entry in lines[1:]:
        if found := re.fullmatch(r"note ([^:]+): (.*)", entry):
            over = [column[name.strip()] for name in found[1].split(",")]
            left, right = min(over) - step / 2 + 6, max(over) + step / 2 - 6
            told = wrapped(found[2], right - left - 4)
            steps.append(rect(left, y - 4, right - left, LINE * len(told) + 10, "group"))
            steps += [text((left + right) / 2, y + 13 + LINE * i, t, "soft", "middle") for i, t in enumerate(told)]
            y += LINE * len(told) + 18
            continue
        (source, target, words) = re.fullmatch(r"(.+?) -> (.+?): (.*)", entry).groups()  # type: ignore[union-attr]
        start, end = column[source], column[target]
        told = wrapped(words, abs(end - start) - 8)
        steps += [text((start + end) / 2, y + 11 + LINE * i, t, "", "middle") for i, t in enumerate(told)]
        y += LINE * len(told)
        steps.append(line(start, y, end, y, head=True))
        y += 12
    parts = [line(x, MARGIN + 30, x, y, dashed=True) for x in column.values()]
    for name, x in column.items():
        parts += [rect(x - step / 2 + 5, MARGIN, step - 10, 30), text(x, MARGIN + 20, name, "strong", "middle")]
    return [*parts, *steps], int(y + MARGIN)


def layers(lines: list[str]) -> tuple[list[str], int]:
    """Draw lines of boxes from top to bottom, with arrows between them and groups around some."""
    parts: list[str] = []
    groups: list[tuple[int, float]] = []  # where a group's rectangle belongs, and its top
    y = float(MARGIN)
    for entry in (line.strip() for line in lines):
        if entry.startswith("{"):
            groups.append((len(parts), y))
            parts.append(text(MARGIN + 10, y + 19, entry[1:].strip(), "strong"))
            y += 30
        elif entry == "}":
            index, top = groups.pop()
            parts.insert(index, rect(MARGIN, top, WIDTH - 2 * MARGIN, y - top + 10, "group"))
            y += 10
        elif entry.startswith("|"):
            parts.append(line(WIDTH / 4, y + 3, WIDTH / 4, y + 31, head=True))
            parts.append(text(WIDTH / 4 + 10, y + 21, entry[1:].strip(), "soft"))
            y += 34
        else:
            inset = MARGIN + 12 * bool(groups)
            boxes = re.findall(r"\[(.*?)\]", entry)
            parts += row(boxes, inset, y)
            y += row_height(boxes, inset)
    return parts, int(y + MARGIN)


def row(boxes: list[str], inset: float, y: float) -> Iterator[str]:
    width, height = box_width(boxes, inset), row_height(boxes, inset)
    for index, box in enumerate(boxes):
        name, _, words = box.partition(": ")
        x = inset + index * (width + 10)
        told = wrapped(words, width - 16) if words else []
        middle = y + (height - LINE * (1 + len(told))) / 2 + 13
        yield rect(x, y, width, height)
        yield text(x + width / 2, middle, name, "strong", "middle")
        for index_of_line, told_line in enumerate(told, 1):
            yield text(x + width / 2, middle + LINE * index_of_line, told_line, "soft", "middle")


def box_width(boxes: list[str], inset: float) -> float:
    return (WIDTH - 2 * inset - 10 * (len(boxes) - 1)) / len(boxes)


def row_height(boxes: list[str], inset: float) -> int:
    width = box_width(boxes, inset)
    most = max(len(wrapped(words, width - 16)) if (words := box.partition(": ")[2]) else 0 for box in boxes)
    return LINE * (1 + most) + 14


def drawings(folder: Path) -> dict[Path, str]:
    """Return the files to write, with their contents."""
    return {source.with_suffix(".svg"): draw(source.read_text()) for source in sorted(folder.glob("*.txt"))}
