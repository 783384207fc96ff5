"""How much CPU time does a call need that asks the user a question?"""

from __future__ import annotations

import json
import time

import messages
from contenders import OVER_HTTP, Contender, Effort, Row, Servers
from load import Connection


def measure(servers: Servers, contender: Contender, effort: Effort) -> float:
    """Return the CPU microseconds of the server for a call with one elicitation: two POSTs and one stream."""
    child = servers.get(contender, "--form", "sse")
    connection, session = child.connect(1)[0]
    other = Connection(child.port)
    body = messages.call("ask", {}, id=1)

    def once() -> None:
        connection.head(messages.post(child.port, body, session))
        data = connection.until(b"elicitation/create")
        while b"}}}}\n" not in connection.buffer.replace(b"\r", b"") and b"\n\r\n" not in connection.buffer:
            connection.more()
        said = (data + connection.buffer).rpartition(b"data: ")[2].partition(b"\n")[0].strip()
        answer = {"action": "accept", "content": {"size": 3}}
        reply = {"jsonrpc": "2.0", "id": json.loads(said)["id"], "result": answer}
        other.ask(messages.post(child.port, json.dumps(reply).encode(), session))
        while not connection.buffer.endswith(b"0\r\n\r\n"):
            connection.more()
        connection.buffer = b""

    try:
        once()
        before, count = child.cpu, 0
        end = time.perf_counter() + effort.seconds
        while time.perf_counter() < end:
            once()
            count += 1
        return (child.cpu - before) / count * 1e6
    finally:
        other.close()


ROWS = (
    Row(key="elicitation", title="call with one elicitation, SSE", unit="µs", contenders=OVER_HTTP, measure=measure),
)
