"""Idle sessions give up their task, and behave as before when the next message comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing
from trio.testing import MockClock

from mcptrio import telemetry
from mcptrio._actors.session import Session
from mcptrio._peer.messages import Cause, HungUp
from mcptrio._wire.jsonrpc import Response
from mcptrio.errors import ConnectionLost

from .kit import Ctx, ListLink, Talk, open_talk, request


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def fall_asleep(talk: Talk) -> None:
    while not talk.session.inbox.asleep:
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
        talk.session.background.start(trio.sleep, 100)
        await trio.sleep(50)
        assert not talk.session.inbox.asleep
        await trio.sleep(60)
        assert talk.session.inbox.asleep


async def test_a_background_task_wakes_a_sleeping_session(autojump_clock: MockClock) -> None:
    async with open_talk() as talk:
        await fall_asleep(talk)
        ran = trio.Event()

        async def run() -> None:
            ran.set()

        talk.session.background.start(run)
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
        assert await talk.session.background.hold(state()) == "state"
        await trio.sleep(10)
        assert not talk.session.inbox.asleep
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


async def test_an_ask_is_answered_while_the_session_sleeps(autojump_clock: MockClock) -> None:
    async with open_talk() as talk, trio.open_nursery() as nursery:
        await fall_asleep(talk)
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await talk.session.asks.ask("roots/list", {}))

        nursery.start_soon(ask)
        (asked,) = await talk.settle()
        await trio.sleep(5)
        await talk.deliver(Response(asked["id"], {"roots": []}))
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [{"roots": []}]


async def nod_off(session: Session) -> None:
    """Return at the moment when the session has fallen asleep and its old task has not ended yet."""
    session.background.start(trio.lowlevel.checkpoint)  # it wakes up
    await trio.testing.wait_all_tasks_blocked()
    assert session.nursery is not None
    session.doze()
    assert session.inbox.asleep


async def test_a_message_that_arrives_while_the_session_falls_asleep_is_handled(autojump_clock: MockClock) -> None:
    async with open_talk({"echo": echo}) as talk:
        ran: list[str] = []

        async def run(what: str) -> None:
            ran.append(what)

        for number in range(1, 9):
            await nod_off(talk.session)
            await talk.deliver(request(number, "echo"))
            talk.session.background.start(run, "background")
            await trio.sleep(0.2)
            (answer,) = await talk.settle()
            assert answer["id"] == number
        assert len(ran) == 8
        await nod_off(talk.session)
        talk.session.close_nowait(Cause.IDLE)
        await talk.settle()
        assert talk.session.ended is Cause.IDLE
        assert talk.link.ended


async def test_a_carrier_is_started_once(autojump_clock: MockClock) -> None:
    async with open_talk() as talk:
        starts: list[float] = []

        async def carry() -> None:
            starts.append(trio.current_time())

        session = talk.session.runtime.new_session(ListLink(), transport="test", reader=carry)
        await trio.testing.wait_all_tasks_blocked()
        await nod_off(session)
        session.inbox.post_nowait(HungUp(Cause.IDLE))
        await trio.sleep(1)
        assert session.ended is Cause.IDLE
        assert len(starts) == 1


async def test_a_session_that_crashes_while_it_falls_asleep_ends_like_any_other(autojump_clock: MockClock) -> None:
    async with open_talk() as talk:
        session, received = talk.session, []

        async def ask() -> None:
            try:
                await session.asks.ask("roots/list", {})
            except ConnectionLost as error:
                received.append(str(error))

        await nod_off(session)
        session.background.start(trio.sleep_forever)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert session.nursery is not None
            session.nursery.cancel_scope.cancel()
        assert received
        assert session.ended is Cause.CRASH
        assert talk.link.ended


async def test_a_background_task_that_never_began_does_not_hold_up_the_end(autojump_clock: MockClock) -> None:
    async with open_talk() as talk:
        await fall_asleep(talk)
        ends: list[float] = []
        talk.session.on_end.append(lambda: ends.append(trio.current_time()))
        now = trio.current_time()
        talk.session.background.start(trio.sleep_forever)
        talk.session.close_nowait(Cause.IDLE)
        await trio.sleep(20)
        assert ends == [now]


async def test_a_supervisor_that_is_stopped_ends_sleeping_sessions_too(autojump_clock: MockClock) -> None:
    async with open_talk() as talk:
        ends: list[str] = []
        talk.session.on_end.append(lambda: ends.append("end"))
        await fall_asleep(talk)
    assert ends == ["end"]
    assert talk.session.ended is Cause.CRASH
    assert talk.link.ended
    assert talk.app.count(telemetry.SessionClosed) == 1
