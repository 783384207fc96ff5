"""Runs a case of the catalogue, whatever its kind, and looks at the server afterwards."""

from __future__ import annotations

from . import issuers, requests, session_actions, slow_actions, sockets, tokens  # noqa: F401  the steps register themselves
from .actions import ACTIONS, Scene
from .catalogue import Case, load
from .process import Servers
from .speaker import DATES
from .verdicts import judge

ROWS = load()
CASES = [case for row in ROWS for case in row.cases]


def run_request(case: Case, servers: Servers) -> None:
    """A case of HTTP: one request, or the steps of an action."""
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


def run_socket(case: Case, servers: Servers) -> None:
    with servers.use("usual") as server:
        sockets.run(case, server)
        server.check_unharmed()
