"""Every bad input of the catalogue, over a real connection, with the exact reply.

After each case the same process must be there, another session undisturbed, and nothing of the case left behind.
"""

from __future__ import annotations

import pytest

from . import hostile, requests, session_actions, slow_actions, sockets, tokens  # noqa: F401  the steps register themselves
from .actions import ACTIONS, Scene
from .catalogue import Case, load
from .judging import judge
from .pipes import PipedServers, run_alone
from .process import Servers
from .speaking import DATES

ROWS = load()
CASES = [case for row in ROWS for case in row.cases]
OF_HTTP = [case for case in CASES if case.kind in ("body", "request", "raw", "action")]


@pytest.mark.parametrize("case", OF_HTTP, ids=lambda case: case.id)
def test_a_bad_request_gets_the_reply_of_the_catalogue(case: Case, servers: Servers) -> None:
    with servers.use(case.data.get("server", "usual")) as server:
        speaker = server.speaker(DATES[-1] if case.date == "any" else case.date)
        try:
            if case.data.get("session", True):
                speaker.open_session()
            if case.kind == "action":
                judge(ACTIONS[case.data["action"]](Scene(case=case, server=server, speaker=speaker)), case.expect)
            else:
                requests.run(case, speaker)
        finally:
            speaker.end_session()
            speaker.close()
        server.check_unharmed(may_log=case.data.get("may_log", False))


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "ws"], ids=lambda case: case.id)
def test_a_bad_socket_ends_as_the_catalogue_says(case: Case, servers: Servers) -> None:
    with servers.use("usual") as server:
        sockets.run(case, server)
        server.check_unharmed()


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
