"""Programs that the tests need and Python does not bring: Node, npm packages, other virtual environments.

Each lives in a folder under `.cache/`, is made once per machine and kept. A folder is complete when its stamp says what
was asked for; a file lock lets several test processes ask at the same time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: one test process at a time, then
    fcntl = None  # type: ignore[assignment]

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
NODE_NEEDED = (22, 19)  # the suite loads on 22.0, the inspector on 22.19
TIMEOUT = 600.0  # for one installation


class Unavailable(Exception):
    """A program is missing and cannot be brought; the text says what to do about it."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A Node that is new enough, and the environment in which npm uses it too."""

    program: Path
    env: dict[str, str]


def node() -> Node:
    """The machine's own Node, or one brought through npm where that is too old.

    Raises:
        Unavailable: there is neither a new enough Node nor an npm to bring one with.
    """
    wanted = ".".join(map(str, NODE_NEEDED))
    if not shutil.which("npm"):
        raise Unavailable(f"npm is missing: install Node.js {wanted} or newer, which brings it")
    own = shutil.which("node")
    if own and node_version(own) >= NODE_NEEDED:
        return Node(program=Path(own), env=dict(os.environ))
    folder = made("node", "node@22", lambda place: npm(place, "node@22", dict(os.environ)))
    program = folder / "node_modules" / "node" / "bin" / "node"
    if node_version(str(program)) < NODE_NEEDED:
        raise Unavailable(f"npm brought a Node that does not run here: install Node.js {wanted} or newer")
    path = os.pathsep.join((str(program.parent), os.environ.get("PATH", "")))
    return Node(program=program, env={**os.environ, "PATH": path})


def node_version(program: str) -> tuple[int, ...]:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60)
        return tuple(int(part) for part in done.stdout.strip().removeprefix("v").split("."))
    except (OSError, ValueError, subprocess.SubprocessError):
        return (0,)


def npm_package(name: str, spec: str) -> Path:
    """The `node_modules` folder in which a package is installed, alone with its dependencies."""
    env = node().env
    return made(name, spec, lambda place: npm(place, spec, env)) / "node_modules"


def python_package(name: str, spec: str) -> Path:
    """The interpreter of a virtual environment that holds a package and its dependencies."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"

    def build(place: Path) -> None:
        attempt(sys.executable, "-m", "venv", str(place))
        attempt(str(interpreter(place)), "-m", "pip", "install", "-q", "--disable-pip-version-check", spec)

    return interpreter(made(f"{name}-py{version}", spec, build))


def interpreter(folder: Path) -> Path:
    return folder / "Scripts" / "python.exe" if os.name == "nt" else folder / "bin" / "python"


def npm(folder: Path, spec: str, env: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # --prefix alone is not enough: without a package.json of its own npm would look for one in the folders above
    (folder / "package.json").write_text('{"private": true}\n')
    quiet = ("--no-audit", "--no-fund", "--no-package-lock", "--loglevel", "error")
    attempt("npm", "install", "--prefix", str(folder), *quiet, spec, env=env)


def attempt(*command: str, env: dict[str, str] | None = None) -> None:
    """Runs one step of an installation; its last words become the reason when it fails."""
    program = shutil.which(command[0]) or command[0]
    try:
        done = subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=TIMEOUT, env=env)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command)}: not done after {TIMEOUT:.0f} s") from None
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise Unavailable(f"{' '.join(command)}: exit code {done.returncode}\n{last}")


def made(name: str, spec: str, build: Callable[[Path], None]) -> Path:
    """The folder `.cache/<name>`, built unless its stamp says that it already holds `spec`."""
    folder = CACHE / name
    stamp = folder / "installed.txt"
    if reads(stamp) == spec:
        return folder
    with locked(CACHE / f"{hashlib.sha256(name.encode()).hexdigest()[:12]}.lock"):
        if reads(stamp) != spec:  # else somebody built it while we waited
            print(f"» bringing {spec} into {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            build(folder)
            stamp.write_text(spec)
    return folder


def reads(file: Path) -> str | None:
    return file.read_text() if file.exists() else None


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """One process at a time; the lock goes with its holder, also when that is killed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as handle:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
