"""Type checkers accept the files of this folder, in which every line that must be an error is marked as one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ["tests/typing/server.py", "tests/typing/client.py", "tests/typing/links.py"]
SNIPPETS = "docs/snippets"
"""The code of the pages. Its files import each other by their bare names, as those of a user do."""
WRONG = """\
from mcptrio import Server

server = Server("wrong")
server.run("htp", prot=3)
"""


def check(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": SNIPPETS},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def pyright() -> tuple[str, ...]:
    """The command of pyright, which the package of that name fetches when it is first used."""
    tried = check("pyright", "--version")
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"pyright cannot be installed here: {reason}")
    return ("pyright", "--pythonpath", sys.executable)


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A file with two mistakes. Without it, an `Any` in the place of the package would pass but for unused marks."""
    (tmp_path / "wrong.py").write_text(WRONG)
    return tmp_path / "wrong.py"


# One run of each checker sees the files that are right and the one that is wrong: most of its time goes to the package.


@pytest.mark.defect("U19")
@pytest.mark.slow
def test_mypy_accepts_what_is_right_and_nothing_else(wrong: Path) -> None:
    done = check("mypy", "--strict", "--no-pretty", *FILES, SNIPPETS, str(wrong))
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line for line in found if "wrong.py:4: error: " not in line] == []
    assert any("[arg-type]" in line for line in found), done.stdout
    assert any('Unexpected keyword argument "prot" for "run" of "Server"' in line for line in found), done.stdout


@pytest.mark.slow
def test_pyright_accepts_what_is_right_and_nothing_else(pyright: tuple[str, ...], wrong: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pyright"]
    assert settings["include"] == FILES
    config = wrong.with_name("pyrightconfig.json")
    config.write_text(
        json.dumps(
            {**settings, "include": [*(os.path.relpath(ROOT / file, wrong.parent) for file in FILES), wrong.name]}
        )
    )
    report = json.loads(check(*pyright, "--project", str(config), "--outputjson").stdout)
    assert report["summary"]["filesAnalyzed"] == len(FILES) + 1
    found = {(Path(one["file"]).name, one["message"].splitlines()[0]) for one in report["generalDiagnostics"]}
    assert {name for name, _ in found} == {"wrong.py"}, found
    assert any('"htp"' in message or 'No parameter named "prot"' in message for _, message in found), found
