"""How much memory does an idle session need, and do many idle sessions make calls cost more?"""

from __future__ import annotations

from functools import partial

import messages
from contenders import ENGINES, OVER_HTTP, Child, Contender, Effort, Row, Servers
from load import Connection, open_session

from questions.tools_call import ADD, stateful_cost

IDLE = 500
MANY = 10_000


def opened(child: Child, count: int) -> list[str]:
    sessions = []
    for _ in range(count):
        connection, session = open_session(child.port)
        connection.close()
        sessions.append(session)
    return sessions


def memory(servers: Servers, contender: Contender, effort: Effort, streams: bool) -> float:
    """Return the KiB that the server's memory grows by for each further session."""
    child = servers.start(contender, "--form", "json")
    listening: list[Connection] = []

    def listen(session: str) -> None:
        connection = Connection(child.port)
        connection.head(messages.get(child.port, session))
        listening.append(connection)

    try:
        for session in opened(child, 20):  # the first sessions also load modules and fill caches
            if streams:
                listen(session)
        before = child.memory
        count = effort.scaled(IDLE)
        for session in opened(child, count):
            if streams:
                listen(session)
        return max(child.memory - before, 0.01) / count
    finally:
        for connection in listening:
            connection.close()
        child.end()


def growth(servers: Servers, contender: Contender, effort: Effort) -> float:
    """Return the cost of a call while many sessions are idle divided by that with only the calling sessions."""
    child = servers.start(contender, "--form", "json")
    try:
        few = min(stateful_cost(child, ADD, effort) for _ in range(3))
        opened(child, effort.scaled(MANY))
        return min(stateful_cost(child, ADD, effort) for _ in range(3)) / few
    finally:
        child.end()


ROWS = (
    Row(
        key="idle-session",
        title="idle session",
        unit="KiB",
        contenders=OVER_HTTP,
        measure=partial(memory, streams=False),
        rounds=1,
    ),
    Row(
        key="idle-stream",
        title="idle session with an open GET stream",
        unit="KiB",
        contenders=OVER_HTTP,
        measure=partial(memory, streams=True),
        rounds=1,
    ),
    Row(
        key="growth-sessions",
        title="cost of a call at 10,000 sessions over that at 16",
        unit="×",
        contenders=ENGINES,
        measure=growth,
        rounds=3,
    ),
)
