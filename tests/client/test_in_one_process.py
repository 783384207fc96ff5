"""A call inside one process: it takes a shortcut, and behaves as over any other transport."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from mcptrio import Client, ConnectionLost, Context, MCPError, RequestTimeout, Server, connect
from mcptrio._actors.runtime import Runtime
from mcptrio._peer.messages import Cause
from mcptrio.transports.memory.server import open_memory_link
from tests.client.kit import BOTH, make_server

pytestmark = pytest.mark.parametrize("date", BOTH)


@asynccontextmanager
async def shop(date: str, **options: Any) -> AsyncIterator[tuple[Client, list[str]]]:
    server = make_server()
    async with connect(server, protocol=date, **options) as client:
        yield client, server.calls  # type: ignore[attr-defined]  # for tests to look into


async def add(client: Client, a: int = 1, b: int = 2) -> int:
    return await client.call_tool("count", {"a": a, "b": b}, into=int)


async def test_a_call_is_a_checkpoint_although_its_handler_never_waits(date: str) -> None:
    async with shop(date) as (client, _):
        for _ in range(3):
            with assert_checkpoints():
                assert await add(client) == 3
            with assert_checkpoints():
                assert len(await client.list_tools()) > 3


async def test_every_method_of_a_client_is_a_checkpoint(date: str) -> None:
    async with shop(date, roots=["file:///a"]) as (client, _):
        for _ in range(3):
            with assert_checkpoints():
                await client.ping()
            with assert_checkpoints():
                await client.notify("notifications/x")
            with assert_checkpoints():
                await client.set_roots(["file:///b"])
            with assert_checkpoints():
                await client.set_log_level("error")
            with assert_checkpoints():
                await client.read_resource("shop://hours")
            with assert_checkpoints():
                await client.get_prompt("complaint", {"order_id": "1"})
            with assert_checkpoints():
                await client.complete("complaint", "order_id", "1")
        with assert_checkpoints():
            await client.aclose()


async def test_others_have_their_turn_while_calls_follow_each_other(date: str) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with shop(date) as (client, _), trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        for _ in range(50):
            await add(client)
        nursery.cancel_scope.cancel()
    assert turns >= 50


async def test_a_caller_that_is_cancelled_already_gets_no_answer(date: str) -> None:
    async with shop(date) as (client, _):
        with trio.CancelScope() as scope:
            scope.cancel()
            await add(client)
            pytest.fail("a cancelled call went on")
        assert scope.cancelled_caught
        assert await add(client) == 3


async def test_a_cancelled_caller_does_not_wait_for_the_cleanup_of_its_handler(
    date: str, autojump_clock: MockClock
) -> None:
    server, left = Server("slow"), trio.Event()

    @server.tool
    async def linger() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.5)
            left.set()

    async with connect(server, protocol=date) as client:
        began = trio.current_time()
        with trio.move_on_after(1):
            await client.call_tool("linger")
        assert trio.current_time() - began == pytest.approx(1, abs=0.01)
        assert not left.is_set()
        await left.wait()


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({"timeout": 5}, 5),
        ({"total_timeout": 7}, 7),
        ({"timeout": inf, "total_timeout": 7}, 7),
        ({"timeout": 9, "total_timeout": 7}, 7),
        ({"timeout": None, "total_timeout": 0}, 0),
        ({}, 4),
    ],
)
async def test_a_handler_that_waits_too_long_is_given_up_and_cancelled(
    date: str, limits: dict[str, Any], seconds: float, autojump_clock: MockClock
) -> None:
    async with shop(date, total_timeout=4) as (client, calls):
        began = trio.current_time()
        with pytest.raises(RequestTimeout, match=f"tools/call was not answered within {seconds} s"):
            await client.call_tool("wait", {"seconds": 100}, **limits)
        assert trio.current_time() - began == pytest.approx(seconds, abs=0.01)
        await wait_all_tasks_blocked()
        assert calls == ["wait", "cancelled"]
        assert await add(client) == 3


async def test_a_thousand_callers_that_give_up_leave_nothing_behind(date: str, autojump_clock: MockClock) -> None:
    async def give_up(number: int) -> None:
        how: Any = {"on_progress": lambda progress: None} if number % 5 == 0 else {}
        with trio.move_on_after(number % 3):
            if number % 2:
                await client.call_tool("wait", {"seconds": 10}, **how)
            else:
                await client.call_tool("count", {"a": number, "b": 1}, **how)

    async with shop(date) as (client, calls):
        for _ in range(10):
            async with trio.open_nursery() as nursery:
                for number in range(100):
                    nursery.start_soon(give_up, number)
        await wait_all_tasks_blocked()
        connection = client._connector.ready
        assert connection is not None
        assert client._service.timeouts._waiting == client._service.timeouts._still == set()
        assert list(connection.session.peer.ledger.asks()) == []
        assert connection.session.inbox.backlog == 0
        assert calls.count("wait") == calls.count("cancelled") > 100
        assert await add(client) == 3


async def test_each_call_has_a_time_of_its_own(date: str, autojump_clock: MockClock) -> None:
    late: list[float] = []

    async def wait(client: Client, timeout: float) -> None:
        with pytest.raises(RequestTimeout):
            await client.call_tool("wait", {"seconds": 50}, timeout=timeout)
        late.append(timeout)
        assert trio.current_time() - began == pytest.approx(timeout, abs=0.01)

    async with shop(date) as (client, _), trio.open_nursery() as nursery:
        began = trio.current_time()
        for timeout in (20, 3, 10, 1):  # those that come later may be late earlier
            nursery.start_soon(wait, client, timeout)
            await wait_all_tasks_blocked()
    assert late == [1, 3, 10, 20]


async def test_the_server_may_ask_back_in_the_middle_of_a_call(date: str, autojump_clock: MockClock) -> None:
    async def sample(_: Any) -> str:
        assert await add(client) == 3  # the host may use the client meanwhile
        return "well"

    async def elicit(_: Any) -> dict[str, Any]:
        await trio.sleep(10)
        return {"size": "l", "count": 2}

    roots = ["file:///here"]
    async with shop(date, sample=sample, elicit=elicit, roots=roots, timeout=5) as (client, _):
        assert await client.call_tool("think", into=str) == "well"
        assert "accept" in await client.call_tool("shirt", into=str)
        assert await client.call_tool("places", into=str) == "file:///here"


async def test_many_calls_at_once_get_their_own_answers(date: str, autojump_clock: MockClock) -> None:
    answers: dict[int, int] = {}
    waited = 0

    async def call(client: Client, number: int) -> None:
        answers[number] = await add(client, number, number)

    async def wait(client: Client) -> None:
        nonlocal waited
        await client.call_tool("wait", {"seconds": 1})
        waited += 1

    async with shop(date) as (client, _), trio.open_nursery() as nursery:
        for number in range(200):  # more than either direction holds
            nursery.start_soon(call, client, number)
            if number % 10 == 0:
                nursery.start_soon(wait, client)
    assert answers == {number: 2 * number for number in range(200)}
    assert waited == 20


async def test_a_response_does_not_overtake_earlier_notifications(date: str) -> None:
    server, received = Server("teller"), []

    @server.tool
    async def tell(ctx: Context, times: int) -> str:
        for step in range(times):
            await ctx.progress(step + 1, times)
        return "told"

    async with connect(server, protocol=date) as client:
        for times in (1, 3, 40):
            received.clear()
            await client.call_tool("tell", {"times": times}, on_progress=lambda one: received.append(one.progress))
            assert received == [step + 1 for step in range(times)]


async def test_large_arguments_and_results_arrive_whole(date: str) -> None:
    server = Server("echo")

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with connect(server, protocol=date) as client:
        for size in (10, 100_000, 3_000_000):  # the last one is more than a direction holds
            assert len(await client.call_tool("echo", {"text": "é" * size}, into=str)) == size


async def test_an_error_of_the_server_is_raised(date: str) -> None:
    async with shop(date) as (client, _):
        for _ in range(2):
            with pytest.raises(MCPError, match="unknown tool"):
                await client.call_tool("no such tool")
        assert await add(client) == 3


async def test_arguments_that_have_no_json_form_are_the_callers_fault(date: str) -> None:
    async with shop(date) as (client, _):
        with pytest.raises(TypeError):
            await client.call_tool("count", {"a": object(), "b": 1})
        with pytest.raises(ValueError, match="NaN"):
            await client.call_tool("count", {"a": float("nan"), "b": 1})
        assert await add(client) == 3


async def end_session(runtime: Runtime) -> None:
    for session in runtime.supervisor:
        session.close_nowait(Cause.SESSION_END)
    await trio.lowlevel.checkpoint()


async def drain(runtime: Runtime) -> None:
    await runtime.drain(0)


@pytest.mark.parametrize(
    ("end", "error", "text"), [(end_session, ConnectionLost, "closed"), (drain, MCPError, "shutting")]
)
async def test_a_call_in_the_middle_of_which_the_session_ends_fails(
    date: str, end: Any, error: type[Exception], text: str, autojump_clock: MockClock
) -> None:
    failed: list[str] = []

    async def call(client: Client) -> None:
        with pytest.raises(error, match=text):
            await client.call_tool("wait", {"seconds": 1000})
        failed.append("call")

    async with make_server()._app.make_runtime().open() as runtime:
        target: Any = SimpleNamespace(open_memory_link=partial(open_memory_link, runtime))
        async with connect(target, protocol=date) as client, trio.open_nursery() as nursery:
            nursery.start_soon(call, client)
            await wait_all_tasks_blocked()
            await end(runtime)
            await wait_all_tasks_blocked()
            assert failed == ["call"]


async def test_context_variables_of_the_caller_are_not_the_handlers(date: str) -> None:
    colour: ContextVar[str] = ContextVar("colour", default="none")
    server = Server("painter")

    @server.tool
    async def paint() -> str:
        seen = colour.get()
        colour.set("red")
        return seen

    async with connect(server, protocol=date) as client:
        colour.set("blue")
        for _ in range(2):
            assert await client.call_tool("paint", into=str) == "none"
        assert colour.get() == "blue"
