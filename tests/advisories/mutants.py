"""Takes each guard away, in a copy of the package, and looks whether its named test notices.

    python -m tests.advisories.mutants            # all of them
    python -m tests.advisories.mutants V05 O04    # some classes, some rows of bad credentials
    python -m tests.advisories.mutants --sample 20 --seed 6a6c400    # twenty of them, chosen by a text

A mutant is a text that is replaced in one file. It is killed when its test fails; a test that passes without the guard
proves nothing. A text that is no longer in the file is an error: the guard has moved, and its row must follow.
The rows are in `rows_*.py`, one file per subject.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pytest

from .mutant import Mutant

ROOT = Path(__file__).parents[2]
TIMEOUT = 180.0
MUTANTS: list[Mutant] = [
    mutant
    for file in sorted(Path(__file__).parent.glob("rows_*.py"))
    for mutant in importlib.import_module(f"tests.advisories.{file.stem}").MUTANTS
]
LIBRARIES = "attrs cattrs cryptography.x509 h11 httpx2 hypercorn.trio hypothesis joserfc pydantic trio.testing wsproto"
QUICK = ("V05", "V13", "V30", "V34", "V62")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="classes, as in V05; all without any")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--sample", type=int, metavar="N", help="only N of them, chosen by --seed")
    parser.add_argument("--seed", default="", help="a text, such as the hash of a commit; equal texts choose alike")
    args = parser.parse_args()
    wanted = set(args.rows) or (set(QUICK) if args.quick else set())
    chosen = [mutant for mutant in MUTANTS if not wanted or mutant.row in wanted]
    if args.sample is not None:
        chosen = random.Random(args.seed).sample(chosen, min(args.sample, len(chosen)))
    survivors = 0
    for library in LIBRARIES.split():
        importlib.import_module(library)
    with tempfile.TemporaryDirectory() as folder:
        copy = make_copy(Path(folder))
        print(f"{'class':6} {'guard':50} {'seconds':>8}  outcome", flush=True)
        for mutant in chosen:
            began = time.monotonic()
            outcome = try_without(mutant, copy)
            survivors += not outcome.startswith("killed")
            print(f"{mutant.row:6} {mutant.guard:50} {time.monotonic() - began:8.1f}  {outcome}", flush=True)
    classes = len({mutant.row for mutant in chosen})
    print(f"{len(chosen)} guards of {classes} classes taken away, {len(chosen) - survivors} noticed")
    return 1 if survivors else 0


def make_copy(folder: Path) -> Path:
    """Copy the package and its tests, and compile the copy: runs without a guard write no bytecode."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("mcptrio", "tests", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    compileall.compile_dir(folder, quiet=2)
    return folder


def try_without(mutant: Mutant, copy: Path) -> str:
    """Run the named test without the guard: `killed` if it fails."""
    spoilt: dict[Path, tuple[str, os.stat_result]] = {}
    try:
        for file, old, new in ((mutant.file, mutant.old, mutant.new), *mutant.also):
            path = copy / "mcptrio" / file
            text = path.read_text()
            if old not in text:
                return f"ERROR: the guard is no longer in {file}"
            spoilt.setdefault(path, (text, path.stat()))
            path.write_text(text.replace(old, new))
        code, output = run_test(copy, mutant)
    except TimeoutError:
        return "killed, it did not end"
    finally:
        for path, (text, before) in spoilt.items():
            path.write_text(text)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # so that its bytecode is valid
    if code == 1:
        return "killed"
    return "SURVIVED" if code == 0 else f"ERROR: pytest ended with {code}\n{output[-2000:]}"


def run_test(copy: Path, mutant: Mutant) -> tuple[int, str]:
    """Run the test of a mutant in a fork of this process, which has imported everything but the package.

    Importing pytest, Trio and the other libraries takes longer than most of these tests.

    Raises:
        TimeoutError: the test did not end within `TIMEOUT`.
    """
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.setpgid(0, 0)  # a test may start processes, which end with it
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                code = run_pytest(copy, mutant)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        try:
            code = wait_for(child)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        output.seek(0)
        return code, output.read()


def run_pytest(copy: Path, mutant: Mutant) -> int:
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    os.environ["PYTHONPATH"] = str(copy)  # also for processes that do not import from the working directory
    for name in tuple(sys.modules):
        if name.partition(".")[0] in ("mcptrio", "tests", "examples"):
            del sys.modules[name]
    sys.dont_write_bytecode = True
    options = (
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    )
    return int(pytest.main([*options, mutant.where, "-k", mutant.test]))


def wait_for(child: int) -> int:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError


if __name__ == "__main__":
    sys.exit(main())
