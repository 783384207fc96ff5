"""Handlers in the task of whoever carries their requests: what they do there stays with them."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field
from trio.testing import MockClock

from mcptrio import telemetry
from mcptrio._actors.call import Limits
from mcptrio._actors.exchange import Exchange
from mcptrio._actors.session import Session
from mcptrio._eras.stateless import CAPABILITIES, CLIENT_INFO, VERSION
from mcptrio._peer.messages import Cause
from mcptrio._wire.jsonrpc import Frame, Response

from .kit import App, Ctx, ListLink, Talk, notification, open_runtime, open_talk, request

color: contextvars.ContextVar[str] = contextvars.ContextVar("color", default="none")


@define(eq=False)
class Porter:
    """Carries one frame after the other to a session, and lends its task to their handlers."""

    nursery: trio.Nursery
    session: Session
    link: ListLink
    left: list[Any] = field(factory=list)
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    tasks: int = 0

    def carry(self, *frames: Any) -> None:
        self.left += frames
        self.pass_on()

    def pass_on(self) -> None:
        self.scope = trio.CancelScope()
        self.tasks += 1
        self.nursery.start_soon(self.run)

    async def run(self) -> None:
        with self.scope as scope:
            while self.left:
                frame: Frame = self.left.pop(0)
                await self.session.deliver(frame, self.link, contextvars.copy_context(), self)
                if self.scope is not scope:
                    return


class BrokenLink(ListLink):
    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        raise ZeroDivisionError("a bug of ours")


@asynccontextmanager
async def porter(talk: Talk) -> AsyncIterator[Porter]:
    async with trio.open_nursery() as nursery:
        yield Porter(nursery, talk.session, talk.link)


async def at_once(ctx: Ctx, params: Any) -> dict[str, Any]:
    return {}


async def waits(ctx: Ctx, params: Any) -> dict[str, Any]:
    await trio.sleep(params.get("seconds", 1))
    return {}


@pytest.mark.parametrize("wait_first", [False, True])
async def test_a_crash_beside_the_handler_ends_the_session_and_not_its_carrier(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, wait_first: bool
) -> None:
    async def crash(ctx: Ctx, params: Any) -> dict[str, Any]:
        if wait_first:
            await trio.sleep(1)
        ctx.call.held_back = ("notifications/progress", {"no": object()})  # what is sent after a handler must be JSON
        return {}

    async with open_talk({"crash": crash}) as talk, porter(talk) as carrier:
        carrier.carry(request(1, "crash"))
        await trio.sleep(3)
        assert talk.session.ended is Cause.CRASH
        assert not talk.session.calls
        assert talk.app.count(telemetry.GuardCaught) == 1
    assert "TypeError" in caplog.text


async def test_a_finished_call_does_not_touch_the_time_limit_of_the_next(autojump_clock: MockClock) -> None:
    kept: list[Ctx] = []

    async def remember(ctx: Ctx, params: Any) -> dict[str, Any]:
        kept.append(ctx)
        return {}

    async with open_talk({"remember": remember, "waits": waits}, limits=Limits(call_timeout=10)) as talk:
        async with porter(talk) as carrier:
            carrier.carry(request(1, "remember"), request(2, "waits", seconds=100))
            await talk.settle()
            with pytest.raises(Exception, match="has ended"):
                await kept[0].ask()
            began = trio.current_time()
        assert trio.current_time() - began == pytest.approx(10)
        (answer,) = await talk.settle()
        assert answer["id"] == 2
        assert "error" in answer


async def test_a_handler_has_the_context_of_its_own_request(autojump_clock: MockClock) -> None:
    """Also when the message that made room for it was another's."""
    seen: list[str] = []

    async def look(ctx: Ctx, params: Any) -> dict[str, Any]:
        seen.append(color.get())
        color.set("black")
        return {}

    async with open_talk({"look": look, "waits": waits}, limits=Limits(running=1)) as talk, porter(talk) as carrier:
        carrier.carry(request(1, "waits", seconds=1000))
        await talk.settle()
        color.set("red")
        await talk.deliver(request(2, "look"))
        color.set("blue")
        carrier.carry(notification("notifications/cancelled", requestId=1))
        await trio.sleep(1)
        assert seen == ["red"]


