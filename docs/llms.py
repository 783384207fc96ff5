"""Files for language models next to the built site: `llms.txt` is an index, `llms-full.txt` has every page.

The pages come in the order of the menu, as Markdown; each one is also there by itself, such as `site/howto/errors.md`.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TITLES = {"tutorial": "Tutorial", "howto": "How-to guides", "reference": "Reference", "design": "Design"}
_COMMENT = re.compile(r"^<!-- .*? -->\n", re.MULTILINE)
_WRAPPER = re.compile(r"\A---\n.*?\n---\n|^</?div.*\n|\{ \..*? \}", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def write(site: Path) -> None:
    texts = {name: clean((ROOT / "docs" / name).read_text()) for name in menu()}
    (site / "llms.txt").write_text(index(texts))
    (site / "llms-full.txt").write_text("\n".join(f"<!-- {name} -->\n\n{text}" for name, text in texts.items()))
    for name, text in texts.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)


def menu() -> list[str]:
    """Return the pages that the menu of the site lists, in its order."""
    return re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2])


def clean(markdown: str) -> str:
    """Remove the comments around included parts, and the wrappers that only the site needs."""
    return _WRAPPER.sub("", _COMMENT.sub("", markdown)).strip() + "\n"


def index(texts: dict[str, str]) -> str:
    """List the pages by section, each with its first sentence."""
    description = first_sentence(texts["index.md"])
    lines = ["# mcptrio", "", f"> {description}", "", "All pages in one file: [llms-full.txt](llms-full.txt)"]
    section = None
    for name, text in texts.items():
        if (found := TITLES.get(name.partition("/")[0], "About")) != section:
            section = found
            lines += ["", f"## {section}", ""]
        title = text.partition("\n")[0].lstrip("# ")
        lines.append(f"- [{title}]({name}): {first_sentence(text)}")
    return "\n".join(lines) + "\n"


def first_sentence(text: str) -> str:
    """Return the first line of prose; pages have one sentence per line."""
    lines = _FENCE.sub("", text).splitlines()
    return next(line for line in lines if re.match(r"[\w`*]", line))
