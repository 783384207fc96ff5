"""Functions with `runs="asyncio"`, on a loop in a thread and on the loop that Trio is a guest of."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from mcptrio import Context, DeclarationError, Message, Server, ToolError, connect, user
from mcptrio._bridge.guest import open_guest
from mcptrio._bridge.to_trio import TrioCall

ERAS = ("2025-11-25", "2026-07-28")
number: contextvars.ContextVar[int] = contextvars.ContextVar("number", default=0)


def in_thread(main: Callable[[], Awaitable[None]]) -> None:
    """Trio alone: the loop is in a thread of the runtime."""
    trio.run(main)
    assert not [thread for thread in threading.enumerate() if thread.name == "mcptrio asyncio"]


def as_guest(main: Callable[[], Awaitable[None]]) -> None:
    """Trio inside asyncio: the loop is the host's."""

    async def host() -> None:
        async with open_guest() as guest:
            await TrioCall(guest.way, guest.nursery, main).wait()

    asyncio.run(host())


either = pytest.mark.parametrize("run", [in_thread, as_guest])
each_era = pytest.mark.parametrize("era", ERAS)


@dataclass
class Size:
    size: int


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that happens in asyncio, in real time."""
    with trio.fail_after(30):
        while not condition():
            await trio.sleep(0.001)


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@either
@each_era
def test_a_tool_awaits_asyncio_and_asks_the_user_in_the_middle(run: Any, era: str) -> None:
    server = Server("shop")
    steps: list[float] = []

    @server.tool(runs="asyncio")
    async def order(item: str, ctx: Context) -> str:
        await asyncio.sleep(0.001)
        await ctx.progress(1, 2)
        answer = await ctx.elicit("Which size?", Size)
        await asyncio.sleep(0.001)
        await ctx.report_progress(2, 2)
        return f"{item} {answer.value.size if answer.value else None}"

    async def main() -> None:
        async with connect(server, protocol=era, elicit=lambda params: {"size": 7}) as client:
            result = await client.call_tool("order", {"item": "hat"}, on_progress=lambda p: steps.append(p.progress))
            assert text_of(result) == "hat 7"
            result = await client.call_tool("order", {"item": "coat"})
            assert text_of(result) == "coat 7"

    run(main)
    assert steps in ([1, 2], [1])  # from 2026-07-28 on the second one may belong to a repeated request


@either
def test_everything_of_the_context_works_in_asyncio(run: Any) -> None:
    server = Server("shop")
    done = threading.Event()
    logged: list[Any] = []

    async def pay(amount: int) -> int:
        await asyncio.sleep(0)
        return amount * 2

    async def later() -> None:
        await asyncio.sleep(0.001)
        done.set()

    @server.tool(runs="asyncio")
    async def work(ctx: Context) -> list[str]:
        asyncio.get_running_loop()
        await ctx.info("hello")
        sampled = await ctx.sample("say hi")
        roots = await ctx.list_roots()
        paid = await ctx.once("pay", pay, 2)
        ctx.data["seen"] = True
        ctx.session.start_soon(later)
        while not done.is_set():
            await asyncio.sleep(0.001)
        ctx.close_stream()
        return [sampled.text, roots[0].uri, str(paid), str(ctx.data), ctx.session.transport]

    @server.use
    async def middleware(ctx: Context, request: Any, call_next: Any) -> Any:
        ctx.data["before"] = 1
        result = await call_next(ctx, request)
        if request.method == "tools/call":
            assert ctx.data["seen"]
        return result

    async def main() -> None:
        options: Any = {"sample": lambda params: "hi", "roots": ["file:///tmp"], "log": logged.append}
        async with connect(server, protocol="2025-11-25", **options) as client:
            result = await client.call_tool("work", into=list[str])
            assert result == ["hi", "file:///tmp", "4", "{'before': 1, 'seen': True}", "memory"]

    run(main)
    assert logged


@either
def test_a_cancelled_call_cancels_the_asyncio_function_and_waits_for_it(run: Any) -> None:
    server = Server("shop")
    seen: list[str] = []

    @server.tool(runs="asyncio")
    async def wait(ctx: Context) -> str:
        seen.append("begun")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0.01)
            seen.append("cleaned up")
            raise
        return ""

    async def main() -> None:
        async with connect(server) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "wait")
                await until(lambda: seen)
                nursery.cancel_scope.cancel()
            await until(lambda: len(seen) == 3)

    run(main)
    assert seen == ["begun", "cancelled", "cleaned up"]


@either
def test_a_timeout_is_a_result_that_names_the_setting(run: Any) -> None:
    server = Server("shop")

    @server.tool(runs="asyncio", timeout=0.05)
    async def slow() -> str:
        await asyncio.sleep(60)
        return ""

    async def main() -> None:
        async with connect(server) as client:
            result = await client.call_tool("slow")
            assert result.is_error
            assert "timeout=" in text_of(result)

    run(main)


@either
def test_a_wait_of_asyncio_gives_up_a_question(run: Any) -> None:
    server = Server("shop")

    @server.tool(runs="asyncio")
    async def ask(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.05):
                await ctx.elicit("Which size?", Size)
        except TimeoutError:
            return "too late"
        return "answered"

    async def never(params: Any) -> Any:
        await trio.sleep_forever()

    async def main() -> None:
        async with connect(server, protocol="2025-11-25", elicit=never) as client:
            assert text_of(await client.call_tool("ask")) == "too late"

    run(main)


@either
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("no such order"), "no such order"),
        (ValueError("secret"), "The tool failed."),
        (StopIteration("secret"), "The tool failed."),
        (asyncio.CancelledError(), "The tool failed."),
    ],
)
def test_an_exception_becomes_what_that_of_a_trio_tool_would(run: Any, error: BaseException, text: str) -> None:
    server = Server("shop")

    @server.tool(runs="asyncio")
    async def fail(ctx: Context) -> str:
        await asyncio.sleep(0)
        raise error

    async def main() -> None:
        async with connect(server) as client:
            for _ in range(2):
                result = await client.call_tool("fail")
                assert result.is_error
                assert text in text_of(result)

    run(main)


@either
def test_an_exit_in_asyncio_is_contained(run: Any) -> None:
    server = Server("shop")

    @server.tool(runs="asyncio")
    async def leave() -> str:
        sys.exit(3)

    async def main() -> None:
        async with connect(server) as client:
            for _ in range(2):
                assert (await client.call_tool("leave")).is_error

    run(main)


@either
def test_context_variables_pass_in_both_directions(run: Any) -> None:
    server = Server("shop")
    seen: list[int] = []

    @server.use
    async def middleware(ctx: Context, request: Any, call_next: Any) -> Any:
        number.set(5)
        return await call_next(ctx, request)

    async def record() -> int:
        seen.append(number.get())
        return 0

    @server.tool(runs="asyncio")
    async def look(ctx: Context) -> int:
        seen.append(number.get())
        number.set(6)
        await ctx.once("record", record)
        return 0

    async def main() -> None:
        async with connect(server) as client:
            await client.call_tool("look")

    run(main)
    assert seen == [5, 6]


@either
def test_prompts_resources_and_completions_run_in_asyncio_too(run: Any) -> None:
    server = Server("shop")

    @server.prompt(runs="asyncio")
    async def complain(order: str) -> list[Message]:
        await asyncio.sleep(0)
        return [user(f"about {order}")]

    @complain.complete("order", runs="asyncio")
    async def orders(prefix: str) -> list[str]:
        await asyncio.sleep(0)
        return [prefix + "1"]

    @server.resource("orders://{order}", runs="asyncio")
    async def order(order: str) -> str:
        await asyncio.sleep(0)
        return f"order {order}"

    async def main() -> None:
        async with connect(server) as client:
            prompt = await client.get_prompt("complain", {"order": "7"})
            assert "about 7" in str(prompt)
            read = await client.read_resource("orders://7")
            assert "order 7" in str(read)

    run(main)


def test_the_thread_ends_with_the_runtime_and_starts_on_first_use_only() -> None:
    server = Server("shop")
    names: list[str] = []
    left: list[str] = []

    async def leak() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            left.append("ended")

    @server.tool(runs="asyncio")
    async def work() -> str:
        names.append(threading.current_thread().name)
        leaked.append(asyncio.ensure_future(leak()))
        await asyncio.sleep(0)
        return ""

    leaked: list[Any] = []

    @server.tool
    async def other() -> str:
        return " ".join(thread.name for thread in threading.enumerate())

    async def main() -> None:
        async with connect(server) as client:
            assert "mcptrio asyncio" not in text_of(await client.call_tool("other"))
            await client.call_tool("work")
            await client.call_tool("work")

    in_thread(main)
    assert names == ["mcptrio asyncio"] * 2
    assert left == ["ended"] * 2


@either
def test_calls_run_side_by_side(run: Any) -> None:
    server = Server("shop")

    @server.tool(runs="asyncio")
    async def work(ctx: Context) -> str:
        await asyncio.sleep(1)
        await ctx.progress(1)
        return ""

    async def main() -> None:
        began = time.monotonic()
        async with connect(server) as client, trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(client.call_tool, "work")
        assert time.monotonic() - began < 20, "one after the other they would take twenty seconds"

    run(main)


@pytest.mark.defect("U15")
@either
def test_asyncio_awaited_in_a_trio_tool_is_explained_in_the_log(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("shop")

    @server.tool
    async def wrong() -> str:
        await asyncio.sleep(0.1)
        return ""

    async def main() -> None:
        async with connect(server) as client:
            assert (await client.call_tool("wrong")).is_error

    with caplog.at_level(logging.ERROR):
        run(main)
    assert '@server.tool(runs="asyncio")' in caplog.text


def test_a_plain_function_runs_in_no_event_loop() -> None:
    server = Server("shop")
    with pytest.raises(DeclarationError, match="a plain one runs in a thread"):

        @server.tool(runs="asyncio")
        def plain() -> str:
            return ""

    with pytest.raises(DeclarationError, match="runs"):

        @server.tool(runs="curio")  # type: ignore[arg-type]
        async def odd() -> str:
            return ""
