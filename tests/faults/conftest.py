"""One fixture for every fault: a running server ("watched") with a bystander; invariants are checked at the end.

I1  each request ends in one outcome: an answer, or the end of its connection; never two.
I2  no other session sees a byte of it, or waits more than twice as long as 99 of 100 times without it: in turns of the
    event loop, which a busy machine does not change, and where time is virtual in seconds.
I3  tasks, sessions, calls, places and threads return to what they were.
I4  the log tells of each cause once, with its session and its request, and of nothing else.
I5  the events of a stream come in order, without a gap and without a repeat.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import define, field, frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import Server
from mcptrio._actors.runtime import Runtime
from mcptrio.telemetry import LimitHit, current_call
from mcptrio.telemetry.log import LogListener
from mcptrio.telemetry.metrics import Metrics
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from tests.e2e.canary import Canary, StatefulCanary, StatelessCanary, Tally
from tests.e2e.wires import Answer, InnerWire

from .watching import WatchedWire

Json = dict[str, Any]
CANARIES: dict[str, type[Canary]] = {"stateful": StatefulCanary, "stateless": StatelessCanary}
BASELINE = 100
"""How often the bystander asks before anything happens."""


@frozen
class LogLine:
    """A record of the log, and the call in whose context it was written."""

    text: str
    session: str
    request: int | str | None


@frozen
class Cause:
    """A fault that the log must report exactly once."""

    text: str
    session: str
    request: int | str | None

    def is_reported_by(self, logged: LogLine) -> bool:
        """The session and the request stand in the text, or are known from the call that was under way."""
        if self.text not in logged.text:
            return False
        session = self.session == logged.session or self.session[:8] in logged.text
        request = self.request in (None, logged.request) or re.search(rf"(id |request=){self.request!r}\b", logged.text)
        return session and bool(request)


class Hearing(logging.Handler):
    """The log records of level WARNING and above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.logged: list[LogLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        session, request = current_call.get() or ("", None)
        self.logged.append(LogLine(record.getMessage(), session, request))


@define(eq=False)
class WatchedServer:
    """A running server, its events, and the log records that are expected."""

    server: Server
    runtime: Runtime
    endpoint: Endpoint
    events: list[Any]
    metrics: Metrics
    tally: Tally = field(factory=Tally)
    guests: list[Canary] = field(factory=list)
    wires: list[WatchedWire] = field(factory=list)
    causes: list[Cause] = field(factory=list)

    def blame(self, text: str, guest: Canary | None = None, request: int | str | None = None) -> None:
        """Expect the log to report this, once (I4). Without a guest it has no owner; a stateless one has no session."""
        self.causes.append(Cause(text, guest.session if isinstance(guest, StatefulCanary) else "", request))

    def blame_limits(self) -> None:
        """Expect the log to report each limit that was reached, once in a while and not each time."""
        names = {event.name for event in self.events if isinstance(event, LimitHit)}
        for name in sorted(names - {"call_timeout", "call_timeout_hard"}):  # these are logged with their call
            self.blame(f"name={name}")

    async def guest(self, kind: str) -> Canary:
        """A client; every one uses the same ids."""
        wire = WatchedWire(InnerWire(self.endpoint))
        self.wires.append(wire)
        guest = CANARIES[kind](wire, self.tally, random.Random(len(self.guests)))
        if isinstance(guest, StatefulCanary):
            await guest.open()
        self.guests.append(guest)
        return guest

    def count(self, name: str) -> int:
        """How many events carry this name, kind, cause or outcome."""
        wanted = ("name", "kind", "cause", "outcome")
        return sum(any(getattr(event, key, None) == name for key in wanted) for event in self.events)

    def counted(self, sample: str) -> int:
        """A counter as the page of metrics shows it, e.g. `mcptrio_dropped_total{kind="log_rate"}`."""
        lines = (line.rpartition(" ") for line in self.metrics.text().splitlines())
        return next((int(value) for name, _, value in lines if name == sample), 0)

    def waiters(self, guest: Canary) -> int:
        """Questions of a guest's session that are not answered yet."""
        assert isinstance(guest, StatefulCanary)
        session = self.runtime.supervisor.find(guest.session)
        return 0 if session is None else len(list(session.peer.ledger.asks()))

    async def call(self, guest: Canary, tool: str, arguments: Json | None = None, **params: Any) -> Json:
        """The one answer to a call (I1)."""
        return await guest.call(tool, arguments=arguments or {}, **params)

    async def begin(self, guest: Canary, tool: str, arguments: Json | None = None, request_id: int = 1) -> Answer:
        token = guest.token(request_id)
        return await guest.begin_call(tool, request_id, arguments=arguments or {}, **token)

    @property
    def tasks(self) -> list[trio.lowlevel.Task]:
        supervisor = self.runtime.supervisor
        return [*supervisor.nursery.child_tasks, *supervisor.calls.child_tasks]

    @property
    def figures(self) -> dict[str, int]:
        supervisor = self.runtime.supervisor
        return {
            "tasks": sum(task.name != "timers" for task in self.tasks),
            "sessions": len(supervisor.sessions),
            "exchanges": len(supervisor.exchanges),
            "parked": len(self.runtime.parking),
            "calls": self.endpoint.calls,
            "places": self.endpoint.admission.places.waiting,
            "bodies": self.endpoint.admission.body_memory.used,
        }

    async def leave(self) -> None:
        for guest in self.guests:
            if isinstance(guest, StatefulCanary) and self.runtime.supervisor.find(guest.session) is not None:
                await guest.close()
        for wire in self.wires:
            await wire.watch.settle()
        await trio.sleep(0.1)  # timers that are not needed any more run out
        await wait_all_tasks_blocked()


class Stopwatch(trio.abc.Instrument):
    """Measures how long a bystander waits: in seconds, if the clock is virtual, and in turns of the event loop."""

    def __init__(self) -> None:
        self.turns = 0
        self.virtual = isinstance(trio.lowlevel.current_clock(), MockClock)

    def after_io_wait(self, timeout: float) -> None:
        self.turns += 1

    async def time(self, bystander: Canary) -> tuple[float, int]:
        """Return the seconds and the turns that one call of the bystander takes."""
        began, turns = trio.current_time(), self.turns
        await bystander.echo()
        return trio.current_time() - began if self.virtual else 0.0, self.turns - turns


Waits = list[tuple[float, int]]


async def stand_by(bystander: Canary, stopwatch: Stopwatch, waits: Waits) -> None:
    """Ask for something every now and then; the canary looks at every byte (I2)."""
    while True:
        # The end of a test may come at any time. A call that it cancelled would have no outcome (I1).
        with trio.fail_after(30, shield=True):
            waits.append(await stopwatch.time(bystander))
        await trio.sleep(0.7)


def check_waits(usual: Waits, waits: Waits) -> None:
    assert len(waits) >= 2
    for unit, before, after in zip(("s", "turns"), zip(*usual, strict=True), zip(*waits, strict=True), strict=True):
        limit = 2 * sorted(before)[len(before) * 99 // 100 - 1]
        assert max(after) <= limit, f"I2: another client had to wait: {max(after)} {unit}, not {limit}"


async def overhear(bystander: StatefulCanary, *, task_status: trio.TaskStatus[None]) -> None:
    """Read the bystander's own stream: no data may arrive on it (I2)."""
    answer = await bystander.wire.send("GET", bystander.headers("", None), b"")
    assert answer.status == 200
    task_status.started()
    while (piece := await answer.next()) is not None:
        assert b"data:" not in piece.replace(b"data: \n", b"").replace(b"data:\n", b""), f"I2: {piece!r}"


Open = Callable[..., AbstractAsyncContextManager[WatchedServer]]


@pytest.fixture
def open_watched() -> Open:
    logger = logging.getLogger("mcptrio")

    @asynccontextmanager
    async def open_it(
        server: Server, config: HttpConfig | None = None, store: Any = None
    ) -> AsyncIterator[WatchedServer]:
        events: list[Any] = []
        server.on_event(events.append)
        server.on_event(LogListener(clock=lambda: 0.0))
        metrics = Metrics()
        server.on_event(metrics)
        hearing = Hearing()
        logger.addHandler(hearing)
        try:
            async with server._app.make_runtime(store).open() as runtime:
                watched = WatchedServer(server, runtime, Endpoint(runtime, config or HttpConfig()), events, metrics)
                before = watched.figures
                bystander = await watched.guest("stateful")
                assert isinstance(bystander, StatefulCanary)
                stopwatch = Stopwatch()
                trio.lowlevel.add_instrument(stopwatch)
                usual = [await stopwatch.time(bystander) for _ in range(BASELINE)]
                waits: Waits = []
                async with trio.open_nursery() as nursery:
                    await nursery.start(overhear, bystander)
                    nursery.start_soon(stand_by, bystander, stopwatch, waits)
                    await wait_all_tasks_blocked()
                    yield watched
                    await trio.sleep(1)  # the bystander asks once more
                    nursery.cancel_scope.cancel()
                await watched.leave()
                check_waits(usual, waits)
                left = [task.name for task in watched.tasks]
                assert watched.figures == before, f"I3: something was left behind: {left}"
        finally:
            logger.removeHandler(hearing)
        check_log(hearing.logged, watched.causes)

    return open_it


def check_log(logged: list[LogLine], causes: list[Cause]) -> None:
    """Check that each cause is logged once, and nothing else is (I4)."""
    left = list(logged)
    for cause in causes:
        found = next((one for one in left if cause.is_reported_by(one)), None)
        assert found is not None, f"I4: the log does not tell of {cause.text!r} of request {cause.request!r}: {logged}"
        left.remove(found)
    assert left == [], f"I4: {left}"
