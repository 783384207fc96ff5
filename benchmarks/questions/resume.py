"""What does it cost to send a client what it missed: a stream of a thousand events, from memory and from SQLite?"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import talk
from lab import Contender, Effort, Lab, Row
from load import Broken, Connection, open_session

EVENTS = 1000
BURST = 400  # so many progress events a call may send at once; several calls make the stream


def measure(lab: Lab, contender: Contender, effort: Effort, store: str) -> float:
    """CPU milliseconds of the server for a resumed stream of 1,000 events."""
    with tempfile.TemporaryDirectory() as folder:
        where = "memory" if store == "memory" else f"sqlite:///{Path(folder) / 'events.db'}"
        child = lab.start(contender, "--form", "sse", "--store", where)
        try:
            connection, session = open_session(child.port)
            _, body = connection.ask(talk.post(child.port, talk.call("count", {"to": BURST}, token=1), session))
            first = body.partition(b"id: ")[2].partition(b"\n")[0].strip().decode()
            seen, times = body.count(b"\ndata: {"), 0
            before = child.cpu
            while times * seen < EVENTS:
                again = Connection(child.port)
                _, body = again.ask(talk.get(child.port, session, first))
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
        title=f"resume of a stream, per 1,000 events, {title}",
        unit="ms",
        contenders=("express", "mcptrio"),
        measure=partial(measure, store=store),
        rounds=3,
    )
    for store, title in (("memory", "memory"), ("sqlite", "SQLite"))
)
