"""Lending: handlers that run in the task of the reader behave as in a task of their own."""

from __future__ import annotations

import contextvars
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field
from trio.testing import MockClock

from mcptrio import telemetry
from mcptrio._actors.exchange import Exchange
from mcptrio._actors.lending import Loan, run_in
from mcptrio._actors.limits import Limits
from mcptrio._actors.session import Session
from mcptrio._eras.stateless import CAPABILITIES, CLIENT_INFO, VERSION
from mcptrio._peer.messages import Cause
from mcptrio._wire.jsonrpc import Frame, Response

from .kit import App, Ctx, ListLink, Talk, notification, open_runtime, open_talk, request

color: contextvars.ContextVar[str] = contextvars.ContextVar("color", default="none")


@define(eq=False)
class Reader:
    """Delivers one frame after the other to a session, and lends its task to their handlers."""

    nursery: trio.Nursery
    session: Session
    link: ListLink
    left: list[Any] = field(factory=list)
    tasks: int = 0

    def deliver(self, *frames: Any) -> None:
        self.left += frames
        self.pass_on()

    def pass_on(self) -> None:
        self.tasks += 1
        self.nursery.start_soon(self.run)

    async def run(self) -> None:
        loan = Loan()
        while self.left:
            frame: Frame = self.left.pop(0)
            await self.session.deliver(frame, self.link, contextvars.copy_context(), loan)
            if loan.call is not None and await loan.run(self.pass_on):
                return


class BrokenLink(ListLink):
    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        raise ZeroDivisionError("a bug of ours")


@asynccontextmanager
async def open_reader(talk: Talk) -> AsyncIterator[Reader]:
    async with trio.open_nursery() as nursery:
        yield Reader(nursery, talk.session, talk.link)


async def deliver(talk: Talk, reader: Reader | None, *frames: Any) -> None:
    """Deliver requests, with a reader that lends its task or without one."""
    if reader is None:
        await talk.deliver(*frames)
    else:
        reader.deliver(*frames)


async def at_once(ctx: Ctx, params: Any) -> dict[str, Any]:
    return {}


async def waits(ctx: Ctx, params: Any) -> dict[str, Any]:
    await trio.sleep(params.get("seconds", 1))
    return {}


@pytest.mark.parametrize("wait_first", [False, True])
async def test_progress_that_cannot_be_sent_fails_its_call_and_nothing_else(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, wait_first: bool
) -> None:
    async def crash(ctx: Ctx, params: Any) -> dict[str, Any]:
        if wait_first:
            await trio.sleep(1)
        ctx.call.held_back = {"no": object()}  # it has no JSON form
        return {}

    async with open_talk({"crash": crash}) as talk, open_reader(talk) as reader:
        reader.deliver(request(1, "crash", _meta={"progressToken": 1}))
        await trio.sleep(3)
        assert talk.session.ended is None
        assert not talk.session.peer.calls
        (answer,) = await talk.settle()
        assert answer["error"]["message"] == "internal error"
    assert "TypeError" in caplog.text


async def test_a_finished_call_does_not_touch_the_time_limit_of_the_next(autojump_clock: MockClock) -> None:
    kept: list[Ctx] = []

    async def remember(ctx: Ctx, params: Any) -> dict[str, Any]:
        kept.append(ctx)
        return {}

    async with open_talk({"remember": remember, "waits": waits}, limits=Limits(call_timeout=10)) as talk:
        async with open_reader(talk) as reader:
            reader.deliver(request(1, "remember"), request(2, "waits", seconds=100))
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

    async with open_talk({"look": look, "waits": waits}, limits=Limits(running=1)) as talk, open_reader(talk) as reader:
        reader.deliver(request(1, "waits", seconds=1000))
        await talk.settle()
        color.set("red")
        await talk.deliver(request(2, "look"))
        color.set("blue")
        reader.deliver(notification("notifications/cancelled", requestId=1))
        await trio.sleep(1)
        assert seen == ["red"]


