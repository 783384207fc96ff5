"""Type checkers accept the files of this folder, in which every line that must be an error is marked as one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ["tests/typing/server.py", "tests/typing/client.py"]
WRONG = """\
from mcptrio import Server

server = Server("wrong")
server.run("htp", prot=3)
"""


def check(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def pyright() -> tuple[str, ...]:
    """The command of pyright, which the package of that name fetches when it is first used."""
    tried = check("pyright", "--version")
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"pyright cannot be installed here: {reason}")
    return ("pyright", "--pythonpath", sys.executable)


@pytest.mark.defect("U19")
@pytest.mark.slow
def test_mypy_accepts_what_is_right_and_nothing_else() -> None:
    done = check("mypy", "--strict", *FILES)
    assert done.returncode == 0, done.stdout


@pytest.mark.defect("U19")
@pytest.mark.slow
def test_mypy_refuses_a_misspelt_transport_and_setting(tmp_path: Path) -> None:
    """Without this, an `Any` in the place of the package would pass the test above but for its unused marks."""
    (tmp_path / "wrong.py").write_text(WRONG)
    done = check("mypy", "--strict", str(tmp_path / "wrong.py"))
    assert "[arg-type]" in done.stdout
    assert 'Unexpected keyword argument "prot" for "run" of "Server"' in done.stdout


@pytest.mark.slow
def test_pyright_accepts_what_is_right_and_nothing_else(pyright: tuple[str, ...]) -> None:
    done = check(*pyright)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_pyright_refuses_a_misspelt_transport_and_setting(pyright: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    done = check(*pyright, str(tmp_path / "wrong.py"))
    assert '"htp"' in done.stdout or 'No parameter named "prot"' in done.stdout, done.stdout
