"""The archives that a release consists of: what they contain, what they declare, and that they work when installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.tiers import exhaustive

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = f"mcptrio-{PROJECT['version']}"
REPOSITORY = PROJECT["urls"]["Source"]
FOR_CONTRIBUTORS = {"dev", "docs", "browser"}

SERVER = '''
from mcptrio import Server

server = Server("installed")

@server.tool
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number
'''


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the sdist, built as a release builds them."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return {"wheel": folder / f"{NAME}-py3-none-any.whl", "sdist": folder / f"{NAME}.tar.gz"}


@pytest.fixture(scope="module")
def wheel_files(archives: dict[str, Path]) -> set[str]:
    with zipfile.ZipFile(archives["wheel"]) as wheel:
        return set(wheel.namelist())


@pytest.fixture(scope="module")
def sdist_files(archives: dict[str, Path]) -> set[str]:
    with tarfile.open(archives["sdist"]) as sdist:
        return {name.removeprefix(f"{NAME}/") for name in sdist.getnames()}


def test_the_wheel_holds_the_package_and_nothing_else(wheel_files: set[str]) -> None:
    package = {str(file.relative_to(ROOT)) for file in (ROOT / "mcptrio").rglob("*.py")}
    assert package <= wheel_files
    assert "mcptrio/py.typed" in wheel_files
    assert f"{NAME}.dist-info/licenses/LICENSE" in wheel_files
    assert {name.partition("/")[0] for name in wheel_files} == {"mcptrio", f"{NAME}.dist-info"}


def test_the_sdist_holds_every_file_that_its_pages_mention(sdist_files: set[str]) -> None:
    wanted = {"Makefile", "dev.py", "mkdocs.yml", ".ci/run", ".github/workflows/ci.yml", "LICENSE"}
    for page in ROOT.glob("*.md"):
        wanted.add(page.name)
        wanted |= {path for path in own_links(page) if (ROOT / path).is_file()}
    assert sorted(wanted - sdist_files) == []
    assert [name for name in sdist_files if "__pycache__" in name or name.startswith((".venv", "site/"))] == []


def own_links(page: Path) -> set[str]:
    """The files of this repository that a page links to with absolute URLs."""
    found = re.findall(rf"{re.escape(REPOSITORY)}/(?:blob|tree|raw)/main/([^)#\s]+)", page.read_text())
    return {path.rstrip("/") for path in found}


def test_the_links_of_the_readme_work_on_a_package_index() -> None:
    """An index shows the README without the repository around it."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith("https://")] == []
    assert [path for path in own_links(ROOT / "README.md") if not (ROOT / path).exists()] == []


def test_every_url_of_the_metadata_that_names_a_file_names_one_that_exists() -> None:
    files = [url.partition("/main/")[2] for url in PROJECT["urls"].values() if "/main/" in url]
    assert files
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_every_extra_for_users_adds_something_that_the_package_imports() -> None:
    """An extra without a feature would be a promise that nothing keeps."""
    source = "".join(file.read_text() for file in (ROOT / "mcptrio").rglob("*.py"))
    modules = {"pyyaml": "yaml", "opentelemetry-api": "opentelemetry"}
    extras = {name: lines for name, lines in PROJECT["optional-dependencies"].items() if name not in FOR_CONTRIBUTORS}
    (every,) = extras.pop("all")
    assert every == f"mcptrio[{','.join(sorted(extras))}]"
    for lines in extras.values():
        for line in lines:
            name = re.split(r"[^\w-]", line)[0]
            module = modules.get(name, name)
            # pydantic is never imported, only recognized when the user's program has imported it
            used = re.search(rf"^\s*(import|from) {module}\b|\"{module}\" in sys.modules", source, re.MULTILINE)
            assert used, line


def test_the_hosted_workflow_runs_commands_that_exist_and_contributing_tells_of_all() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    documented = set(re.findall(r"`make ([\w-]+)", (ROOT / "CONTRIBUTING.md").read_text())) - {"help"}
    helped = subprocess.run(
        [sys.executable, "dev.py", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    commands = set(re.findall(r"^    ([\w-]+)", helped.stdout, re.MULTILINE))
    named = set(re.findall(r"(?:make|dev\.py) ([\w-]+)", workflow))
    assert len(named) > 8
    assert sorted(named - commands) == []
    assert documented == commands
    assert [file for file in re.findall(r"tests/[\w/.]+", workflow) if not (ROOT / file).exists()] == []


@exhaustive
def test_the_wheel_works_in_an_empty_environment(archives: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    pip_install(folder, str(archives["wheel"]))
    check_installed(folder, tmp_path)
    missing = run(folder, "inspect", "server.py", cwd=tmp_path)
    assert missing.returncode != 0
    assert "mcptrio[cli]" in missing.stderr, "a missing extra is named"


@exhaustive
def test_the_sdist_builds_the_same_wheel_and_runs_the_demo(
    archives: dict[str, Path], wheel_files: set[str], tmp_path: Path
) -> None:
    """The demo installs the unpacked sdist into an environment that it makes."""
    with tarfile.open(archives["sdist"]) as sdist:
        sdist.extractall(tmp_path, filter="data")
    unpacked = tmp_path / NAME
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=unpacked, check=True, capture_output=True, timeout=120)
    with zipfile.ZipFile(tmp_path / archives["wheel"].name) as wheel:
        assert set(wheel.namelist()) == wheel_files
    command = [sys.executable, "dev.py", "demo", "--once", "--port", "8790"]
    done = subprocess.run(command, cwd=unpacked, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert '"city":"Lisbon"' in done.stdout.replace(" ", "")
    assert "mcptrio inspect http://" in done.stdout
    assert "drained" in done.stderr
    check_installed(unpacked / ".venv", tmp_path)


def check_installed(folder: Path, scratch: Path) -> None:
    assert "usage: mcptrio" in output(folder, "--help", cwd=scratch).lower()
    (scratch / "server.py").write_text(SERVER)
    assert stdio_call(folder, scratch / "server.py") == "42"


def pip_install(folder: Path, archive: str) -> None:
    """Install into an environment that has no pip: with uv, or with the pip of the base interpreter."""
    python, base = str(program(folder, "python")), getattr(sys, "_base_executable", sys.executable)
    if uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--quiet", "--python", python, archive]
    else:
        command = [base, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", archive]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def program(folder: Path, name: str) -> Path:
    return folder / "Scripts" / f"{name}.exe" if os.name == "nt" else folder / "bin" / name


def run(folder: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(program(folder, "mcptrio")), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def output(folder: Path, *arguments: str, cwd: Path) -> str:
    done = run(folder, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stdio_call(folder: Path, file: Path) -> str:
    """Initialize a session over stdio, call `double(21)`, and return the text of its result."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "double", "arguments": {"number": 21}}},
    ]
    done = subprocess.run(
        [str(program(folder, "mcptrio")), "run", str(file)],
        input="".join(json.dumps(frame) + "\n" for frame in frames),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    replies = {reply.get("id"): reply for reply in map(json.loads, done.stdout.splitlines())}
    assert 2 in replies, done.stderr
    text: str = replies[2]["result"]["content"][0]["text"]
    return text