async def test_a_sleeping_session_that_crashes_is_reported(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_talk() as talk:
        while not talk.session.inbox.asleep:
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

    async with open_talk({"stubborn": stubborn}) as talk, open_reader(talk) as reader:
        reader.left.append(request(1, "stubborn"))
        talk.session.spawn(reader.run)
        await talk.settle()
        talk.session.close_nowait(Cause.SESSION_END)
        await trio.sleep(10)
        assert talk.app.count(telemetry.Zombie) == 1
        assert talk.session.handlers.left_behind == 1
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
        async with open_reader(talk) as reader:
            reader.deliver(request(1, "work"))
            if asks:
                (asked,) = await talk.settle()
                await trio.sleep(500)
                await talk.deliver(Response(asked["id"], {}))
            began = trio.current_time()
        assert trio.current_time() - began == pytest.approx(min(seconds, 10))
        (answer,) = await talk.settle()
        assert ("result" in answer) is in_time


async def test_a_handler_that_is_stopped_in_its_first_step_leaves_the_reader_alone(autojump_clock: MockClock) -> None:
    async def stops_itself(ctx: Ctx, params: Any) -> dict[str, Any]:
        await talk.deliver(notification("notifications/cancelled", requestId=1))
        return {}

    async with open_talk({"stop": stops_itself, "waits": waits}) as talk, open_reader(talk) as reader:
        reader.deliver(request(1, "stop"), request(2, "waits"), request(3, "waits"))
        await trio.sleep(2)
        assert sorted(answer["id"] for answer in await talk.settle()) == [2, 3]
        assert reader.tasks == 2  # the first call that waits keeps the task; the next one has a task of its own


async def test_a_batch_lends_the_reader_task_once_and_its_cancels_stop_the_named_calls(
    autojump_clock: MockClock,
) -> None:
    async with open_talk({"waits": waits}, date="2025-03-26") as talk, open_reader(talk) as reader:
        cancel = notification("notifications/cancelled", requestId=1)
        reader.deliver((request(1, "waits"), request(2, "waits"), cancel), request(3, "waits"))
        await trio.sleep(2)
        answers = await talk.settle()
        assert sorted(a["id"] for each in answers for a in (each if isinstance(each, list) else [each])) == [2, 3]


# -- without a session


@asynccontextmanager
async def open_exchange(handlers: dict[str, Any]) -> AsyncIterator[Talk]:
    app = App(handlers)
    async with open_runtime(app) as runtime:
        link = ListLink(per_request=True)
        exchange = Exchange(id="-", service=app, link=link, transport="http", runtime=runtime)
        yield Talk(exchange, link, app)


def alone(method: str) -> Frame:
    info = {"name": "test", "version": "0"}
    return request(1, method, _meta={VERSION: "2026-07-28", CAPABILITIES: {}, CLIENT_INFO: info})


async def test_a_handler_without_a_session_that_will_not_stop_is_noticed_too(autojump_clock: MockClock) -> None:
    async def stubborn(ctx: Ctx, params: Any) -> dict[str, Any]:
        with trio.CancelScope(shield=True):
            await trio.sleep(30)
        return {}

    async with open_exchange({"stubborn": stubborn}) as talk:
        talk.session.deliver_nowait(alone("stubborn"))
        await talk.settle()
        talk.session.close_nowait(Cause.DISCONNECT)
        assert talk.link.ended
        await trio.sleep(10)
        assert talk.app.count(telemetry.Zombie) == 1
        assert [each.handlers.zombies for each in talk.session.runtime.supervisor] == [1]
        await trio.sleep(30)
        assert not list(talk.session.runtime.supervisor)


async def test_background_tasks_of_a_request_end_with_it(autojump_clock: MockClock) -> None:
    steps: list[str] = []

    async def stay() -> None:
        steps.append("begun")
        try:
            await trio.sleep_forever()
        finally:
            steps.append("ended")

    async def leave_behind(ctx: Ctx, params: Any) -> dict[str, Any]:
        ctx.session.background.start(stay)
        return {}

    async with open_exchange({"leave": leave_behind}) as talk:
        talk.session.deliver_nowait(alone("leave"))
        (answer,) = await talk.settle()
        assert "result" in answer
        assert steps == ["begun", "ended"]


# -- the same as in a task of its own


async def test_a_handler_that_never_waits_costs_no_task_and_no_turn_of_the_scheduler() -> None:
    async with open_talk({"now": at_once}) as talk:
        loan, task = Loan(), trio.lowlevel.current_task()
        for number in range(3):
            await talk.session.deliver(request(number, "now"), talk.link, None, loan)
            turns = task._schedule_points
            assert loan.call is not None
            assert not await loan.run(lambda: pytest.fail("it does not wait"))
            assert task._schedule_points == turns
        assert [answer["id"] for answer in talk.link.sent[-3:]] == [0, 1, 2]


async def test_a_handler_that_has_waited_gets_a_task_in_the_nursery_of_its_session(autojump_clock: MockClock) -> None:
    async with open_talk({"waits": waits, "now": at_once}) as talk, open_reader(talk) as reader:
        reader.deliver(request(1, "waits"))
        await talk.settle()
        assert named_tasks(reader.nursery) == [f"waits · session {talk.session.id[:8]}"]
        reader.deliver(request(2, "waits"), request(3, "now"))
        await talk.settle()
        assert talk.session.nursery is not None
        (task,) = talk.session.nursery.child_tasks
        assert task.name == f"waits · session {talk.session.id[:8]}"
        assert "waits" in [frame.f_code.co_name for frame, _ in task.iter_await_frames()]


def named_tasks(nursery: trio.Nursery) -> list[str]:
    return [task.name for task in nursery.child_tasks if " · " in task.name]


@pytest.mark.defect("C06", "C07")
@pytest.mark.parametrize("lent", [False, True])
async def test_await_frames_context_and_deadline_are_those_of_the_handler(lent: bool) -> None:
    seen: list[Any] = []
    reached, release = trio.Event(), trio.Event()

    async def look(ctx: Ctx, params: Any) -> dict[str, Any]:
        task = trio.lowlevel.current_task()
        color.set("red")
        seen.append(trio.current_effective_deadline() - trio.current_time())
        seen.append(task.context.get(color))
        await trio.lowlevel.checkpoint()
        seen.append(trio.current_effective_deadline() - trio.current_time())
        seen.append(task.context.get(color))
        seen.append(await trio.to_thread.run_sync(lambda: trio.from_thread.run_sync(color.get)))
        reached.set()
        await inner()
        return {}

    async def inner() -> None:
        await release.wait()

    async with open_talk({"look": look}, limits=Limits(call_timeout=10)) as talk, open_reader(talk) as reader:
        await deliver(talk, reader if lent else None, request(1, "look"))
        await reached.wait()
        await talk.settle()
        nursery = reader.nursery if lent else talk.session.nursery
        assert nursery is not None
        (task,) = [task for task in nursery.child_tasks if task.name.startswith("look")]
        names = [frame.f_code.co_name for frame, _ in task.iter_await_frames()]
        assert names[names.index("look") :][:2] == ["look", "inner"]
        release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert "result" in talk.link.sent[-1]
    assert seen == [pytest.approx(10, abs=1), "red", pytest.approx(10, abs=1), "red", "red"]


@pytest.mark.defect("C22")
@pytest.mark.parametrize("lent", [False, True])
async def test_a_handler_that_leaves_a_cancel_scope_open_fails_alone(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, lent: bool
) -> None:
    scopes: list[trio.CancelScope] = []

    async def leaks(ctx: Ctx, params: Any) -> dict[str, Any]:
        scopes.append(trio.CancelScope())
        scopes[-1].__enter__()
        return {}

    async with open_talk({"leaks": leaks, "now": at_once}) as talk, open_reader(talk) as reader:
        await deliver(talk, reader if lent else None, request(1, "leaks"), request(2, "now"))
        answers = {answer["id"]: answer for answer in await talk.settle()}
        assert answers[1]["error"]["message"] == "internal error"
        assert "result" in answers[2]
        scopes[0].cancel()
        await trio.sleep(1)
        assert talk.session.ended is None
    assert "Cancel scope stack corrupted" in caplog.text


@pytest.mark.defect("C22")
@pytest.mark.parametrize("lent", [False, True])
async def test_a_handler_that_leaves_a_nursery_open_fails_alone(autojump_clock: MockClock, lent: bool) -> None:
    ended: list[str] = []

    async def leaks(ctx: Ctx, params: Any) -> dict[str, Any]:
        nursery = await trio.open_nursery().__aenter__()
        nursery.start_soon(stay)
        return {}

    async def stay() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("child")

    async with open_talk({"leaks": leaks, "now": at_once}) as talk, open_reader(talk) as reader:
        await deliver(talk, reader if lent else None, request(1, "leaks"), request(2, "now"))
        answers = {answer["id"]: answer for answer in await talk.settle()}
        assert answers[1]["error"]["message"] == "internal error"
        assert "result" in answers[2]
        assert (talk.session.ended, ended) == (None, ["child"])


@pytest.mark.defect("C05")
@pytest.mark.parametrize("lent", [False, True])
def test_ctrl_c_in_a_child_task_of_a_handler_reaches_the_main_task(lent: bool) -> None:
    async def parent(ctx: Ctx, params: Any) -> dict[str, Any]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
        return {}

    async def child() -> None:
        signal.raise_signal(signal.SIGINT)  # as a terminal does while this task runs
        await trio.sleep_forever()

    async def main() -> None:
        async with open_talk({"parent": parent}) as talk, open_reader(talk) as reader:
            await deliver(talk, reader if lent else None, request(1, "parent"))
            with trio.fail_after(60):
                await trio.sleep_forever()  # the main task is interrupted here

    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(main, clock=MockClock(autojump_threshold=0))
    assert caught.value.subgroup(KeyboardInterrupt) is not None


# -- other context variables for a part of a task


async def test_a_coroutine_can_run_with_other_context_variables() -> None:
    async def paint() -> str:
        color.set("red")
        await trio.lowlevel.checkpoint()
        return color.get()

    context = contextvars.copy_context()
    assert await run_in(context, paint()) == "red"
    assert (color.get(), context.get(color)) == ("none", "red")


@pytest.mark.parametrize("wait_first", [False, True])
async def test_an_exception_of_such_a_coroutine_is_raised(wait_first: bool) -> None:
    async def fail() -> None:
        if wait_first:
            await trio.lowlevel.checkpoint()
        raise KeyError("x")

    with pytest.raises(KeyError):
        await run_in(contextvars.copy_context(), fail())


async def test_such_a_coroutine_can_be_cancelled_and_clean_up() -> None:
    cleaned: list[str] = []

    async def sleep() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            cleaned.append("up")

    with trio.move_on_after(0) as scope:
        await run_in(contextvars.copy_context(), sleep())
    assert scope.cancelled_caught
    assert cleaned == ["up"]
