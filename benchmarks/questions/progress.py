"""How much CPU time does one progress event of a call need?"""

from __future__ import annotations

import messages
from contenders import OVER_HTTP, Contender, Effort, Row, Servers

from questions.tools_call import stateful_cost

EVENTS = 100


def measure(servers: Servers, contender: Contender, effort: Effort) -> float:
    child = servers.get(contender, "--form", "sse")
    body = messages.call("count", {"to": EVENTS}, token=1)
    return stateful_cost(child, body, effort, b"done") / EVENTS


ROWS = (
    Row(
        key="progress",
        title="progress event, 100 in a call",
        unit="µs",
        contenders=OVER_HTTP,
        measure=measure,
    ),
)
