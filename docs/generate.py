#!/usr/bin/env python3
"""Fills in the parts of the documentation that come from elsewhere: files that tests run, tables, diagrams.

    python docs/generate.py            writes the pages
    python docs/generate.py --check    says which ones are out of date, and changes nothing

A page marks such a part with two comments. What is between them is replaced.

    <!-- docs/snippets/first.py: server add -->     the definitions of these names, or without names the whole file;
                                                    `imports` are those that the file begins with, and
                                                    `__main__` is the `if` that it ends with
    <!-- table: settings HttpConfig -->             what a function of tables.py or public_names.py returns
    <!-- end -->

The diagrams are the files `docs/diagrams/*.svg`, see draw.py.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import dropwhile, takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).resolve().parent))

import draw  # noqa: E402  # in the same folder
import public_names  # noqa: E402
import tables  # noqa: E402

LANGUAGES = {".py": "python", ".yaml": "yaml", ".conf": "nginx", ".service": "ini", ".socket": "ini"}
_PART = re.compile(r"^<!-- (?P<what>[^\n]+?) -->\n(?P<body>.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every page of the documentation, and what stands at the top of the project."""
    found = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if "news" not in page.parts or page.name == "README.md"]


def fill(text: str) -> str:
    """Return a page with its marked parts replaced."""
    return _PART.sub(lambda part: f"<!-- {part['what']} -->\n{make(part['what'])}\n<!-- end -->", text)


def make(what: str) -> str:
    if what.startswith("table: "):
        name, *arguments = what.removeprefix("table: ").split()
        made: str = getattr(tables if hasattr(tables, name) else public_names, name)(*arguments)
        return made
    name, _, names = what.partition(":")
    file = ROOT / name
    return f"```{LANGUAGES.get(file.suffix, file.name.lower())}\n{excerpt(file, names.split())}\n```"


def excerpt(file: Path, names: list[str]) -> str:
    """The definitions of `names` in a file, in the order of the file; all of it if there are no names."""
    source = file.read_text()
    if not names:
        return source.strip()
    lines = source.splitlines()
    found: dict[str, tuple[int, int]] = {}
    body = ast.parse(source).body
    if head := list(takewhile(is_import, dropwhile(lambda node: not is_import(node), body))):
        found["imports"] = (head[0].lineno - 1, head[-1].end_lineno or head[-1].lineno)
    for node in body:
        for name in names_of(node):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            found[name] = (first - 1, node.end_lineno or node.lineno)
    if missing := set(names) - set(found):
        raise KeyError(f"{file} does not define {', '.join(sorted(missing))}")
    parts: list[str] = []
    end = 0
    for start, stop in sorted(found[name] for name in set(names)):
        between = lines[end:start] if parts else []
        # Neighbours keep the distance that they have; anything left out is two empty lines.
        parts.extend(between if not any(between) else ["", ""])
        parts.extend(lines[start:stop])
        end = stop
    return "\n".join(parts)


def is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def names_of(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign():
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Expr(value=ast.Call(func=ast.Attribute() as called)):
            yield ast.unparse(called)  # `server.add_extension`, if the file says so once
        case ast.ImportFrom(module=str(module)):
            yield module
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            yield "__main__"


def files() -> dict[Path, str]:
    """Return every file that is made here, with the contents that it should have."""
    diagrams = ROOT / "docs" / "diagrams"
    drawn = {**draw.drawings(diagrams), diagrams / "states.svg": draw.draw(tables.states())}
    return {**{page: fill(page.read_text()) for page in pages()}, **drawn}


def main() -> int:
    stale = {file: text for file, text in files().items() if not file.exists() or file.read_text() != text}
    for file, text in stale.items():
        print(f"{file.relative_to(ROOT)} {'is out of date' if '--check' in sys.argv else 'written'}")
        if "--check" not in sys.argv:
            file.write_text(text)
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
