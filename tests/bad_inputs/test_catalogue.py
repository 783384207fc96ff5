"""Every bad input of the catalogue, over a real connection, with the exact reply.

After each case the same process must be there, another session undisturbed, and nothing of the case left behind.
Every case of HTTP runs on both engines: at each revision on the first, at the newest that it names on the second, since
the engines carry no revision differently from another. `make fault-test` runs all of them on both.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.engines import ENGINES

from . import hostile, signing_in
from .catalogue import Case
from .pipes import PipedServers, run_alone
from .process import Servers
from .running import CASES, ROWS, run_request, run_socket

FULL = "MCPTRIO_FAULTS" in os.environ
NEWEST = {(case.kind, case.row, case.name): case.date for case in sorted(CASES, key=lambda case: case.date)}


def on_both_engines(*kinds: str) -> Any:
    chosen = [
        (case, engine)
        for case in CASES
        for engine in ENGINES
        if case.kind in kinds and (FULL or engine == ENGINES[0] or case.date == NEWEST[case.kind, case.row, case.name])
    ]
    ids = [f"{case.id}-{engine}" for case, engine in chosen]
    return pytest.mark.parametrize(("case", "engine"), chosen, ids=ids, indirect=["engine"])


@on_both_engines("body", "request", "raw", "action")
def test_a_bad_request_gets_the_reply_of_the_catalogue(case: Case, servers: Servers) -> None:
    run_request(case, servers)


@on_both_engines("ws")
def test_a_bad_socket_ends_as_the_catalogue_says(case: Case, servers: Servers) -> None:
    run_socket(case, servers)


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "line"], ids=lambda case: case.id)
def test_a_bad_line_gets_the_reply_of_the_catalogue(case: Case, piped_servers: PipedServers) -> None:
    piped_servers.run(case)


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "pipe"], ids=lambda case: case.id)
def test_a_server_on_a_pipe_ends_as_the_catalogue_says(case: Case) -> None:
    run_alone(case)


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "client"], ids=lambda case: case.id)
async def test_a_hostile_server_does_no_more_than_the_catalogue_says(case: Case) -> None:
    await (hostile.run_child(case) if "child" in case.data["client"] else hostile.run(case))


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "sign_in"], ids=lambda case: case.id)
async def test_a_hostile_authorization_server_does_no_more_than_the_catalogue_says(case: Case) -> None:
    await signing_in.run(case)


def test_every_row_stands_once_and_has_two_cases_where_it_can() -> None:
    ids = [row.id for row in ROWS]
    assert len(set(ids)) == len(ids)
    assert [row.id for row in ROWS if len(row.cases) < 2] == []
