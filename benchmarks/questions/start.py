"""How soon does a server answer after it was started, and what does it hold then?"""

from __future__ import annotations

import talk
from lab import Contender, Effort, Lab, Row
from load import Pipe

from questions.stdio import ALL


def cold_start(lab: Lab, contender: Contender, effort: Effort) -> float:
    """CPU milliseconds from the start of the process to its answer to the first call."""
    child = lab.start(contender, stdio=True)
    try:
        pipe = Pipe(child.process)
        pipe.open()
        pipe.ask([talk.call("add", {"a": 1, "b": 2})])
        return child.cpu * 1e3
    finally:
        child.end()


def memory(lab: Lab, contender: Contender, effort: Effort) -> float:
    child, pipe = lab.pipe(contender)
    pipe.ask([talk.call("add", {"a": 1, "b": 2})])
    return child.resident / 1024


ROWS = (
    Row(
        key="cold-start",
        title="cold start to the first answer, stdio",
        unit="ms",
        contenders=ALL,
        measure=cold_start,
    ),
    Row(key="memory", title="memory after start, stdio", unit="MiB", contenders=ALL, measure=memory, rounds=1),
)
