"""What does one progress event of a call cost?"""

from __future__ import annotations

import talk
from lab import Contender, Effort, Lab, Row

from questions.tools_call import ALL, stateful

EVENTS = 100


def measure(lab: Lab, contender: Contender, effort: Effort) -> float:
    child = lab.server(contender, "--form", "sse")
    body = talk.call("count", {"to": EVENTS}, token=1)
    return stateful(child, body, effort, b"done") / EVENTS


ROWS = (
    Row(
        key="progress",
        title="progress events, 100 in a call, 16 connections",
        unit="µs",
        contenders=ALL,
        measure=measure,
    ),
)
