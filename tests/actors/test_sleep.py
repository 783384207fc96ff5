"""Sessions that have nothing to do give up their task, and nobody can tell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing
from trio.testing import MockClock

from mcptrio._peer.messages import Cause
from mcptrio._wire.jsonrpc import Response

from .kit import Ctx, Talk, open_talk, request


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def fall_asleep(talk: Talk) -> None:
    while not talk.session.asleep:
        await trio.sleep(1)


async def echo(ctx: Ctx, params: Any) -> dict[str, str]:
    await trio.sleep(0.1)
    return {"said": "hello"}


async def test_an_idle_session_has_no_task_and_answers_nevertheless(autojump_clock: MockClock) -> None:
    async with open_talk({"echo": echo}) as talk:
        await talk.deliver(request(1, "echo"))
        await talk.session.wait_until_quiet()
        await talk.settle()
        awake = tasks()
        await fall_asleep(talk)
        assert tasks() < awake
        for number in range(2, 5):
            await talk.deliver(request(number, "echo"))
            await talk.session.wait_until_quiet()
            (answer,) = await talk.settle()
            assert (answer["id"], answer["result"]) == (number, {"said": "hello"})
            await fall_asleep(talk)


async def test_a_session_with_something_to_do_stays_awake(autojump_clock: MockClock) -> None:
    async with open_talk() as talk:
        talk.session.start_background(trio.sleep, 100)
        await trio.sleep(50)
        assert not talk.session.asleep
        await trio.sleep(60)
        assert talk.session.asleep


async def test_what_runs_in_the_background_wakes_it(autojump_clock: MockClock) -> None:
    async with open_talk() as talk:
        await fall_asleep(talk)
        ran = trio.Event()

        async def run() -> None:
            ran.set()

        talk.session.start_background(run)
        with trio.fail_after(1):
            await ran.wait()


async def test_a_session_function_is_entered_and_left_though_it_sleeps(autojump_clock: MockClock) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def state() -> AsyncIterator[str]:
        steps.append("in")
        yield "state"
        steps.append("out")

    async with open_talk() as talk:
        await fall_asleep(talk)
        assert await talk.session.hold(state()) == "state"
        await trio.sleep(10)
        assert not talk.session.asleep
        talk.session.close_nowait(Cause.IDLE)
        await trio.sleep(1)
    assert steps == ["in", "out"]


async def test_a_sleeping_session_ends_like_any_other(autojump_clock: MockClock) -> None:
    async with open_talk() as talk:
        ends: list[str] = []
        talk.session.on_end.append(lambda: ends.append("end"))
        await fall_asleep(talk)
        talk.session.close_nowait(Cause.IDLE)
        await trio.testing.wait_all_tasks_blocked()
        assert talk.session.ended is Cause.IDLE
        assert ends == ["end"]
        assert talk.link.ended
        assert talk.session.id not in talk.session.runtime.supervisor.sessions


async def test_what_is_asked_of_the_peer_is_answered_while_it_sleeps(autojump_clock: MockClock) -> None:
    async with open_talk() as talk, trio.open_nursery() as nursery:
        await fall_asleep(talk)
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await talk.session.ask("roots/list", {}))

        nursery.start_soon(ask)
        (asked,) = await talk.settle()
        await trio.sleep(5)
        await talk.deliver(Response(asked["id"], {"roots": []}))
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [{"roots": []}]
