"""What does an idle session hold, with and without an open stream, and what do many of them cost the others?"""

from __future__ import annotations

from functools import partial

import talk
from lab import Child, Contender, Effort, Lab, Row
from load import Connection, open_session

from questions.tools_call import ADD, ALL, stateful

IDLE = 500
MANY = 10_000


def opened(child: Child, count: int) -> list[str]:
    sessions = []
    for _ in range(count):
        connection, session = open_session(child.port)
        connection.close()
        sessions.append(session)
    return sessions


def memory(lab: Lab, contender: Contender, effort: Effort, streams: bool) -> float:
    """KiB of the server for each further session."""
    child = lab.start(contender, "--form", "json")
    listening: list[Connection] = []

    def listen(session: str) -> None:
        connection = Connection(child.port)
        connection.head(talk.get(child.port, session))
        listening.append(connection)

    try:
        for session in opened(child, 20):  # what the first ones bring along is no session's
            if streams:
                listen(session)
        before = child.memory
        count = effort.some(IDLE)
        for session in opened(child, count):
            if streams:
                listen(session)
        return max(child.memory - before, 0.01) / count
    finally:
        for connection in listening:
            connection.close()
        child.end()


def growth(lab: Lab, contender: Contender, effort: Effort) -> float:
    """The cost of a call with many sessions open, by the cost with only those that call."""
    child = lab.start(contender, "--form", "json")
    try:
        few = min(stateful(child, ADD, effort) for _ in range(3))
        opened(child, effort.some(MANY))
        return min(stateful(child, ADD, effort) for _ in range(3)) / few
    finally:
        child.end()


ROWS = (
    Row(
        key="idle-session",
        title="idle session",
        unit="KiB",
        contenders=ALL,
        measure=partial(memory, streams=False),
        rounds=1,
    ),
    Row(
        key="idle-stream",
        title="idle session with an open GET stream",
        unit="KiB",
        contenders=ALL,
        measure=partial(memory, streams=True),
        rounds=1,
    ),
    Row(
        key="growth-sessions",
        title="cost of a call at 10,000 sessions, by that at 16",
        unit="×",
        contenders=("express", "mcptrio"),
        measure=growth,
        rounds=3,
    ),
)
