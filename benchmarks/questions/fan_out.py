"""How much CPU time does it take to notify a thousand listeners of a changed resource?"""

from __future__ import annotations

import json

import messages
from contenders import BASE, ENGINES, Contender, Effort, Row, Servers
from load import Connection

LISTENERS = 1000


def measure(servers: Servers, contender: Contender, effort: Effort) -> float:
    """Return the CPU microseconds of the server for each notification that a listener received."""
    child = servers.start(contender, "--form", "json")
    listeners: list[Connection] = []
    try:
        params = {"notifications": {"resourceSubscriptions": ["bench://thing"]}}
        listen = messages.frame("subscriptions/listen", params, 1)
        request = messages.post(
            child.port,
            messages.stateless(listen),
            MCP_Protocol_Version=messages.STATELESS,
            Mcp_Method=json.loads(listen)["method"],
        )
        for _ in range(effort.scaled(LISTENERS)):
            listener = Connection(child.port)
            listeners.append(listener)
            listener.head(request)
            listener.until(b"acknowledged")
        caller = Connection(child.port)
        touch = messages.post_stateless(child.port, messages.call("touch", {}))
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
        title="change to 1,000 listeners, per listener",
        unit="µs",
        contenders=(*ENGINES, BASE),
        measure=measure,
        rounds=3,
    ),
)
