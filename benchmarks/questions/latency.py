"""How long do the slowest calls take at half of the server's maximum load?"""

from __future__ import annotations

import messages
from contenders import OVER_HTTP, Contender, Effort, Row, Servers
from load import send_repeatedly

from questions.tools_call import ADD, CONNECTIONS


def measure(servers: Servers, contender: Contender, effort: Effort) -> float:
    """Return the 99th percentile of the latency in milliseconds of wall time, other work on the machine included."""
    child = servers.get(contender, "--form", "json")
    opened = child.connect(CONNECTIONS)
    connections = [connection for connection, _ in opened]
    requests = [messages.post(child.port, ADD, session) for _, session in opened]
    full, _ = send_repeatedly(connections, requests, effort.seconds, b'"3"')
    _, took = send_repeatedly(connections, requests, effort.seconds, b'"3"', rate=full / effort.seconds / 2)
    took.sort()
    return took[int(len(took) * 0.99)] * 1e3


ROWS = (Row(key="p99", title="p99 at half load, wall time", unit="ms", contenders=OVER_HTTP, measure=measure),)