async def test_a_sleeping_session_that_crashes_says_so(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_talk() as talk:
        while not talk.session.asleep:
            await trio.sleep(1)

        await talk.deliver(request(1, "ping"), link=BrokenLink())
        await trio.sleep(1)
        assert talk.session.ended is Cause.CRASH
        assert "ZeroDivisionError" in caplog.text
        assert talk.app.count(telemetry.GuardCaught) == 1


async def test_a_handler_that_will_not_stop_is_noticed_though_its_session_is_over(autojump_clock: MockClock) -> None:
    async def stubborn(ctx: Ctx, params: Any) -> dict[str, Any]:
        with trio.CancelScope(shield=True):
            await trio.sleep(30)
        return {}

    async with open_talk({"stubborn": stubborn}) as talk, porter(talk) as carrier:
        carrier.carry(request(1, "stubborn"))
        await talk.settle()
        talk.session.close_nowait(Cause.SESSION_END)
        await trio.sleep(10)
        assert talk.app.count(telemetry.Zombie) == 1
        assert talk.session.left_behind == 1
        assert list(talk.session.runtime.supervisor) == [talk.session]
        await trio.sleep(30)
        assert not list(talk.session.runtime.supervisor)


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize(("seconds", "in_time"), [(9.99, True), (10.01, False)])
async def test_the_time_limit_counts_from_the_first_wait_on_and_not_while_a_person_is_asked(
    autojump_clock: MockClock, asks: bool, seconds: float, in_time: bool
) -> None:
    async def work(ctx: Ctx, params: Any) -> dict[str, Any]:
        if asks:
            await ctx.ask()
        await trio.sleep(seconds)
        return {}

    async with open_talk({"work": work}, limits=Limits(call_timeout=10, call_timeout_hard=10)) as talk:
        async with porter(talk) as carrier:
            carrier.carry(request(1, "work"))
            if asks:
                (asked,) = await talk.settle()
                await trio.sleep(500)
                await talk.deliver(Response(asked["id"], {}))
            began = trio.current_time()
        assert trio.current_time() - began == pytest.approx(min(seconds, 10))
        (answer,) = await talk.settle()
        assert ("result" in answer) is in_time


async def test_a_handler_that_is_stopped_in_its_first_step_leaves_the_carrier_a_fresh_scope(
    autojump_clock: MockClock,
) -> None:
    async def stops_itself(ctx: Ctx, params: Any) -> dict[str, Any]:
        await talk.deliver(notification("notifications/cancelled", requestId=1))
        return {}

    async with open_talk({"stop": stops_itself, "waits": waits}) as talk, porter(talk) as carrier:
        carrier.carry(request(1, "stop"), request(2, "waits"), request(3, "waits"))
        await trio.sleep(2)
        assert sorted(answer["id"] for answer in await talk.settle()) == [2, 3]
        assert carrier.tasks == 4


async def test_a_batch_lends_the_carrier_once_and_its_cancels_hit_whom_they_name(autojump_clock: MockClock) -> None:
    async with open_talk({"waits": waits}, date="2025-03-26") as talk, porter(talk) as carrier:
        cancel = notification("notifications/cancelled", requestId=1)
        carrier.carry((request(1, "waits"), request(2, "waits"), cancel), request(3, "waits"))
        await trio.sleep(2)
        answers = await talk.settle()
        assert sorted(a["id"] for each in answers for a in (each if isinstance(each, list) else [each])) == [2, 3]


# -- without a session


@asynccontextmanager
async def open_exchange(handlers: dict[str, Any]) -> AsyncIterator[tuple[Talk, Porter]]:
    app = App(handlers)
    async with open_runtime(app) as runtime, trio.open_nursery() as nursery:
        link = ListLink(shared=False)
        exchange = Exchange(id="-", service=app, link=link, transport="http", runtime=runtime)
        yield Talk(exchange, link, app), Porter(nursery, exchange, link)


def alone(method: str) -> Frame:
    info = {"name": "test", "version": "0"}
    return request(1, method, _meta={VERSION: "2026-07-28", CAPABILITIES: {}, CLIENT_INFO: info})


@pytest.mark.parametrize("carried", [False, True])
async def test_a_handler_without_a_session_that_will_not_stop_is_noticed_too(
    autojump_clock: MockClock, carried: bool
) -> None:
    async def stubborn(ctx: Ctx, params: Any) -> dict[str, Any]:
        with trio.CancelScope(shield=True):
            await trio.sleep(30)
        return {}

    async with open_exchange({"stubborn": stubborn}) as (talk, carrier):
        if carried:
            carrier.carry(alone("stubborn"))
        else:
            await talk.deliver(alone("stubborn"))
        await talk.settle()
        talk.session.close_nowait(Cause.DISCONNECT)
        assert talk.link.ended
        await trio.sleep(10)
        assert talk.app.count(telemetry.Zombie) == 1
        assert [each.zombies for each in talk.session.runtime.supervisor] == [1]
        await trio.sleep(30)
        assert not list(talk.session.runtime.supervisor)


async def test_what_a_request_leaves_in_the_background_ends_with_it(autojump_clock: MockClock) -> None:
    steps: list[str] = []

    async def stay() -> None:
        steps.append("begun")
        try:
            await trio.sleep_forever()
        finally:
            steps.append("ended")

    async def leave_behind(ctx: Ctx, params: Any) -> dict[str, Any]:
        ctx.session.start_background(stay)
        return {}

    async with open_exchange({"leave": leave_behind}) as (talk, carrier):
        carrier.carry(alone("leave"))
        (answer,) = await talk.settle()
        assert "result" in answer
        assert steps == ["begun", "ended"]
