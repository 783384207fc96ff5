"""What does a tool call over HTTP cost, at sixteen connections?"""

from __future__ import annotations

import talk
from lab import Child, Contender, Effort, Lab, Row
from load import Connection, hammer

ALL = ("express", "mcptrio", "official-high", "official-low", "fastmcp", "typescript")
CONNECTIONS = 16
ADD = talk.call("add", {"a": 1, "b": 2})
PLAIN = talk.call("add_plain", {"a": 1, "b": 2})


def cost(child: Child, connections: list[Connection], requests: list[bytes], effort: Effort, expect: bytes) -> float:
    """CPU microseconds of the server for one request."""
    hammer(connections, requests, effort.seconds / 10, expect)
    before = child.cpu
    count, _ = hammer(connections, requests, effort.seconds, expect)
    return (child.cpu - before) / count * 1e6


def stateful(child: Child, body: bytes, effort: Effort, expect: bytes = b'"3"') -> float:
    opened = child.connect(CONNECTIONS)
    requests = [talk.post(child.port, body, session) for _, session in opened]
    return cost(child, [connection for connection, _ in opened], requests, effort, expect)


def alone(child: Child, body: bytes, effort: Effort, expect: bytes = b'"3"') -> float:
    connections = [Connection(child.port) for _ in range(CONNECTIONS)]
    try:
        return cost(child, connections, [talk.post_alone(child.port, body)] * CONNECTIONS, effort, expect)
    finally:
        for connection in connections:
            connection.close()


def json_stateful(lab: Lab, contender: Contender, effort: Effort) -> float:
    if contender.key == "static":
        return alone(lab.server(contender), ADD, effort)
    return stateful(lab.server(contender, "--form", "json"), ADD, effort)


def json_stateless(lab: Lab, contender: Contender, effort: Effort) -> float:
    return alone(lab.server(contender, "--form", "json"), ADD, effort)


def sse_stateful(lab: Lab, contender: Contender, effort: Effort) -> float:
    return stateful(lab.server(contender, "--form", "sse"), ADD, effort, b"3")


def plain_function(lab: Lab, contender: Contender, effort: Effort) -> float:
    return stateful(lab.server(contender, "--form", "json"), PLAIN, effort)


ROWS = (
    Row(
        key="call-json",
        title="tools/call, JSON, 16 connections, stateful",
        unit="µs",
        contenders=(*ALL, "static"),
        measure=json_stateful,
    ),
    Row(
        key="call-json-stateless",
        title="tools/call, JSON, 16 connections, stateless",
        unit="µs",
        contenders=ALL,
        measure=json_stateless,
    ),
    Row(
        key="call-sse",
        title="tools/call, SSE, 16 connections, stateful",
        unit="µs",
        contenders=ALL,
        measure=sse_stateful,
    ),
    Row(
        key="call-def",
        title="tools/call of a plain def, JSON, 16 connections, stateful",
        unit="µs",
        contenders=("express", "mcptrio", "official-high", "fastmcp"),
        measure=plain_function,
    ),
)
