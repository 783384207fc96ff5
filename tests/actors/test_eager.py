"""A coroutine that runs in the task that is there already."""

from __future__ import annotations

import contextvars
from typing import Any

import pytest
import trio

from mcptrio._actors.eager import run_eagerly

color: contextvars.ContextVar[str] = contextvars.ContextVar("color", default="none")


class Waits:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


async def test_what_never_waits_is_done_at_once() -> None:
    async def add() -> int:
        return 3

    waits = Waits()
    turns = trio.lowlevel.current_task()._schedule_points
    assert await run_eagerly(add(), contextvars.copy_context(), waits) == 3
    assert trio.lowlevel.current_task()._schedule_points == turns
    assert waits.count == 0


async def test_the_first_wait_is_told_and_no_other(autojump_clock: trio.testing.MockClock) -> None:
    async def sleeps() -> str:
        await trio.sleep(1)
        await trio.sleep(1)
        return "rested"

    waits = Waits()
    assert await run_eagerly(sleeps(), contextvars.copy_context(), waits) == "rested"
    assert waits.count == 1


async def test_context_variables_are_its_own_before_and_after_a_wait() -> None:
    seen: list[str] = []

    async def paints() -> None:
        color.set("red")
        await trio.lowlevel.checkpoint()
        seen.append(color.get())
        seen.append(await trio.to_thread.run_sync(color.get))

    await run_eagerly(paints(), contextvars.copy_context(), Waits())
    assert seen == ["red", "red"]
    assert color.get() == "none"


@pytest.mark.parametrize("wait_first", [False, True])
async def test_what_it_raises_is_raised(wait_first: bool) -> None:
    async def fails() -> None:
        if wait_first:
            await trio.lowlevel.checkpoint()
        raise KeyError("x")

    with pytest.raises(KeyError):
        await run_eagerly(fails(), contextvars.copy_context(), Waits())


async def test_it_can_be_cancelled_and_clean_up() -> None:
    cleaned: list[str] = []

    async def sleeps() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            cleaned.append("up")

    with trio.CancelScope() as scope:
        await run_eagerly(sleeps(), contextvars.copy_context(), scope.cancel)
    assert scope.cancelled_caught
    assert cleaned == ["up"]


async def test_it_may_open_nurseries_and_scopes(autojump_clock: trio.testing.MockClock) -> None:
    async def crowd() -> list[str]:
        done: list[str] = []

        async def one(name: str) -> None:
            await trio.sleep(1)
            done.append(name)

        with trio.move_on_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one, "a")
                nursery.start_soon(one, "b")
        return sorted(done)

    assert await run_eagerly(crowd(), contextvars.copy_context(), Waits()) == ["a", "b"]


async def test_a_failure_to_pass_on_closes_the_coroutine() -> None:
    closed: list[str] = []

    async def sleeps() -> None:
        try:
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)
        finally:
            closed.append("yes")

    def fail() -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await run_eagerly(sleeps(), contextvars.copy_context(), fail)
    assert closed == ["yes"]
