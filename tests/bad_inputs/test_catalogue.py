"""Every bad input of the catalogue, over a real connection, with the exact reply.

After each case the same process must be there, another session undisturbed, and nothing of the case left behind.
"""

from __future__ import annotations

import pytest

from . import hostile
from .catalogue import Case
from .pipes import PipedServers, run_alone
from .process import Servers
from .running import CASES, ROWS, run_request, run_socket

OF_HTTP = [case for case in CASES if case.kind in ("body", "request", "raw", "action")]


@pytest.mark.parametrize("case", OF_HTTP, ids=lambda case: case.id)
def test_a_bad_request_gets_the_reply_of_the_catalogue(case: Case, servers: Servers) -> None:
    run_request(case, servers)


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "ws"], ids=lambda case: case.id)
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


def test_every_row_stands_once_and_has_two_cases_where_it_can() -> None:
    ids = [row.id for row in ROWS]
    assert len(set(ids)) == len(ids)
    assert [row.id for row in ROWS if len(row.cases) < 2] == []
