"""A session's loop: calls, asks, time, and what is left when it ends."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from msgspec import Raw
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import telemetry
from mcptrio._actors.future import Reply
from mcptrio._actors.limits import Limits
from mcptrio._peer.messages import Cause, Notified
from mcptrio._wire.jsonrpc import Request, Response
from mcptrio.errors import INTERNAL_ERROR, CapabilityMissing, ConnectionLost, MCPError, RequestTimeout

from .kit import App, Ctx, ListLink, Talk, notification, open_runtime, open_talk, request


async def sleep_an_hour(ctx: Ctx, params: Any) -> None:
    await trio.sleep(3600)


async def echo(ctx: Ctx, params: Any) -> Any:
    return params


def cancel(request_id: int | str) -> Any:
    return notification("notifications/cancelled", requestId=request_id)


def ended(app: App) -> list[tuple[Any, str]]:
    return [(e.request_id, e.outcome) for e in app.events if isinstance(e, telemetry.CallEnded)]


# -- calls


async def test_a_call_is_answered_with_what_its_handler_returns(autojump_clock: MockClock) -> None:
    async with open_talk({"echo": echo}) as talk:
        await talk.deliver(request(1, "echo", a=1))
        assert await talk.settle() == [{"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}]


async def test_a_cancelled_call_is_never_answered(autojump_clock: MockClock) -> None:
    """Clients would take the answer for that of a later request with the same id."""
    async with open_talk({"slow": sleep_an_hour}) as talk:
        await talk.deliver(request(1, "slow"))
        await wait_all_tasks_blocked()
        await talk.deliver(cancel(1))
        assert await talk.settle() == []
        assert ended(talk.app)[-1] == (1, "cancelled")
        assert talk.session.handlers.left_behind == 0


async def test_a_cancel_right_behind_its_request_is_seen(autojump_clock: MockClock) -> None:
    began = False

    async def slow(ctx: Ctx, params: Any) -> None:
        nonlocal began
        await trio.lowlevel.checkpoint()
        began = True

    async with open_talk({"slow": slow}) as talk:
        await talk.deliver(request(1, "slow"), cancel(1))
        assert await talk.settle() == []
    assert not began


async def test_a_handler_that_waits_does_not_delay_other_calls(autojump_clock: MockClock) -> None:
    async with open_talk({"slow": sleep_an_hour, "echo": echo}) as talk:
        await talk.deliver(request(1, "slow"), request(2, "echo"), request(3, "ping"))
        assert sorted(answer["id"] for answer in await talk.settle()) == [2, 3]


async def test_an_id_in_use_is_refused_and_the_first_call_is_still_answered(autojump_clock: MockClock) -> None:
    go = trio.Event()

    async def wait(ctx: Ctx, params: Any) -> dict[str, Any]:
        await go.wait()
        return {"first": True}

    async with open_talk({"wait": wait}) as talk:
        await talk.deliver(request(1, "wait"), request(1, "wait"))
        (refusal,) = await talk.settle()
        assert "id" not in refusal
        go.set()
        assert await talk.settle() == [{"jsonrpc": "2.0", "id": 1, "result": {"first": True}}]


async def test_an_inline_handler_is_answered_in_the_order_of_requests(autojump_clock: MockClock) -> None:
    async with open_talk({"own/now": lambda ctx, params: {"n": params["n"]}}, limits=Limits(running=1)) as talk:
        await talk.deliver(*(request(n, "own/now", n=n) for n in range(200)))
        assert [answer["id"] for answer in await talk.settle()] == list(range(200))


async def test_a_batch_is_answered_as_one(autojump_clock: MockClock) -> None:
    async with open_talk({"echo": echo}, date="2025-03-26") as talk:
        await talk.deliver((request(1, "echo", a=1), notification("notifications/x"), request(2, "ping")))
        (answers,) = await talk.settle()
        assert sorted(a["id"] for a in answers) == [1, 2]


async def test_more_calls_than_may_run_wait_their_turn(autojump_clock: MockClock) -> None:
    most = 0
    now = 0

    async def work(ctx: Ctx, params: Any) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await trio.sleep(1)
        now -= 1

    async with open_talk({"work": work}, limits=Limits(running=4, waiting=8)) as talk:
        await talk.deliver(*(request(n, "work") for n in range(12)))
        await wait_all_tasks_blocked()
        assert talk.session.congested
        await talk.session.wait_for_room()
        assert not talk.session.congested
        await trio.sleep(10)
        assert len(talk.link.sent) == 12
    assert most == 4


async def test_cancelling_waiting_calls_wakes_a_reader_that_waits_for_room(autojump_clock: MockClock) -> None:
    """Otherwise the reader of a pipe would sleep although there is nothing to wait for."""
    async with open_talk({"slow": sleep_an_hour}, limits=Limits(running=1, waiting=2)) as talk:
        await talk.deliver(*(request(n, "slow") for n in range(3)))
        await wait_all_tasks_blocked()
        assert talk.session.congested
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk.session.wait_for_room)
                await wait_all_tasks_blocked()
                await talk.deliver(cancel(2))


async def test_context_variables_travel_with_the_message(autojump_clock: MockClock) -> None:
    who = contextvars.ContextVar("who", default="unset")

    async def tell(ctx: Ctx, params: Any) -> dict[str, str]:
        seen = who.get()
        who.set("changed")
        return {"who": seen}

    async with open_talk({"tell": tell}) as talk:
        who.set("ann")
        await talk.deliver(request(1, "tell"))
        who.set("bob")
        await talk.deliver(request(2, "tell"))
        answers = {a["id"]: a["result"]["who"] for a in await talk.settle()}
        assert answers == {1: "ann", 2: "bob"}
        assert who.get() == "bob"


# -- handlers that fail


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("secret"), INTERNAL_ERROR, "internal error"),
        (SystemExit(3), INTERNAL_ERROR, "internal error"),
        (KeyboardInterrupt(), INTERNAL_ERROR, "internal error"),
        (GeneratorExit(), INTERNAL_ERROR, "internal error"),
        (MemoryError(), INTERNAL_ERROR, "internal error"),
        (MCPError(-7, "mine", {"a": 1}), -7, "mine"),
        (ExceptionGroup("g", [MCPError(-7, "mine", None)]), -7, "mine"),
        (ExceptionGroup("g", [ExceptionGroup("h", [MCPError(-7, "mine")])]), -7, "mine"),
        (ExceptionGroup("g", [MCPError(-7, "a"), MCPError(-8, "b")]), INTERNAL_ERROR, "internal error"),
        (BaseExceptionGroup("g", [SystemExit(1), ValueError("secret")]), INTERNAL_ERROR, "internal error"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_any_exception_of_a_handler_is_one_error_reply(
    error: BaseException, code: int, message: str, autojump_clock: MockClock
) -> None:
    async def fail(ctx: Ctx, params: Any) -> None:
        raise error

    async with open_talk({"fail": fail, "own/now": lambda ctx, params: _raise(error)}) as talk:
        await talk.deliver(request(1, "fail"), request(2, "own/now"))
        answers = {a["id"]: a["error"] for a in await talk.settle()}
        for answer in answers.values():
            assert (answer["code"], answer["message"]) == (code, message)
        assert set(answers) == {1, 2}
        await talk.deliver(request(3, "ping"))
        assert [a["id"] for a in await talk.settle()] == [3]


def _raise(error: BaseException) -> None:
    raise error


async def test_a_handler_that_raises_while_it_is_cancelled_is_not_answered(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_late(ctx: Ctx, params: Any) -> None:
        try:
            await trio.sleep(3600)
        finally:
            raise ValueError("in the clean-up")

    async def fail_in_a_group(ctx: Ctx, params: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 3600)
            try:
                await trio.sleep(3600)
            finally:
                raise ValueError("in the clean-up")

    async with open_talk({"late": fail_late, "group": fail_in_a_group}) as talk:
        await talk.deliver(request(1, "late"), request(2, "group"))
        await wait_all_tasks_blocked()
        await talk.deliver(cancel(1), cancel(2))
        assert await talk.settle() == []
        assert talk.session.handlers.left_behind == 0
        await talk.deliver(request(1, "ping"))
        assert [a["id"] for a in await talk.settle()] == [1]
    assert "failed" in caplog.text


async def test_an_error_whose_data_is_no_json_is_answered_without_it(autojump_clock: MockClock) -> None:
    """The reply is encoded in the loop: an error there would take the whole session down."""

    async def fail(ctx: Ctx, params: Any) -> None:
        raise MCPError(-7, "mine", {"odd": object()})

    async with open_talk({"fail": fail}) as talk:
        await talk.deliver(request(1, "fail"))
        assert await talk.settle() == [{"jsonrpc": "2.0", "id": 1, "error": {"code": -7, "message": "mine"}}]


@pytest.mark.parametrize("value", [object(), float("nan"), {"a": [float("inf")]}, "\ud800"])
async def test_a_result_that_is_no_json_fails_its_own_call(value: Any, autojump_clock: MockClock) -> None:
    async def odd(ctx: Ctx, params: Any) -> Any:
        return {"value": value}

    async with open_talk({"odd": odd}) as talk:
        await talk.deliver(request(1, "odd"))
        assert [a["error"]["code"] for a in await talk.settle()] == [INTERNAL_ERROR]
        assert talk.session.ended is None


async def test_a_message_that_cannot_be_sent_raises_in_its_sender(autojump_clock: MockClock) -> None:
    async def tell(ctx: Ctx, params: Any) -> dict[str, Any]:
        faults = []
        for value in (object(), float("nan")):
            try:
                await ctx.notify("notifications/message", data=value)
            except (TypeError, ValueError) as error:
                faults.append(type(error).__name__)
            try:
                await ctx.ask(data=value)
            except (TypeError, ValueError) as error:
                faults.append(type(error).__name__)
        return {"faults": faults}

    async with open_talk({"tell": tell}) as talk:
        await talk.deliver(request(1, "tell"))
        (answer,) = await talk.settle()
        assert answer["result"]["faults"] == ["TypeError", "TypeError", "ValueError", "ValueError"]


async def test_an_answer_beyond_the_cap_is_an_error_and_not_a_dead_stream(autojump_clock: MockClock) -> None:
    async def large(ctx: Ctx, params: Any) -> dict[str, str]:
        return {"text": "x" * 2000}

    app = App({"large": large})
    app.router.max_reply = 1000
    async with open_runtime(app) as runtime:
        talk = Talk(runtime.new_session(link := ListLink(), transport="test"), link, app)
        await talk.open()
        await talk.deliver(request(1, "large"))
        ((answer,),) = (await talk.settle(),)
        assert "1000 bytes" in answer["error"]["message"]


# -- time


async def test_a_handler_that_shows_no_progress_is_ended(autojump_clock: MockClock) -> None:
    async with open_talk({"slow": sleep_an_hour}, limits=Limits(call_timeout=60)) as talk:
        await talk.deliver(request(1, "slow"))
        began = trio.current_time()
        await talk.session.wait_until_quiet()
        assert trio.current_time() - began == pytest.approx(60)
        (answer,) = await talk.settle()
        assert (answer["error"]["code"], answer["error"]["message"]) == (INTERNAL_ERROR, "timed out")
        assert ended(talk.app)[-1] == (1, "timeout")


async def test_progress_extends_the_soft_limit_and_never_the_hard_one(autojump_clock: MockClock) -> None:
    async def work(ctx: Ctx, params: Any) -> dict[str, Any]:
        for _ in range(params["steps"]):
            await trio.sleep(50)
            ctx.call.extend()
        return {}

    limits = Limits(call_timeout=60, call_timeout_hard=200)
    async with open_talk({"work": work}, limits=limits) as talk:
        await talk.deliver(request(1, "work", steps=3), request(2, "work", steps=100))
        began = trio.current_time()
        await talk.session.wait_until_quiet()
        assert trio.current_time() - began == pytest.approx(200)
        first, second = await talk.settle()
        assert (first["id"], first["result"]) == (1, {})
        assert (second["id"], second["error"]["message"]) == (2, "timed out")


async def test_a_call_may_have_a_limit_of_its_own(autojump_clock: MockClock) -> None:
    async def work(ctx: Ctx, params: Any) -> None:
        ctx.call.limit(params["limit"])
        await trio.sleep(2000)

    limits = Limits(call_timeout=60, call_timeout_hard=900)
    async with open_talk({"work": work}, limits=limits) as talk:
        await talk.deliver(request(1, "work", limit=5), request(2, "work", limit=3000))
        await trio.sleep(6)
        assert [a["id"] for a in await talk.settle()] == [1]
        await trio.sleep(2000)
        (answer,) = await talk.settle()
        assert answer["result"] == {}


async def test_the_clock_stands_still_while_a_person_is_asked(autojump_clock: MockClock) -> None:
    async def work(ctx: Ctx, params: Any) -> Any:
        await trio.sleep(40)
        answer = await ctx.ask()
        await trio.sleep(40)
        return answer

    async with open_talk({"work": work}, limits=Limits(call_timeout=60, call_timeout_hard=100)) as talk:
        await talk.deliver(request(1, "work"))
        await trio.sleep(300)
        (asked,) = await talk.settle()
        await talk.deliver(Response(asked["id"], {"role": "assistant"}))
        await trio.sleep(50)
        assert await talk.settle() == [{"jsonrpc": "2.0", "id": 1, "result": {"role": "assistant"}}]


async def test_asking_does_not_give_a_call_more_time_of_its_own_than_the_hard_limit(autojump_clock: MockClock) -> None:
    async def work(ctx: Ctx, params: Any) -> None:
        while True:
            await trio.sleep(40)
            await ctx.ask()

    async with open_talk({"work": work}, limits=Limits(call_timeout=60, call_timeout_hard=100)) as talk:
        await talk.deliver(request(1, "work"))
        for _ in range(2):
            await trio.sleep(45)
            (asked,) = await talk.settle()
            await talk.deliver(Response(asked["id"], {}))
        await trio.sleep(45)
        (answer,) = await talk.settle()
        assert answer["error"]["message"] == "timed out"


# -- asks


async def test_an_ask_is_settled_by_the_answer_to_it(autojump_clock: MockClock) -> None:
    async def ask(ctx: Ctx, params: Any) -> Any:
        return await ctx.ask(n=1)

    async with open_talk({"ask": ask}) as talk:
        await talk.deliver(request(1, "ask"))
        (asked,) = await talk.settle()
        assert (asked["method"], asked["params"]) == ("sampling/createMessage", {"n": 1})
        await talk.deliver(Response(asked["id"], {"x": 1}))
        assert await talk.settle() == [{"jsonrpc": "2.0", "id": 1, "result": {"x": 1}}]


async def test_an_ask_that_is_not_answered_in_time_is_taken_back(autojump_clock: MockClock) -> None:
    async def ask(ctx: Ctx, params: Any) -> dict[str, str]:
        try:
            await ctx.session.asks.ask("sampling/createMessage", {}, call=ctx.call, timeout=5)
        except RequestTimeout as error:
            return {"error": str(error)}
        raise AssertionError

    async with open_talk({"ask": ask}) as talk:
        await talk.deliver(request(1, "ask"))
        await trio.sleep(6)
        asked, received, answer = await talk.settle()
        assert received["params"] == {"requestId": asked["id"], "reason": "timeout"}
        assert "in time" in answer["result"]["error"]
        await talk.deliver(Response(asked["id"], {}))  # too late: dropped and counted
        assert await talk.settle() == []
        assert talk.app.count(telemetry.Dropped) == 1


async def test_cancelling_a_call_takes_back_what_it_asked(autojump_clock: MockClock) -> None:
    async def ask(ctx: Ctx, params: Any) -> Any:
        return await ctx.ask()

    async with open_talk({"ask": ask}) as talk:
        await talk.deliver(request(1, "ask"))
        (asked,) = await talk.settle()
        await talk.deliver(cancel(1))
        sent = await talk.settle()
        assert [(m["method"], m["params"]["requestId"]) for m in sent] == [("notifications/cancelled", asked["id"])]


async def test_a_capability_is_checked_before_anything_is_sent(autojump_clock: MockClock) -> None:
    async def ask(ctx: Ctx, params: Any) -> dict[str, Any]:
        with pytest.raises(CapabilityMissing) as caught:
            await ctx.ask()
        return caught.value.required

    async with open_talk({"ask": ask}, capabilities={}) as talk:
        await talk.deliver(request(1, "ask"))
        assert await talk.settle() == [{"jsonrpc": "2.0", "id": 1, "result": {"sampling": {}}}]


async def test_asks_wait_until_the_client_says_that_it_is_initialized(autojump_clock: MockClock) -> None:
    async def ask(ctx: Ctx, params: Any) -> Any:
        return await ctx.ask()

    async with open_talk({"ask": ask}, date=None) as talk:
        opening = {"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}}
        await talk.deliver(Request(0, "initialize", opening), request(1, "ask"))
        assert [m["id"] for m in await talk.settle()] == [0]
        await talk.deliver(notification("notifications/initialized"))
        assert [m["method"] for m in await talk.settle()] == ["sampling/createMessage"]


async def test_the_answer_to_an_ask_gets_through_an_inbox_full_of_requests(autojump_clock: MockClock) -> None:
    async def ask(ctx: Ctx, params: Any) -> Any:
        return await ctx.ask()

    async with open_talk({"ask": ask}, limits=Limits(inbox=2, running=2)) as talk:
        await talk.deliver(*(request(n, "ask") for n in range(8)))
        answered: set[int] = set()
        while len(answered) < 8:
            for message in await talk.settle():
                if "method" in message:
                    await talk.deliver(Response(message["id"], {}))
                else:
                    answered.add(message["id"])
    assert answered == set(range(8))


async def test_progress_on_an_ask_reaches_its_callback_and_a_failing_callback_does_no_harm(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    def watch(params: Any) -> None:
        seen.append(params["progress"])
        raise ValueError("bad callback")

    async def ask(ctx: Ctx, params: Any) -> Any:
        return await ctx.session.asks.ask("sampling/createMessage", {}, call=ctx.call, reply=Reply(watch, True))

    async with open_talk({"ask": ask}) as talk:
        await talk.deliver(request(1, "ask"))
        (asked,) = await talk.settle()
        token = asked["params"]["_meta"]["progressToken"]
        await talk.deliver(notification("notifications/progress", progressToken=token, progress=1))
        await talk.deliver(Response(asked["id"], {}))
        assert len(await talk.settle()) == 1
    assert seen == [1]
    assert "progress callback" in caplog.text


# -- zombies


async def shielded(ctx: Ctx, params: Any) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(params.get("seconds", 100))


async def test_a_handler_that_ignores_its_timeout_is_answered_counted_and_named(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_talk({"shielded": shielded}, limits=Limits(call_timeout=10)) as talk:
        await talk.deliver(request(1, "shielded"))
        await trio.sleep(15)
        (answer,) = await talk.settle()
        assert (answer["id"], answer["error"]["message"]) == (1, "timed out")
        assert talk.app.count(telemetry.Zombie) == 1
        assert talk.session.handlers.left_behind == 1
        assert "shielded (id 1) ignores its cancellation" in caplog.text
        await talk.deliver(request(1, "ping"))  # the id is free
        assert [a["id"] for a in await talk.settle()] == [1]
        await trio.sleep(100)
        assert await talk.settle() == []  # its late result is dropped
        assert talk.session.handlers.left_behind == 0


async def test_too_many_zombies_end_the_session(autojump_clock: MockClock) -> None:
    async with open_talk({"shielded": shielded}, limits=Limits(call_timeout=10, zombies=2)) as talk:
        await talk.deliver(request(1, "shielded"), request(2, "shielded"))
        await trio.sleep(15)
        assert talk.session.ended is Cause.CRASH
        assert talk.link.ended
        assert {a["id"] for a in await talk.settle()} == {1, 2}


async def test_a_zombie_that_ends_is_removed_although_the_inbox_is_full(autojump_clock: MockClock) -> None:
    async with open_talk({"shielded": shielded}, limits=Limits(inbox=1, call_timeout=10)) as talk:
        await talk.deliver(request(1, "shielded"))
        await trio.sleep(10)
        now = trio.current_time()
        talk.session.handlers.find_zombies(now)
        talk.session.inbox._idle = False  # the loop is behind: messages queue up
        while talk.session.inbox.post_nowait(Notified(None, "notifications/message", Raw(b"{}"))):
            pass
        talk.session.handlers.find_zombies(now + 5)
        assert talk.session.handlers
        await trio.sleep(3)
        assert [a["id"] for a in await talk.settle() if "id" in a] == [1]


# -- the end


async def test_the_end_of_a_session_ends_everything_in_it(autojump_clock: MockClock) -> None:
    outcomes: list[str] = []

    async def ask(ctx: Ctx, params: Any) -> None:
        try:
            await ctx.ask()
        finally:
            outcomes.append("asker gone")

    async def tick() -> None:
        try:
            await trio.sleep_forever()
        finally:
            outcomes.append("background gone")

    async with open_talk({"ask": ask, "slow": sleep_an_hour}) as talk:
        await talk.deliver(request(1, "ask"), request(2, "slow"))
        talk.session.background.start(tick)
        await talk.settle()
        began = trio.current_time()
        over = trio.Event()
        talk.session.on_end.append(over.set)
        talk.session.close_nowait(Cause.DISCONNECT)
        await over.wait()
        assert trio.current_time() == began
        assert sorted(outcomes) == ["asker gone", "background gone"]
        assert [m.get("method") for m in await talk.settle()] in ([], ["notifications/cancelled"])
        assert sorted(ended(talk.app)[-2:]) == [(1, "cancelled"), (2, "cancelled")]
        causes = {event.cause for event in talk.app.events[-5:] if hasattr(event, "cause")}
        assert causes == {"disconnect", "disconnected"}
        with pytest.raises(ConnectionLost):
            await talk.deliver(request(3, "ping"))


async def test_an_ask_from_outside_fails_when_the_session_ends(autojump_clock: MockClock) -> None:
    caught: list[str] = []

    async def ask(talk: Talk) -> None:
        try:
            await talk.session.asks.ask("roots/list", {})
        except ConnectionLost as error:
            caught.append(str(error))

    async with open_talk(limits=Limits(inbox=2)) as talk, trio.open_nursery() as nursery:
        nursery.start_soon(ask, talk)
        await wait_all_tasks_blocked()
        talk.session.close_nowait(Cause.SESSION_END)
        for _ in range(3):  # behind the end in the inbox, or waiting for a place in it
            nursery.start_soon(ask, talk)
    assert len(caught) == 4


async def test_state_of_the_session_is_torn_down_in_its_own_task(autojump_clock: MockClock) -> None:
    story: list[str] = []

    @asynccontextmanager
    async def state() -> AsyncIterator[str]:
        with trio.CancelScope():  # must be left by the task that entered it
            story.append("up")
            yield "state"
            await trio.sleep(2)
            story.append("down")

    async def enter(ctx: Ctx, params: Any) -> dict[str, Any]:
        ctx.session.state = await ctx.session.background.hold(state())
        return {}

    async with open_talk({"enter": enter}) as talk:
        await talk.deliver(request(1, "enter"))
        assert len(await talk.settle()) == 1
        talk.session.close_nowait(Cause.SESSION_END)
        await trio.sleep(3)
    assert story == ["up", "down"]


async def test_state_that_takes_too_long_to_end_is_cut_short(autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def state() -> AsyncIterator[None]:
        yield
        await trio.sleep(3600)

    async def enter(ctx: Ctx, params: Any) -> dict[str, Any]:
        await ctx.session.background.hold(state())
        return {}

    async with open_talk({"enter": enter}, limits=Limits(end_grace=5)) as talk:
        await talk.deliver(request(1, "enter"))
        await talk.settle()
        over = trio.Event()
        talk.session.on_end.append(over.set)
        talk.session.close_nowait(Cause.SESSION_END)
        with trio.fail_after(5.1):
            await over.wait()


async def test_state_that_fails_to_start_fails_the_call_that_enters_it(autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def state() -> AsyncIterator[None]:
        raise MCPError(-7, "refused")
        yield

    async def enter(ctx: Ctx, params: Any) -> None:
        await ctx.session.background.hold(state())

    async with open_talk({"enter": enter}) as talk:
        await talk.deliver(request(1, "enter"))
        (answer,) = await talk.settle()
        assert answer["error"]["code"] == -7
        assert talk.session.ended is None


async def test_a_background_task_that_fails_is_logged_and_nothing_else(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise ValueError("oops")

    async with open_talk() as talk:
        talk.session.background.start(fail)
        await talk.settle()
        assert talk.session.ended is None
    assert "background task" in caplog.text


@pytest.mark.parametrize("after", range(12))
async def test_cancelling_at_any_await_leaves_nothing_behind(after: int, autojump_clock: MockClock) -> None:
    """The session is cut off after each number of scheduler turns: every asker learns it, every task is gone."""
    alive = 0

    async def busy(ctx: Ctx, params: Any) -> Any:
        nonlocal alive
        alive += 1
        try:
            await ctx.notify("notifications/message", level="info", data="x")
            return await ctx.ask()
        finally:
            alive -= 1

    outcomes: list[str] = []

    async def outside(talk: Talk) -> None:
        try:
            await talk.session.asks.ask("roots/list", {}, timeout=1000)
        except ConnectionLost:
            outcomes.append("told")

    async def deliver(talk: Talk) -> None:
        with suppress(ConnectionLost):
            await talk.deliver(request(1, "busy"))

    async with open_talk({"busy": busy}, limits=Limits(inbox=1)) as talk, trio.open_nursery() as nursery:
        talk.session.background.start(trio.sleep_forever)  # one that is asleep has nothing to cut off
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(outside, talk)
        nursery.start_soon(deliver, talk)
        for _ in range(after):
            await trio.lowlevel.checkpoint()
        assert talk.session.nursery is not None
        talk.session.nursery.cancel_scope.cancel()
        with trio.fail_after(1):
            while talk.session.ended is None or alive:
                await trio.sleep(0.01)
        nursery.cancel_scope.deadline = trio.current_time() + 1
    assert talk.session.handlers.left_behind == 0
    assert talk.link.ended
    assert outcomes == ["told"]


async def test_cancelling_the_asking_task_leaves_nothing_in_the_ledger(autojump_clock: MockClock) -> None:
    async with open_talk(limits=Limits(inbox=1)) as talk:
        for turns in range(6):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk.session.asks.ask, "roots/list", {})
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            sent = await talk.settle()
            asked = [m["id"] for m in sent if m["method"] == "roots/list"]
            received = [m["params"]["requestId"] for m in sent if m["method"] == "notifications/cancelled"]
            assert asked == received
        assert list(talk.session.peer.ledger.asks()) == []


async def test_an_ordinary_session_logs_nothing(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with open_talk({"echo": echo, "slow": sleep_an_hour}) as talk:
        await talk.deliver(request(1, "echo"), request(2, "slow"), cancel(2))
        await talk.settle()
    assert caplog.records == []


async def test_messages_about_a_call_are_limited_to_a_burst_and_a_rate(autojump_clock: MockClock) -> None:
    """F14: a handler that floods its client is slowed down, whatever it sends."""
    allowed: list[int] = []

    async def flood(ctx: Ctx, params: Any) -> dict[str, Any]:
        for _ in range(2):
            allowed.append(sum(ctx.call.may_notify() for _ in range(1000)))
            await trio.sleep(2)
        return {}

    async with open_talk({"flood": flood}) as talk:
        await talk.deliver(request(1, "flood"))
        await talk.session.wait_until_quiet()
    assert allowed == [500, 100]


async def test_the_burst_and_the_rate_of_messages_about_a_call_are_settings(autojump_clock: MockClock) -> None:
    allowed: list[int] = []

    async def flood(ctx: Ctx, params: Any) -> dict[str, Any]:
        for _ in range(3):
            allowed.append(sum(ctx.call.may_notify() for _ in range(1000)))
            await trio.sleep(2)
        return {}

    async with open_talk({"flood": flood}, limits=Limits(notify_rate=3.0, notify_burst=10)) as talk:
        await talk.deliver(request(1, "flood"))
        await talk.session.wait_until_quiet()
    assert allowed == [10, 6, 6]
