"""Fuzzes one codec: `python -m tests.fuzz.one jsonrpc --seconds 20`; with files instead of `--seconds`, those only.

With atheris, new inputs are found by what they reach in the code and are kept in `.fuzz/`. Where atheris cannot be
installed, hypothesis makes inputs from the seeds, blindly but by the same harness. An input that fails is written to
`.fuzz/` too; give its name to run it again.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

try:
    import atheris
except ImportError:
    atheris = None

FOLDER = Path(__file__).parent
FOUND = FOLDER.parents[1] / ".fuzz"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("files", nargs="*", type=Path)
    args = parser.parse_args()
    if atheris is not None and not args.files:
        with atheris.instrument_imports(include=["mcptrio"]):
            from tests.fuzz.harnesses import HARNESSES
    else:
        from tests.fuzz.harnesses import HARNESSES
    harness = HARNESSES[args.name]
    if args.files:
        for file in args.files:
            harness(file.read_bytes())
        print(f"{args.name}: {len(args.files)} files pass")
    elif atheris is not None:
        guided(args.name, harness, args.seconds)
    else:
        blind(args.name, harness, args.seconds)


def guided(name, harness, seconds):  # type: ignore[no-untyped-def]
    found = FOUND / name
    found.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        "-max_len=1024",
        "-timeout=10",
        "-rss_limit_mb=1024",
        "-print_final_stats=1",
        f"-artifact_prefix={FOUND}/failed-{name}-",
    ]
    atheris.Setup([sys.argv[0], *options, str(found), str(FOLDER / "corpus" / name)], harness)
    atheris.Fuzz()


def blind(name, harness, seconds):  # type: ignore[no-untyped-def]
    from hypothesis import HealthCheck, Phase, given, settings

    from tests.fuzz.inputs import inputs

    runs = 0

    @settings(
        max_examples=2000,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=inputs(name))
    def some(data: bytes) -> None:
        nonlocal runs
        runs += 1
        try:
            harness(data)
        except BaseException:
            FOUND.mkdir(exist_ok=True)
            (FOUND / f"failed-{name}").write_bytes(data)  # the last one written is the smallest
            raise

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        some()
    print(f"stat::number_of_executed_units: {runs}")


if __name__ == "__main__":
    main()
