"""What does a list of a hundred tools cost?"""

from __future__ import annotations

import talk
from lab import Contender, Effort, Lab, Row

from questions.tools_call import ALL, stateful

LIST = talk.frame("tools/list", {}, 1)


def measure(lab: Lab, contender: Contender, effort: Effort) -> float:
    return stateful(lab.server(contender, "--form", "json", "--tools", "100"), LIST, effort, b"search_0099")


ROWS = (
    Row(
        key="list-100",
        title="tools/list, 100 tools, 16 connections",
        unit="µs",
        contenders=ALL,
        measure=measure,
    ),
)
