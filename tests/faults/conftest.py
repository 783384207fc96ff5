"""One fixture for every fault: a served house with a bystander in it, and the invariants checked at the end.

I1  each request ends in one outcome: an answer, or the end of its connection; never two.
I2  no other session sees a byte of it, or waits for it.
I3  tasks, sessions, calls and places return to what they were.
I4  the cause is logged once where it is ours to log, and nothing else is.
I5  the events of a stream come in order, without a gap and without a repeat.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import define, field
from trio.testing import wait_all_tasks_blocked

from mcptrio import Server
from mcptrio._actors.runtime import Runtime
from mcptrio.transports.http_server.answer import Endpoint
from mcptrio.transports.http_server.config import HttpConfig
from tests.e2e.canary import Canary, StatefulCanary, StatelessCanary, Tally
from tests.e2e.wires import Answer, InnerWire

Json = dict[str, Any]
LIVES: dict[str, type[Canary]] = {"stateful": StatefulCanary, "stateless": StatelessCanary}
PATIENCE = 0.1
"""How long the bystander waits for an answer at most, by the virtual clock."""


@define(eq=False)
class House:
    """A server that is served, and what happens in it."""

    server: Server
    runtime: Runtime
    endpoint: Endpoint
    events: list[Any]
    logged: Callable[[], list[logging.LogRecord]]
    tally: Tally = field(factory=Tally)
    guests: list[Canary] = field(factory=list)
    expected_errors: int = 0
    """How many failures the log tells of in the end (I4)."""
    lingering: bool = False
    """A handler cannot be ended, so tasks are not counted in the end."""

    async def guest(self, life: str) -> Canary:
        """A client; every one uses the same ids."""
        guest = LIVES[life](InnerWire(self.endpoint), self.tally, random.Random(len(self.guests)))
        if isinstance(guest, StatefulCanary):
            await guest.open()
        self.guests.append(guest)
        return guest

    def count(self, name: str) -> int:
        """How many events carry this name, kind, cause or outcome."""
        wanted = ("name", "kind", "cause", "outcome")
        return sum(any(getattr(event, key, None) == name for key in wanted) for event in self.events)

    async def call(self, guest: Canary, tool: str, arguments: Json | None = None, **params: Any) -> Json:
        """The one answer to a call (I1)."""
        return await guest.call(tool, arguments=arguments or {}, **params)

    async def begin(self, guest: Canary, tool: str, arguments: Json | None = None, request_id: int = 1) -> Answer:
        token = guest.token(request_id)
        return await guest.begin_call(tool, request_id, arguments=arguments or {}, **token)

    @property
    def figures(self) -> dict[str, int]:
        supervisor = self.runtime.supervisor
        return {
            "tasks": 0 if self.lingering else len(supervisor.nursery.child_tasks),
            "sessions": len(supervisor.sessions),
            "exchanges": len(supervisor.exchanges),
            "parked": len(self.runtime.parking),
            "calls": self.endpoint.calls,
            "places": self.endpoint.admission.waiting,
            "bodies": self.endpoint.bodies.used,
        }

    async def leave(self) -> None:
        for guest in self.guests:
            if isinstance(guest, StatefulCanary) and self.runtime.supervisor.find(guest.session) is not None:
                await guest.close()
        await trio.sleep(0.1)  # timers that nobody needs any more run out
        await wait_all_tasks_blocked()


async def stand_by(bystander: Canary, waits: list[float]) -> None:
    """Ask for something every now and then; the canary looks at every byte (I2)."""
    while True:
        began = trio.current_time()
        await bystander.echo()
        waits.append(trio.current_time() - began)
        await trio.sleep(0.7)


Open = Callable[..., AbstractAsyncContextManager[House]]


@pytest.fixture
def open_house(caplog: pytest.LogCaptureFixture) -> Open:
    caplog.set_level(logging.WARNING, "mcptrio")

    def errors() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.levelno >= logging.ERROR]

    @asynccontextmanager
    async def open_it(server: Server, config: HttpConfig | None = None, store: Any = None) -> AsyncIterator[House]:
        events: list[Any] = []
        server.telemetry.add(events.append)
        async with server.make_runtime(store).open() as runtime:
            house = House(server, runtime, Endpoint(runtime, config or HttpConfig()), events, errors)
            before = house.figures
            bystander = await house.guest("stateful")
            waits: list[float] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stand_by, bystander, waits)
                await wait_all_tasks_blocked()
                yield house
                await trio.sleep(1)  # the bystander asks once more
                nursery.cancel_scope.cancel()
            await house.leave()
            assert len(waits) >= 2
            assert max(waits) <= PATIENCE, "I2: somebody else had to wait"
            if house.lingering:
                before = {**before, "tasks": 0}
            left = [task.name for task in runtime.supervisor.nursery.child_tasks]
            assert house.figures == before, f"I3: something was left behind: {left}"
            texts = [record.getMessage() for record in errors()]
            assert len(texts) == house.expected_errors, f"I4: {texts}"

    return open_it
