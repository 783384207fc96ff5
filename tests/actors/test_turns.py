"""Turns of the event loop: an owner with many requests does not take those of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import trio

from mcptrio import Context, Server, connect
from mcptrio._actors.turns import Turns


class Clock(trio.abc.Instrument):
    """The number of the present turn."""

    turn = 0

    def after_io_wait(self, timeout: float) -> None:
        self.turn += 1


class Stage:
    """Stands for the supervisor."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery


@asynccontextmanager
async def open_turns() -> AsyncIterator[tuple[Turns, Clock]]:
    clock = Clock()
    trio.lowlevel.add_instrument(clock)
    async with trio.open_nursery() as nursery:
        turns = Turns(cast(Any, Stage(nursery)))
        yield turns, clock
        turns.close()
        turns.close()
    trio.lowlevel.remove_instrument(clock)


async def begin_all(turns: Turns, clock: Clock, owners: list[str]) -> list[tuple[str, int]]:
    """Begin a request for each of the owners at the same time; return the owners in order, each with its turn."""
    begun: list[tuple[str, int]] = []

    async def begin(owner: str) -> None:
        await turns.take(owner)
        begun.append((owner, clock.turn))

    async with trio.open_nursery() as nursery:
        for owner in owners:
            nursery.start_soon(begin, owner)
    return begun


async def test_the_only_owner_does_not_wait() -> None:
    async with open_turns() as (turns, clock):
        begun = await begin_all(turns, clock, ["a"] * 50)
        assert len(set(begun)) == 1, "all in one turn"


async def test_an_owner_begins_two_requests_in_a_turn_once_there_is_another() -> None:
    async with open_turns() as (turns, clock):
        await turns.take("a")
        await turns.take("b")
        begun = await begin_all(turns, clock, ["a"] * 50 + ["b"])
        assert max(Counter(begun).values()) == 2
        assert [owner for owner, _ in begun].index("b") <= 2, "at once, although it came last"
        assert begun[-1][1] - begun[0][1] <= 50 / 2 + 2, "no turn is left out"
        # what waited is over: the next one begins at once
        await trio.testing.wait_all_tasks_blocked()
        before = clock.turn
        await turns.take("a")
        assert clock.turn == before


async def test_a_request_that_is_cancelled_while_it_waits_delays_no_other() -> None:
    async with open_turns() as (turns, clock):
        await turns.take("b")
        await turns.take("a")
        await turns.take("a")
        begun: list[str] = []
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                scope.cancel()
                await turns.take("a")
            assert scope.cancelled_caught
            nursery.start_soon(turns.take, "a")
        begun += [owner for owner, _ in await begin_all(turns, clock, ["a", "b"])]
        assert sorted(begun) == ["a", "b"]


async def test_requests_that_wait_when_the_server_ends_go_on() -> None:
    async with open_turns() as (turns, _), trio.open_nursery() as connections:
        async with trio.open_nursery() as supervisor:
            turns._supervisor = cast(Any, Stage(supervisor))
            await turns.take("b")
            for _ in range(20):
                connections.start_soon(turns.take, "a")
            await trio.lowlevel.checkpoint()
            supervisor.cancel_scope.cancel()
        with trio.fail_after(30):
            await trio.testing.wait_all_tasks_blocked()
        for _ in range(5):  # nothing can be started in the closed nursery
            await turns.take("a")


async def test_the_notifications_of_many_calls_of_one_client_take_turns() -> None:
    server, sent, clock = Server("turns"), list[int](), Clock()

    @server.tool
    async def pour(ctx: Context) -> None:
        for _ in range(5):
            await ctx.info("x")
            sent.append(clock.turn)

    trio.lowlevel.add_instrument(clock)
    async with connect(server) as client:
        await client.set_log_level("info")
        (runtime,) = server._app.publisher.runtimes
        for owner in ("another", "a third"):
            await runtime.turns.take(owner)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(client.call_tool, "pour")
    trio.lowlevel.remove_instrument(clock)
    assert len(sent) == 100
    assert max(Counter(sent).values()) <= 4, "two take their turn, and two that took it before have been resumed"
