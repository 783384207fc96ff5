"""Fuzzes the six codecs, two at a time: `make fuzz SECONDS=20`, or names of some of them."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = ("jsonrpc", "lines", "sse", "http_headers", "uri_template", "request_state")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--seconds", type=int, default=20, help="for each codec (default: 20)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: 2)")
    args = parser.parse_args()
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    print("guided by what inputs reach (atheris)" if find_spec("atheris") else "blind (hypothesis): no atheris here")
    with ThreadPoolExecutor(args.jobs) as pool:
        passed = list(pool.map(lambda name: fuzz(name, args.seconds), args.names))
    return 0 if all(passed) else 1


def fuzz(name: str, seconds: int) -> bool:
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.fuzz.one", name, "--seconds", str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    output = done.stdout + done.stderr
    executed = re.search(r"number_of_executed_units: *([0-9]+)", output)
    count = f"{int(executed[1]):,}" if executed else "?"
    verdict = "ok" if done.returncode == 0 else "FAILED"
    print(f"{name:14} {count:>12} inputs in {time.monotonic() - began:4.0f} s  {verdict}", flush=True)
    if done.returncode:
        print(output[-6000:], flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
