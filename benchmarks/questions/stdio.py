"""What does a tool call over stdio cost, one at a time and in bursts?"""

from __future__ import annotations

import time

import talk
from lab import Contender, Effort, Lab, Row

ALL = ("mcptrio", "official-high", "official-low", "fastmcp", "typescript")


def bursts(lab: Lab, contender: Contender, effort: Effort, size: int) -> float:
    child, pipe = lab.pipe(contender)
    requests = [talk.call("add", {"a": 1, "b": 2}, id=number) for number in range(1, size + 1)]
    pipe.ask(requests)
    count = 0
    before = child.cpu
    end = time.perf_counter() + effort.seconds
    while time.perf_counter() < end:
        pipe.ask(requests)
        count += size
    return (child.cpu - before) / count * 1e6


ROWS = (
    Row(
        key="stdio-1",
        title="stdio, one at a time",
        unit="µs",
        contenders=ALL,
        measure=lambda lab, contender, effort: bursts(lab, contender, effort, 1),
    ),
    Row(
        key="stdio-64",
        title="stdio, 64 pipelined",
        unit="µs",
        contenders=ALL,
        measure=lambda lab, contender, effort: bursts(lab, contender, effort, 64),
    ),
)
