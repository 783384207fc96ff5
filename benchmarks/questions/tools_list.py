"""How much CPU time does a list of a hundred tools need?"""

from __future__ import annotations

import messages
from contenders import OVER_HTTP, Contender, Effort, Row, Servers

from questions.tools_call import stateful_cost

LIST = messages.frame("tools/list", {}, 1)


def measure(servers: Servers, contender: Contender, effort: Effort) -> float:
    return stateful_cost(servers.get(contender, "--form", "json", "--tools", "100"), LIST, effort, b"search_0099")


ROWS = (
    Row(
        key="list-100",
        title="tools/list, 100 tools",
        unit="µs",
        contenders=OVER_HTTP,
        measure=measure,
    ),
)
