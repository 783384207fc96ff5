"""How much CPU time does a server need until its first response, and how much memory does it hold then?"""

from __future__ import annotations

import messages
from contenders import OVER_STDIO, Contender, Effort, Row, Servers
from load import Pipe


def cold_start(servers: Servers, contender: Contender, effort: Effort) -> float:
    """Return the CPU milliseconds from the start of the process to its response to the first call."""
    child = servers.start(contender, stdio=True)
    try:
        pipe = Pipe(child.process)
        pipe.open()
        pipe.ask([messages.call("add", {"a": 1, "b": 2})])
        return child.cpu * 1e3
    finally:
        child.end()


def memory(servers: Servers, contender: Contender, effort: Effort) -> float:
    child, pipe = servers.pipe(contender)
    pipe.ask([messages.call("add", {"a": 1, "b": 2})])
    return child.resident / 1024


ROWS = (
    Row(
        key="cold-start",
        title="cold start to the first response, stdio",
        unit="ms",
        contenders=OVER_STDIO,
        measure=cold_start,
    ),
    Row(key="memory", title="memory after start, stdio", unit="MiB", contenders=OVER_STDIO, measure=memory, rounds=1),
)
