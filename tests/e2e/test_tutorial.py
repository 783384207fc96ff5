"""The tutorial as a reader follows it: pieces of code are saved, commands are typed, and what is shown appears."""

from __future__ import annotations

import os
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from tests.forked import run_command

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial"
_FENCE = re.compile(r"^```(?P<language>python|sh|text)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT = re.compile(r"^\w+> (.*\n)", re.MULTILINE)
_SESSION = re.compile(r"(?<=<session )\S+")  # an id of its own each time


@pytest.mark.parametrize(
    ("page", "file", "commands"),
    [
        ("first", "server.py", 3),
        ("typed", "typed.py", 2),
        ("asking", "asking.py", 3),
        ("resources", "library.py", 3),
        ("state", "state.py", 1),
        ("deploy", "server.py", 0),
    ],
)
def test_a_page_can_be_followed_to_the_letter(page: str, file: str, commands: int, tmp_path: Path) -> None:
    text = (TUTORIAL / f"{page}.md").read_text()
    parts = [(found["language"], found["body"]) for found in _FENCE.finditer(text)]
    (tmp_path / file).write_text("\n\n".join(body for language, body in parts if language == "python"))
    assert typed(f"mcptrio inspect {file}", tmp_path), "the pieces of the page are a whole program"
    count = 0
    said = ""
    for (language, body), (_, shown) in pairwise([*parts, ("", "")]):
        if language == "sh":
            lines = [line for line in body.splitlines() if re.match(r"mcptrio (call|read|prompt|inspect|shell) ", line)]
            # What follows the prompts of a shell is typed there.
            entered = "".join(_PROMPT.findall(shown)) if "mcptrio shell" in body else ""
            answers = [typed(line, tmp_path, entered) for line in lines]
            count += len(lines)
            said = "".join(answers)
        elif language == "text":
            assert _SESSION.sub("", _PROMPT.sub("", body)) in _SESSION.sub("", said)
    assert count == commands


def typed(line: str, folder: Path, entered: str = "") -> str:
    """Return the output of a command that has no terminal to ask questions at."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}
    done = run_command(shlex.split(line)[1:], stdin=entered.encode(), merged=True, cwd=folder, env=environment)
    assert done.returncode in (0, 1), done.stdout  # 1: the tool says that it cannot do it, as some pages show
    assert "Traceback" not in done.stdout
    return done.stdout
