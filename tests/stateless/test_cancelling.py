"""Cancelling an ask at every step of the scheduler: one plain outcome, and nothing is left behind.

The client that called is cancelled, or only the ask inside the handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import Client, Context, Server, connect
from mcptrio._actors.limits import Limits
from mcptrio._actors.runtime import Runtime
from mcptrio.types import ElicitParams

from .asking_cases import every_date_that_asks, text
from .kit import Poster, accept, posting

MANY = 400


@dataclass
class Size:
    size: str


class CancelAt(trio.abc.Instrument):
    """Cancels a scope when the scheduler takes its n-th step."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self.scope = scope
        self.left = step

    @property
    def was_reached(self) -> bool:
        return self.left <= 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


@contextmanager
def cancelled_at(step: int) -> Iterator[CancelAt]:
    """Cancel the block when the scheduler takes its n-th step."""
    with trio.CancelScope() as scope:
        instrument = CancelAt(scope, step)
        trio.lowlevel.add_instrument(instrument)
        try:
            yield instrument
        finally:
            trio.lowlevel.remove_instrument(instrument)


class AskingServer:
    """A server whose tool asks; the step at which the ask inside the handler is cancelled can be set."""

    def __init__(self, parked_ttl: float = 30) -> None:
        self.server = Server("cancelling", limits=Limits(parked_ttl=parked_ttl))
        self.step = 0
        self.reached = False
        self.server.add_tool(self.order, name="order")
        self.server.add_tool(self.limited, name="limited", limit=1)

    async def order(self, ctx: Context) -> str:
        with cancelled_at(self.step) as instrument:
            answer = await ctx.elicit("Which size?", Size)
            return answer.action
        self.reached = instrument.was_reached
        return "given up"

    async def limited(self, ctx: Context) -> str:
        return await self.order(ctx)

    @property
    def runtime(self) -> Runtime:
        (runtime,) = self.server._app.publisher.runtimes
        return runtime


async def elicit(params: ElicitParams) -> Any:
    await trio.sleep(0.01)
    return {"size": "S"}


def left_over(runtime: Runtime) -> list[str]:
    """Return what is left when no call runs: tasks of calls, parked calls, asks without an answer."""
    found: list[str] = []
    pending = [trio.lowlevel.current_root_task()]
    while pending:
        task = pending.pop()
        if task is not None:
            found += [task.name] if "tools/call" in task.name else []
            pending += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    found += [f"parked: {len(runtime.parking)}"] * bool(len(runtime.parking))
    for session in runtime.supervisor:
        ledger = session.peer.ledger
        found += [f"ask {ask.method}" for ask in ledger.asks()]
        found += [f"call {call}" for call in ledger.calls]
        found += [call.name for call in session.handlers]
    return found


async def cancel_calls_at_every_step(client: Client, tool: str) -> None:
    """Cancel a call after 1, 2, 3 … steps, until it ends before it is cancelled several times in a row."""
    in_time = 0
    for step in range(1, MANY):
        outcome = None
        with cancelled_at(step) as instrument:
            outcome = text(await client.call_tool(tool))
        assert outcome in (None, "accept")
        in_time = 0 if instrument.was_reached else in_time + 1
        if in_time == 5:  # the number of steps varies, because Trio schedules tasks in random order
            break
    assert 8 < step < MANY - 1


@pytest.mark.parametrize("tool", ["order", "limited"])
@every_date_that_asks
async def test_cancelling_the_client_at_any_step_leaves_nothing_behind(
    date: str, tool: str, autojump_clock: MockClock
) -> None:
    asking = AskingServer()
    async with connect(asking.server, protocol=date, elicit=elicit) as client:
        assert text(await client.call_tool(tool)) == "accept"
        await cancel_calls_at_every_step(client, tool)
        await trio.sleep(40)  # a call whose client went away between two rounds waits for `parked_ttl`
        assert left_over(asking.runtime) == []
        assert text(await client.call_tool(tool)) == "accept"


@pytest.mark.parametrize("tool", ["order", "limited"])
@every_date_that_asks
async def test_cancelling_the_ask_at_any_step_leaves_nothing_behind(
    date: str, tool: str, autojump_clock: MockClock
) -> None:
    asking = AskingServer()
    given_up = 0
    async with connect(asking.server, protocol=date, elicit=elicit) as client:
        for asking.step in range(1, MANY):
            outcome = text(await client.call_tool(tool))
            assert outcome in ("given up", "accept")
            given_up += outcome == "given up"
            if outcome == "accept":
                break
        assert given_up > 2
        assert asking.step < MANY - 1
        asking.step = 0
        await trio.sleep(40)
        assert left_over(asking.runtime) == []
        assert text(await client.call_tool(tool)) == "accept"


@pytest.mark.parametrize("tool", ["order", "limited"])
async def test_cancelling_an_http_request_at_any_step_leaves_nothing_behind(
    tool: str, autojump_clock: MockClock
) -> None:
    asking = AskingServer()
    async with posting(asking.server) as poster:
        for step in range(1, MANY):
            with cancelled_at(step) as instrument:
                asked = await Poster(poster.endpoint).call(tool)
                (key,) = asked.asked
                reply = await Poster(poster.endpoint).retry(asked, tool, **{key: accept(size="S")})
                assert reply.text == "accept"
            if not instrument.was_reached:
                break
        assert 4 < step < MANY - 1
        await trio.sleep(40)
        assert left_over(asking.runtime) == []
        assert poster.endpoint.calls == 0
