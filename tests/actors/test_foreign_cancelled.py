"""A `Cancelled` that belongs to another task is a failure of the code that raises it, and of nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from mcptrio._actors.exchange import Exchange
from mcptrio._peer.messages import Cause

from .kit import App, Ctx, ListLink, open_runtime, open_talk, request
from .test_lending import alone, at_once, open_reader

pytestmark = pytest.mark.defect("C01")


async def caught() -> trio.Cancelled:
    """Return the `Cancelled` of a scope that is over, as a future keeps it that several tasks share."""
    found: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            found.append(error)
            raise
    return found[0]


async def raises(ctx: Ctx, params: Any) -> dict[str, Any]:
    if params.get("wait"):
        await trio.lowlevel.checkpoint()
    raise await caught()


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("wait", [False, True])
async def test_only_the_handler_that_raises_it_fails(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, lent: bool, wait: bool
) -> None:
    async with open_talk({"bad": raises, "now": at_once}) as talk, open_reader(talk) as reader:
        if lent:
            reader.deliver(request(1, "bad", wait=wait), request(2, "now"))
        else:
            await talk.deliver(request(1, "bad", wait=wait), request(2, "now"))
        answers = {answer["id"]: answer for answer in await talk.settle()}
        assert answers[1]["error"]["message"] == "internal error"
        assert "result" in answers[2]
        await trio.sleep(1)
        assert talk.session.ended is None
    assert "bad raised a Cancelled that belongs to another task" in caplog.text


async def test_a_stateless_request_that_raises_it_fails_alone(autojump_clock: MockClock) -> None:
    app = App({"bad": raises})
    async with open_runtime(app) as runtime:
        link = ListLink(per_request=True)
        exchange = Exchange(id="-", service=app, link=link, transport="http", runtime=runtime)
        exchange.deliver_nowait(alone("bad"))
        await trio.testing.wait_all_tasks_blocked()
        assert link.sent[0]["error"]["message"] == "internal error"
        assert runtime.ready


async def test_a_background_task_that_raises_it_ends_nothing_else(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def background() -> None:
        raise await caught()

    async with open_talk({"now": at_once}) as talk:
        talk.session.background.start(background)
        await trio.sleep(1)
        assert talk.session.ended is None
        await talk.deliver(request(1, "now"))
        assert "result" in (await talk.settle())[0]
    assert "a background task of session" in caplog.text


async def test_a_session_function_that_raises_it_is_an_error_of_that_session(autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def state() -> AsyncIterator[None]:
        raise await caught()
        yield

    async with open_talk({"now": at_once}) as talk:
        with pytest.raises(RuntimeError, match="raised Cancelled"):
            await talk.session.background.hold(state())
        assert talk.session.ended is None


async def test_a_session_that_crashes_with_it_leaves_the_other_sessions_alone(
    autojump_clock: MockClock,
) -> None:
    async with open_talk({"now": at_once}) as talk:
        runtime = talk.session.runtime

        async def reader() -> None:
            raise await caught()

        other = runtime.new_session(ListLink(), transport="test", reader=reader)
        await trio.sleep(1)
        assert other.ended is Cause.CRASH
        await talk.deliver(request(1, "now"))
        assert "result" in (await talk.settle())[0]


async def test_a_real_cancellation_still_ends_the_handler(autojump_clock: MockClock) -> None:
    ended: list[str] = []

    async def waits(ctx: Ctx, params: Any) -> dict[str, Any]:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("cancelled")

    async with open_talk({"waits": waits}) as talk:
        await talk.deliver(request(1, "waits"))
        await talk.settle()
        talk.session.close_nowait(Cause.SESSION_END)
        await trio.sleep(1)
        assert ended == ["cancelled"]
        assert await talk.settle() == []
