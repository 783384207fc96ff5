"""How long do the slowest calls take when the server has half of what it can do to do?"""

from __future__ import annotations

import talk
from lab import Contender, Effort, Lab, Row
from load import hammer

from questions.tools_call import ADD, ALL, CONNECTIONS


def measure(lab: Lab, contender: Contender, effort: Effort) -> float:
    """Milliseconds that one call in a hundred takes longer than. By the clock on the wall: other work shows in it."""
    child = lab.server(contender, "--form", "json")
    opened = child.connect(CONNECTIONS)
    connections = [connection for connection, _ in opened]
    requests = [talk.post(child.port, ADD, session) for _, session in opened]
    full, _ = hammer(connections, requests, effort.seconds, b'"3"')
    _, took = hammer(connections, requests, effort.seconds, b'"3"', rate=full / effort.seconds / 2)
    took.sort()
    return took[int(len(took) * 0.99)] * 1e3


ROWS = (Row(key="p99", title="p99 at half load, wall time", unit="ms", contenders=ALL, measure=measure),)
