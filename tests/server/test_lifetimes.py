"""Lifetimes: the timeout of a tool, the background tasks of a request, a session that a handler ends."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import Context, Limits, MCPError, Server, ToolError
from mcptrio.errors import INTERNAL_ERROR, ConnectionLost
from mcptrio.server.context import SessionHandle
from tests.stateless.kit import meta

from .talk import open_server, refusal, talking

# -- timeouts


@pytest.mark.defect("D06")
async def test_the_timeout_of_a_tool_starts_with_its_function(autojump_clock: MockClock) -> None:
    server = Server("patient")

    @server.use
    async def slow_middleware(ctx: Context, request: Any, call_next: Any) -> Any:
        if request.method == "tools/call":
            await trio.sleep(50)
        return await call_next(ctx, request)

    @server.tool(timeout=5)
    async def short(seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"

    async with talking(server) as talk:
        assert await talk.text("short", seconds=4) == "done"
        assert "it may take 5 s" in await talk.fault("short", seconds=6)


@pytest.mark.defect("C07")
@pytest.mark.parametrize("options", [{}, {"serial": True}, {"limit": 1}], ids=["alone", "serial", "limit"])
async def test_a_tool_sees_its_deadline_from_its_first_line(autojump_clock: MockClock, options: Any) -> None:
    server = Server("timed")

    @server.tool(timeout=5, **options)
    async def left() -> str:
        return f"{trio.current_effective_deadline() - trio.current_time():g}"

    async with talking(server) as talk:
        assert await talk.text("left") == "5"


@pytest.mark.defect("D24")
@pytest.mark.parametrize("options", [{"serial": True}, {"limit": 1}], ids=["serial", "limit"])
async def test_the_timeout_of_a_tool_does_not_count_the_wait_for_a_slot(
    autojump_clock: MockClock, options: Any
) -> None:
    server = Server("narrow")

    @server.tool(timeout=5, **options)
    async def short() -> str:
        await trio.sleep(4)
        return "done"

    texts: list[str] = []
    async with talking(server) as talk, trio.open_nursery() as nursery:

        async def call() -> None:
            texts.append(await talk.text("short"))

        for _ in range(3):
            nursery.start_soon(call)
    assert texts == ["done"] * 3


@pytest.mark.defect("D24")
async def test_a_call_that_waits_too_long_for_a_slot_is_overloaded(autojump_clock: MockClock) -> None:
    server = Server("narrow", limits=Limits(call_timeout=10))

    @server.tool(limit=1, timeout=100)
    async def long() -> str:
        await trio.sleep(50)
        return "done"

    async with talking(server) as talk, trio.open_nursery() as nursery:
        nursery.start_soon(talk.text, "long")
        await talk.settled()
        began = trio.current_time()
        error = await refusal(talk, "tools/call", name="long", arguments={})
        assert trio.current_time() - began == pytest.approx(10, abs=0.1)
        assert error.message == "overloaded: tool 'long' is busy, no slot became free within 10 s"
        assert error.data == {"retryAfter": 5, "limit": "tool"}


@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        (Limits(call_timeout=7), "it made no progress for 7 s (`Limits.call_timeout`)"),
        (Limits(call_timeout=9, call_timeout_hard=9), "a call may take 9 s (`Limits.call_timeout_hard`)"),
    ],
)
@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("stateless", [False, True])
async def test_a_timeout_is_a_result_that_names_the_tool_the_limit_and_the_setting(
    autojump_clock: MockClock, limits: Limits, setting: str, stubborn: bool, stateless: bool
) -> None:
    server = Server("slow", limits=limits)

    @server.tool
    async def sleepy() -> str:
        with trio.CancelScope(shield=stubborn):
            await trio.sleep(60)
        return "late"

    async with talking(server) as talk:
        result = await talk.call("sleepy", {}, **({"_meta": meta()} if stateless else {}))
        assert result["isError"]
        assert result["content"][0]["text"] == f"The tool 'sleepy' was stopped: {setting}."
        assert ("resultType" in result) is stateless


# -- texts that JSON cannot carry


@pytest.mark.defect("C18")
async def test_an_error_text_with_a_lone_surrogate_is_escaped(autojump_clock: MockClock) -> None:
    server = Server("texts")

    @server.tool
    async def wrong(kind: str) -> str:
        raise ToolError("bad \ud800") if kind == "tool" else MCPError(-5, "bad \ud800")

    @server.prompt
    async def worse() -> str:
        raise MCPError(-6, "bad \udfff")

    async with talking(server) as talk:
        assert await talk.fault("wrong", kind="tool") == "bad \\ud800"
        assert (await refusal(talk, "tools/call", name="wrong", arguments={"kind": "x"})).message == "bad \\ud800"
        assert (await refusal(talk, "prompts/get", name="worse")).message == "bad \\udfff"


@pytest.mark.defect("D01")
@pytest.mark.parametrize("stateless", [False, True])
async def test_held_back_progress_that_cannot_be_encoded_is_an_error_of_the_handler(
    autojump_clock: MockClock, stateless: bool
) -> None:
    server = Server("steps", limits=Limits(notify_burst=2, notify_rate=0.001))
    raised: list[str] = []

    @server.tool
    async def steps(ctx: Context) -> str:
        for step in range(5):
            try:
                await ctx.progress(step, message="\ud800" if step == 4 else "fine")
            except ValueError as error:
                raised.append(type(error).__name__)
        return "done"

    async with talking(server) as talk:
        extra = {"progressToken": "t"}
        result = await talk.call("steps", {}, _meta={**meta(), **extra} if stateless else extra)
        assert result["content"][0]["text"] == "done"
        assert raised == ["LoneSurrogate"]
        assert await talk.request("ping") == {}


# -- background tasks


@pytest.mark.defect("C24")
async def test_background_tasks_of_a_stateless_request_on_a_pipe_end_with_it(autojump_clock: MockClock) -> None:
    server, steps = Server("background"), []
    handles: list[SessionHandle] = []

    async def stay() -> None:
        steps.append("begun")
        try:
            await trio.sleep_forever()
        finally:
            steps.append("ended")

    @server.tool
    async def leave(ctx: Context) -> str:
        handles.append(ctx.session)
        ctx.session.start_soon(stay)
        await trio.sleep(1)
        ctx.session.start_soon(stay)  # it never has a turn before the end
        return "left"

    async with open_server(server) as join, join(opened=False) as talk:
        await talk.call("leave", {}, _meta=meta())
        await talk.settled()
        assert steps.count("begun") == steps.count("ended") >= 1
        with pytest.raises(ConnectionLost, match="a request that is over"):
            handles[0].start_soon(stay)


async def test_background_tasks_of_a_session_outlive_the_call_that_started_them(autojump_clock: MockClock) -> None:
    server, ticks = Server("background"), []

    async def tick() -> None:
        while True:
            ticks.append(trio.current_time())
            await trio.sleep(1)

    @server.tool
    async def start(ctx: Context) -> str:
        ctx.session.start_soon(tick)
        return "started"

    async with talking(server) as talk:
        await talk.text("start")
        await trio.sleep(10)
        assert len(ticks) >= 10


# -- Ctrl-C


@pytest.mark.defect("C05")
@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("where", ["tool", "background task", "session function"])
def test_ctrl_c_in_a_child_task_of_user_code_reaches_the_main_task(where: str, stateless: bool) -> None:
    server = Server("interrupted")

    async def interrupted() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)

    async def child() -> None:
        signal.raise_signal(signal.SIGINT)  # as a terminal does while this task runs
        await trio.sleep_forever()

    if where == "session function":

        @server.session
        async def session(handle: SessionHandle) -> AsyncIterator[None]:
            await interrupted()
            yield

    @server.tool
    async def work(ctx: Context) -> str:
        if where == "background task":
            ctx.session.start_soon(interrupted)
            await trio.sleep_forever()
        await interrupted()
        return "done"

    async def main() -> None:
        async with open_server(server) as join:
            with trio.fail_after(60):
                async with join(opened=not stateless) as talk:
                    await talk.call("work", {}, **({"_meta": meta()} if stateless else {}))
                    await trio.sleep_forever()  # the main task is interrupted here

    with pytest.raises((BaseExceptionGroup, KeyboardInterrupt)) as caught:
        trio.run(main, clock=MockClock(autojump_threshold=0))
    assert BaseExceptionGroup("", [caught.value]).subgroup(KeyboardInterrupt) is not None


# -- the end of a session


async def test_a_handler_ends_its_session_after_its_request_is_answered(autojump_clock: MockClock) -> None:
    server, seen = Server("farewell"), []

    @server.session
    async def session(handle: SessionHandle) -> AsyncIterator[None]:
        yield
        seen.append(handle.ended)

    @server.tool
    async def leave(ctx: Context) -> str:
        ctx.session.end("the user signed out")
        await trio.sleep(1)
        return "goodbye"

    async with talking(server) as talk:
        assert await talk.text("leave") == "goodbye"
        with pytest.raises(ConnectionLost):
            await talk.request("ping")
    assert seen == ["the user signed out"]


async def test_a_background_task_ends_its_session_at_once(autojump_clock: MockClock) -> None:
    server, seen = Server("farewell"), []

    @server.session
    async def session(handle: SessionHandle) -> AsyncIterator[None]:
        async def expire() -> None:
            await trio.sleep(5)
            handle.end("its time is over")

        handle.start_soon(expire)
        yield
        seen.append((handle.ended, trio.current_time()))

    async with talking(server) as talk:
        began = trio.current_time()
        await trio.sleep(6)
        with pytest.raises(ConnectionLost):
            await talk.request("ping")
    assert seen == [("its time is over", pytest.approx(began + 5, abs=0.1))]


async def test_a_stateless_request_has_no_session_to_end(autojump_clock: MockClock) -> None:
    server = Server("alone")

    @server.prompt
    async def leave(ctx: Context) -> str:
        ctx.session.end("now")
        return "left"

    async with open_server(server) as join, join(opened=False) as talk:
        error = await refusal(talk, "prompts/get", name="leave", _meta=meta())
        assert (error.code, "belongs to no session" in error.message) == (INTERNAL_ERROR, True)
