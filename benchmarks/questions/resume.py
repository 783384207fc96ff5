"""How much CPU time does it take to resume a stream of a thousand events, from memory and from SQLite?"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import messages
from contenders import ENGINES, Contender, Effort, Row, Servers
from load import Broken, Connection, open_session

EVENTS = 1000
BURST = 400  # the rate limit lets a call send this many events at once; the stream is resumed several times


def measure(servers: Servers, contender: Contender, effort: Effort, store: str) -> float:
    """Return the CPU milliseconds of the server per 1,000 resumed events."""
    with tempfile.TemporaryDirectory() as folder:
        where = "memory" if store == "memory" else f"sqlite:///{Path(folder) / 'events.db'}"
        child = servers.start(contender, "--form", "sse", "--store", where)
        try:
            connection, session = open_session(child.port)
            _, body = connection.ask(messages.post(child.port, messages.call("count", {"to": BURST}, token=1), session))
            first = body.partition(b"id: ")[2].partition(b"\n")[0].strip().decode()
            seen, times = body.count(b"\ndata: {"), 0
            before = child.cpu
            while times * seen < EVENTS:
                again = Connection(child.port)
                _, body = again.ask(messages.get(child.port, session, first))
                again.close()
                if body.count(b"\ndata: {") != seen:
                    raise Broken(f"{body.count(b'data: {')} of {seen} events were sent again: {body[:200]!r}")
                times += 1
            return (child.cpu - before) / (times * seen) * EVENTS * 1e3
        finally:
            child.end()


ROWS = tuple(
    Row(
        key=f"resume-{store}",
        title=f"resumed stream, per 1,000 events, {title}",
        unit="ms",
        contenders=ENGINES,
        measure=partial(measure, store=store),
        rounds=3,
    )
    for store, title in (("memory", "memory"), ("sqlite", "SQLite"))
)
