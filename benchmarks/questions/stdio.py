"""How much CPU time does a tool call over stdio need, one at a time and pipelined?"""

from __future__ import annotations

import time
from functools import partial

import messages
from contenders import BASE, OVER_STDIO, Contender, Effort, Row, Servers


def measure(servers: Servers, contender: Contender, effort: Effort, tool: str, size: int) -> float:
    """Return the CPU microseconds of the server for one call, when `size` calls are sent at once."""
    child, pipe = servers.pipe(contender)
    requests = [messages.call(tool, {"a": 1, "b": 2}, id=number) for number in range(1, size + 1)]
    pipe.ask(requests)
    count = 0
    before = child.cpu
    end = time.perf_counter() + effort.seconds
    while time.perf_counter() < end:
        pipe.ask(requests)
        count += size
    return (child.cpu - before) / count * 1e6


ROWS = tuple(
    Row(
        key=f"stdio-{size}{suffix}",
        title=f"tools/call, stdio, {how}{remark}",
        unit="µs",
        contenders=contenders,
        measure=partial(measure, tool=tool, size=size),
    )
    for tool, suffix, remark, contenders in (
        ("add", "", "", OVER_STDIO),
        ("add_without_waiting", "-never-waits", ", tool never waits", ("hypercorn", BASE, "typescript")),
    )
    for size, how in ((1, "one at a time"), (64, "64 pipelined"))
)
