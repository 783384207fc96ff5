"""Every bad input of the catalogue, over a real connection, with the exact reply.

After each case the same process must be there, another session undisturbed, and nothing of the case left behind.
Every case of HTTP runs on both engines at every revision that it names. `make test` tries the first case of each row,
at its newest revision, on the first engine; the others are exhaustive.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines import ENGINES
from tests.tiers import exhaustive

from . import hostile, sign_in
from .catalogue import Case
from .pipes import PipedServers, run_alone
from .process import Servers
from .runner import CASES, ROWS, run_request, run_socket

FIRST: dict[tuple[str, str], Case] = {}
"""The cases that stand for their row in `make test`: one for each kind of case that it has."""
for each in CASES:
    if FIRST.setdefault((each.row, each.kind), each).name == each.name:
        FIRST[each.row, each.kind] = each  # dates come in order, so the newest stays


def cases(*kinds: str) -> list[Any]:
    """Return the cases of some kinds; all but the first of a row are exhaustive."""
    return [
        pytest.param(case, id=case.id, marks=() if case is FIRST[case.row, case.kind] else exhaustive)
        for case in CASES
        if case.kind in kinds
    ]


def on_both_engines(*kinds: str) -> Any:
    chosen = [
        pytest.param(*param.values, engine, id=f"{param.id}-{engine}", marks=param.marks or more)
        for param in cases(*kinds)
        for engine, more in zip(ENGINES, ((), exhaustive), strict=True)
    ]
    return pytest.mark.parametrize(("case", "engine"), chosen, indirect=["engine"])


@on_both_engines("body", "request", "raw", "action")
def test_a_bad_request_gets_the_reply_of_the_catalogue(case: Case, servers: Servers) -> None:
    run_request(case, servers)


@on_both_engines("ws")
def test_a_bad_socket_ends_as_the_catalogue_says(case: Case, servers: Servers) -> None:
    run_socket(case, servers)


@pytest.mark.parametrize("case", cases("line"))
def test_a_bad_line_gets_the_reply_of_the_catalogue(case: Case, piped_servers: PipedServers) -> None:
    piped_servers.run(case)


@pytest.mark.parametrize("case", cases("pipe"))
def test_a_server_on_a_pipe_ends_as_the_catalogue_says(case: Case) -> None:
    run_alone(case)


@pytest.mark.parametrize("case", cases("client"))
async def test_a_hostile_server_does_no_more_than_the_catalogue_says(case: Case) -> None:
    await (hostile.run_child(case) if "child" in case.data["client"] else hostile.run(case))


@pytest.mark.parametrize("case", cases("sign_in"))
async def test_a_hostile_authorization_server_does_no_more_than_the_catalogue_says(case: Case) -> None:
    await sign_in.run(case)


def test_every_row_stands_once_and_has_two_cases_where_it_can() -> None:
    ids = [row.id for row in ROWS]
    assert len(set(ids)) == len(ids)
    assert [row.id for row in ROWS if len(row.cases) < 2] == []
