"""What does it cost to tell a thousand listeners that a resource has changed?"""

from __future__ import annotations

import json

import talk
from lab import Contender, Effort, Lab, Row
from load import Connection

LISTENERS = 1000


def measure(lab: Lab, contender: Contender, effort: Effort) -> float:
    """CPU microseconds of the server for each event that a listener got."""
    child = lab.start(contender, "--form", "json")
    listeners: list[Connection] = []
    try:
        params = {"notifications": {"resourceSubscriptions": ["bench://thing"]}}
        listen = talk.frame("subscriptions/listen", params, 1)
        request = talk.post(
            child.port,
            talk.declared(listen),
            MCP_Protocol_Version=talk.STATELESS,
            Mcp_Method=json.loads(listen)["method"],
        )
        for _ in range(effort.some(LISTENERS)):
            listener = Connection(child.port)
            listeners.append(listener)
            listener.head(request)
            listener.until(b"acknowledged")
        caller = Connection(child.port)
        touch = talk.post_alone(child.port, talk.call("touch", {}))
        before = child.cpu
        times = 3
        for _ in range(times):
            caller.ask(touch)
            for listener in listeners:
                listener.until(b"resources/updated")
        return (child.cpu - before) / (times * len(listeners)) * 1e6
    finally:
        for listener in listeners:
            listener.close()
        child.end()


ROWS = (
    Row(
        key="fan-out",
        title="a change told to 1,000 listeners, per listener",
        unit="µs",
        contenders=("express", "mcptrio", "official-high"),
        measure=measure,
        rounds=3,
    ),
)
