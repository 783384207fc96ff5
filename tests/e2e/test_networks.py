"""Networks that fail between a client and the served endpoint, on both engines. The sockets are real, the time is not.

Both ends are tasks of one loop, so whatever was sent is there to be read as soon as no task has anything else to do.
Only then does the clock jump.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from mcptrio import telemetry
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.direct.engine import DirectEngine
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
from mcptrio.transports.http_server.hypercorn.connection import HypercornEngine
from mcptrio.transports.http_server.listener.listener import Listener
from tests import engines
from tests.faults.serving import Trail, make_server

from .canary import Canary, StatefulCanary, StatelessCanary, Tally
from .fault_proxy import NONE, Fault, fault_proxy
from .wires import Broken, SocketWire

pytestmark = [engines.both_engines, pytest.mark.slow]
CANARIES: dict[str, type[Canary]] = {"stateful": StatefulCanary, "stateless": StatelessCanary}
every_kind = pytest.mark.parametrize("kind", CANARIES)


@pytest.fixture
def clock(mock_clock: MockClock) -> MockClock:
    mock_clock.autojump_threshold = 0.01
    return mock_clock


@define(eq=False)
class Scenario:
    """A running server, a client behind the failing network, and a bystander without faults."""

    guest: Any
    bystander: StatefulCanary
    network: dict[str, Fault]
    trail: Trail
    events: list[Any] = field(factory=list)

    @property
    def outcomes(self) -> set[str]:
        """The outcomes of calls."""
        return {event.outcome for event in self.events if isinstance(event, telemetry.CallEnded)}

    @property
    def stalled(self) -> int:
        """Count the connections that were cut because the client did not read."""
        return self.events.count(telemetry.LimitHit(name="write_timeout"))


@asynccontextmanager
async def open_scenario(kind: str) -> AsyncIterator[Scenario]:
    trail = Trail()
    server = make_server(trail, call_timeout=900, idle_timeout=1e6)
    events: list[Any] = []
    server.on_event(events.append)
    # Without the watchdog, whose pulse would be the only thing that happens most of the time.
    async with server._app.make_runtime().open() as runtime, trio.open_nursery() as nursery:
        endpoint = Endpoint(runtime, HttpConfig(heartbeat=15, port=0))
        engine = DirectEngine if engines.current() == "direct" else HypercornEngine
        served = endpoint if engine is DirectEngine else AsgiApp(endpoint)
        listener = Listener(engine(served, endpoint.config).serve, endpoint.config, runtime.hub)
        (bound,) = await nursery.start(listener.serve)
        network = {"fault": NONE}
        async with fault_proxy(bound.port, lambda _: network["fault"]) as proxy:
            guest = CANARIES[kind](SocketWire(proxy.port), Tally(), random.Random(1))
            bystander = StatefulCanary(SocketWire(bound.port), Tally(), random.Random(2))
            await bystander.open()
            if isinstance(guest, StatefulCanary):
                await guest.open()
            guest.wire.close()  # the next connection meets the fault
            try:
                yield Scenario(guest, bystander, network, trail, events)
                bystander.wire.close()  # it was idle for too long, perhaps
                began = trio.current_time()
                await bystander.echo()
                assert trio.current_time() - began < 0.1, "another client had to wait"
            finally:
                guest.wire.close()
                bystander.wire.close()
        nursery.cancel_scope.cancel()


def large(times: int, kib: int) -> dict[str, Any]:
    return {"times": times, "kib": kib, "pause": 0}


@every_kind
async def test_fault_network_swallows_everything(kind: str, clock: MockClock) -> None:
    """F03: the client stops reading without closing: the connection ends when a write has waited for its 30 s."""
    async with open_scenario(kind) as scenario:
        scenario.network["fault"] = Fault(cut_after=300_000, ending="black hole")
        guest = scenario.guest
        answer = await guest.begin_call("tell", 1, arguments=large(100, 120), **guest.token(1))
        frames: list[Any] = []
        cursor = await guest.read(answer, frames, only=1)
        began = trio.current_time()
        while scenario.stalled == 0:
            await trio.sleep(1)
            assert trio.current_time() - began < 15 + 30 + 2
        await trio.sleep(0.1)  # F01: how long a call may take to notice
        answer.cut()
        scenario.network["fault"] = NONE
        if kind == "stateful":  # the call goes on, and is taken up where it was
            again = await guest.wire.send("GET", {**guest.headers("", None), "last-event-id": cursor}, b"")
            await guest.read(again, frames)
            assert guest.outcome(frames, 1)["result"]
            received = [frame["params"]["progress"] for frame in frames if "method" in frame]
            assert received == sorted(set(received))
        else:
            assert "cancelled" in scenario.outcomes


@every_kind
async def test_fault_network_is_slow_but_alive(kind: str, clock: MockClock) -> None:
    """F37: a reader that makes progress is never cut, however long it takes, and misses nothing."""
    async with open_scenario(kind) as scenario:
        scenario.network["fault"] = Fault(rate=64 * 1024)
        guest = scenario.guest
        began = trio.current_time()
        answer = await guest.begin_call("tell", 1, arguments=large(60, 120), **guest.token(1))
        frames: list[Any] = []
        await guest.read(answer, frames)
        assert trio.current_time() - began > 100
        assert guest.text(guest.outcome(frames, 1)) == guest.word
        received = [frame["params"]["progress"] for frame in frames if "method" in frame]
        assert received == list(range(1, 61))
        assert scenario.stalled == 0


@every_kind
async def test_fault_client_says_it_is_done_sending(kind: str, clock: MockClock) -> None:
    """W05: a half-close is a disconnect: without sessions it cancels, with a session the call goes on for a resume."""
    async with open_scenario(kind) as scenario:
        guest = scenario.guest
        first = await guest.begin_call("echo", 1)
        await guest.read(first, [])
        guest.wire.close()
        scenario.network["fault"] = Fault(half_close_after=1)
        answer = await guest.begin_call("wait", 2, arguments={"seconds": 5.0})
        frames: list[Any] = []
        try:
            await guest.read(answer, frames)
        except Broken:
            answer.cut()
        await trio.sleep(10)
        assert scenario.trail.done == (["begun", "finished"] if kind == "stateful" else ["begun", "cancelled"])


@every_kind
@pytest.mark.parametrize("ending", ["fin", "rst"])
async def test_fault_connection_is_lost_in_the_middle(kind: str, ending: Any, clock: MockClock) -> None:
    """F01, F02, F04: with a session the rest is fetched; without, the old call is cancelled and a new one is asked."""
    async with open_scenario(kind) as scenario:
        guest = scenario.guest
        scenario.network["fault"] = Fault(cut_after=1500, ending=ending)
        answer = await guest.begin_call("tell", 1, arguments={"times": 60, "pause": 0.2}, **guest.token(1))
        frames: list[Any] = []
        cursor = ""
        with pytest.raises(Broken):
            while True:
                cursor = await guest.read(answer, frames, only=len(frames) + 1) or cursor
        answer.cut()
        scenario.network["fault"] = NONE
        if kind == "stateful":
            again = await guest.wire.send("GET", {**guest.headers("", None), "last-event-id": cursor}, b"")
            await guest.read(again, frames)
            guest.check_progress(frames, 1, 60)
        else:
            await guest.tell()
            assert "cancelled" in scenario.outcomes
