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
import importlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .mutant import Mutant

ROOT = Path(__file__).parents[2]
PATIENCE = 180.0
MUTANTS: list[Mutant] = [
    mutant
    for file in sorted(Path(__file__).parent.glob("rows_*.py"))
    for mutant in importlib.import_module(f"tests.advisories.{file.stem}").MUTANTS
]
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
    with tempfile.TemporaryDirectory() as folder:
        copy = make_copy(Path(folder))
        print(f"{'class':6} {'guard':50} {'seconds':>8}  outcome", flush=True)
        for mutant in chosen:
            began = time.monotonic()
            outcome = try_without(mutant, copy)
            survivors += outcome != "killed"
            print(f"{mutant.row:6} {mutant.guard:50} {time.monotonic() - began:8.1f}  {outcome}", flush=True)
    classes = len({mutant.row for mutant in chosen})
    print(f"{len(chosen)} guards of {classes} classes taken away, {len(chosen) - survivors} noticed")
    return 1 if survivors else 0


def make_copy(folder: Path) -> Path:
    """The package and its tests, to be spoilt."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("mcptrio", "tests", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def try_without(mutant: Mutant, copy: Path) -> str:
    """Run the named test without the guard: `killed` if it fails."""
    spoilt: dict[Path, str] = {}
    try:
        for file, old, new in ((mutant.file, mutant.old, mutant.new), *mutant.also):
            path = copy / "mcptrio" / file
            text = path.read_text()
            if old not in text:
                return f"ERROR: the guard is no longer in {file}"
            spoilt.setdefault(path, text)
            path.write_text(text.replace(old, new))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            mutant.where,
            "-k",
            mutant.test,
        ]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return "killed"  # without the guard it never ended
    finally:
        for path, text in spoilt.items():
            path.write_text(text)
    if done.returncode == 1:
        return "killed"
    return "SURVIVED" if done.returncode == 0 else f"ERROR: pytest ended with {done.returncode}\n{done.stdout[-2000:]}"


if __name__ == "__main__":
    sys.exit(main())
