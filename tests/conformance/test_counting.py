"""The strict count: what makes a scenario of the conformance suite a pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.run import Run, Verdict, faults_of, figures, judge, results_in, scenarios_in

WIRE = {"id": "wire-schema-valid", "status": "SUCCESS"}
GOOD = {"id": "tools-list", "status": "SUCCESS"}

LISTING = """\
Required for 2025-11-25 (3 scenarios, frozen; run at the 2025-11-25 wire):

Server scenarios (test against a server):
  - ping
  - tools-list

Client scenarios (test against a client):
  - auth/basic

Run and reported, but never scored:
  pending (2):
    - server-sse-polling [server]
    - auth/dpop [client]
"""


def test_a_real_success_without_a_fault_is_a_pass() -> None:
    assert faults_of([GOOD, WIRE, {"id": "note", "status": "INFO"}]) == ()


@pytest.mark.parametrize(
    "checks",
    [
        [],
        [WIRE],
        [{"id": "a", "status": "SKIPPED"}, WIRE],
        [GOOD, {"id": "b", "status": "WARNING", "errorMessage": "no priming event"}],
        [GOOD, {"id": "c", "status": "FAILURE"}],
        [GOOD, {"id": "wire-schema-valid", "status": "FAILURE", "details": {"violations": ["x"]}}],
    ],
)
def test_skips_warnings_failures_and_the_wire_check_alone_are_no_pass(checks: list[dict[str, object]]) -> None:
    assert faults_of(checks) != ()


def test_a_fault_names_its_check_and_its_message() -> None:
    assert faults_of([{"id": "b", "status": "WARNING", "errorMessage": "no\n  event"}]) == ("WARNING b: no event",)


def test_the_listing_tells_scored_from_unscored_for_each_leg() -> None:
    assert scenarios_in(LISTING, "server") == {"ping": True, "tools-list": True, "server-sse-polling": False}
    assert scenarios_in(LISTING, "client") == {"auth/basic": True, "auth/dpop": False}


def test_a_scenario_that_was_never_run_counts_as_failed(tmp_path: Path) -> None:
    place = tmp_path / "server-tools-list-2026-11-16T07-24-41-344Z"
    place.mkdir()
    (place / "checks.json").write_text(json.dumps([GOOD, WIRE]))
    run = Run(title="2025-11-25 server", release="0", leg="server", choice=())
    verdicts = judge(run, scenarios_in(LISTING, "server"), results_in(tmp_path))
    assert [(verdict.scenario, verdict.faults) for verdict in verdicts] == [
        ("ping", ("was not run",)),
        ("tools-list", ()),
        ("server-sse-polling", ("was not run",)),
    ]
    assert figures(run.title, verdicts) == "2025-11-25 server: 1 of 2 scored, 0 of 1 unscored"


def test_results_of_the_client_leg_lie_in_nested_folders(tmp_path: Path) -> None:
    place = tmp_path / "auth" / "basic-2026-11-16T07-24-41-344Z"
    place.mkdir(parents=True)
    (place / "checks.json").write_text(json.dumps([GOOD]))
    assert list(results_in(tmp_path)) == ["auth/basic"]


def test_figures_of_a_run_without_unscored_scenarios_name_only_the_scored() -> None:
    assert figures("x", [Verdict(scenario="a", scored=True, faults=())]) == "x: 1 of 1 scored"
