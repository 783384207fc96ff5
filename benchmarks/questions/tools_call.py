"""How much CPU time does a tool call over HTTP need, at sixteen connections?"""

from __future__ import annotations

from functools import partial

import messages
from contenders import BASE, ENGINES, OVER_HTTP, Child, Contender, Effort, Row, Servers
from load import Connection, send_repeatedly

CONNECTIONS = 16
NEVER_WAITS = (*ENGINES, BASE, "typescript")  # not all contenders, to keep a full run under twelve minutes
ADD = messages.call("add", {"a": 1, "b": 2})
"""The standard call: its tool waits for one turn of the event loop."""
ADD_WITHOUT_WAITING = messages.call("add_without_waiting", {"a": 1, "b": 2})
ADD_PLAIN = messages.call("add_plain", {"a": 1, "b": 2})


def cost(child: Child, connections: list[Connection], requests: list[bytes], effort: Effort, expect: bytes) -> float:
    """Return the CPU microseconds of the server for one request."""
    send_repeatedly(connections, requests, effort.seconds / 10, expect)
    before = child.cpu
    count, _ = send_repeatedly(connections, requests, effort.seconds, expect)
    return (child.cpu - before) / count * 1e6


def stateful_cost(child: Child, body: bytes, effort: Effort, expect: bytes = b'"3"') -> float:
    opened = child.connect(CONNECTIONS)
    requests = [messages.post(child.port, body, session) for _, session in opened]
    return cost(child, [connection for connection, _ in opened], requests, effort, expect)


def stateless_cost(child: Child, body: bytes, effort: Effort, expect: bytes = b'"3"') -> float:
    connections = [Connection(child.port) for _ in range(CONNECTIONS)]
    try:
        return cost(child, connections, [messages.post_stateless(child.port, body)] * CONNECTIONS, effort, expect)
    finally:
        for connection in connections:
            connection.close()


def json_stateful(servers: Servers, contender: Contender, effort: Effort, body: bytes) -> float:
    if contender.key == "static":
        return stateless_cost(servers.get(contender), body, effort)
    return stateful_cost(servers.get(contender, "--form", "json"), body, effort)


def json_stateless(servers: Servers, contender: Contender, effort: Effort, body: bytes) -> float:
    return stateless_cost(servers.get(contender, "--form", "json"), body, effort)


def sse_stateful(servers: Servers, contender: Contender, effort: Effort) -> float:
    return stateful_cost(servers.get(contender, "--form", "sse"), ADD, effort, b"3")


ROWS = (
    Row(
        key="call-json",
        title="tools/call, JSON, stateful",
        unit="µs",
        contenders=(*OVER_HTTP, "static"),
        measure=partial(json_stateful, body=ADD),
    ),
    Row(
        key="call-json-stateless",
        title="tools/call, JSON, stateless",
        unit="µs",
        contenders=OVER_HTTP,
        measure=partial(json_stateless, body=ADD),
    ),
    Row(
        key="call-sse",
        title="tools/call, SSE, stateful",
        unit="µs",
        contenders=OVER_HTTP,
        measure=sse_stateful,
    ),
    Row(
        key="call-json-never-waits",
        title="tools/call, JSON, stateful, tool never waits",
        unit="µs",
        contenders=NEVER_WAITS,
        measure=partial(json_stateful, body=ADD_WITHOUT_WAITING),
    ),
    Row(
        key="call-json-stateless-never-waits",
        title="tools/call, JSON, stateless, tool never waits",
        unit="µs",
        contenders=NEVER_WAITS,
        measure=partial(json_stateless, body=ADD_WITHOUT_WAITING),
    ),
    Row(
        key="call-def",
        title="tools/call, JSON, stateful, tool is a plain def",
        unit="µs",
        contenders=(*ENGINES, BASE, "fastmcp"),
        measure=partial(json_stateful, body=ADD_PLAIN),
    ),
)
