"""`ctx.once`: a claim comes before the function, a record after it, and a claim without a record runs nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mcptrio import Context, OnceInterrupted, RequestTimeout, Server
from mcptrio.stores.memory import MemoryStore
from mcptrio.stores.sqlite import SqliteStore
from tests.server.talk import talking

from .kit import Poster, Trail, accept, posting

KEY = "00" * 32


@dataclass
class Size:
    size: str


def serving(run: Callable[[Context], Awaitable[str]]) -> Server:
    server = Server("once", state_keys=[KEY])
    server.add_tool(run, name="run", replay=True)
    return server


@asynccontextmanager
async def two_processes(
    run: Callable[[Context], Awaitable[str]], *, shared: bool = True
) -> AsyncIterator[tuple[Poster, Poster]]:
    """Open two runtimes, which use the same marks if they are `shared`."""
    first, second = MemoryStore(), MemoryStore()
    if shared:
        second.marks = first.marks
    async with posting(serving(run), store=first) as here, posting(serving(run), store=second) as elsewhere:
        yield here, elsewhere


async def test_a_copy_that_stays_behind_does_not_run_the_function_again(autojump_clock: MockClock) -> None:
    trail = Trail()

    async def run(ctx: Context) -> str:
        try:
            await ctx.elicit("Which size?", Size, key="size", timeout=60)
        except RequestTimeout:
            trail("timed out")
        return str(await ctx.once("pay", trail, "paid"))

    async with two_processes(run) as (here, elsewhere):
        asked = await here.call("run")
        assert (await elsewhere.retry(asked, "run", size=accept(size="S"))).text == "paid"
        await trio.sleep(100)
    assert trail.done == ["paid", "timed out"]


async def test_the_second_of_two_processes_waits_for_the_result_of_the_first(autojump_clock: MockClock) -> None:
    trail = Trail()

    async def pay() -> str:
        trail("paying")
        await trio.sleep(3)
        return trail("paid")

    async def run(ctx: Context) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.once, "pay", pay)
            await ctx.elicit("Which size?", Size, key="size")
        return str(await ctx.once("pay", pay))

    async with two_processes(run) as (here, elsewhere):
        asked = await here.call("run")
        assert (await elsewhere.retry(asked, "run", size=accept(size="S"))).text == "paid"
    assert trail.done == ["paying", "paid"]


async def test_a_state_that_was_sent_during_the_run_does_not_run_it_again_without_a_shared_store(
    autojump_clock: MockClock,
) -> None:
    trail = Trail()

    async def pay() -> str:
        trail("paying")
        await trio.sleep(3)
        return trail("paid")

    async def run(ctx: Context) -> str:
        said: list[str] = []

        async def start() -> None:
            try:
                said.append(await ctx.once("pay", pay))
            except OnceInterrupted as error:
                said.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            await ctx.elicit("Which size?", Size, key="size")
        return said[0]

    async with two_processes(run, shared=False) as (here, elsewhere):
        asked = await here.call("run")
        reply = await elsewhere.retry(asked, "run", size=accept(size="S"))
    assert "once('pay')" in reply.text
    assert "did not finish" in reply.text
    assert trail.done.count("paying") == 1


async def test_a_crash_between_the_claim_and_the_record_is_an_error_that_says_so(tmp_path: Path) -> None:
    trail = Trail()
    crash = trio.Event()

    async def pay() -> str:
        trail("paying")
        crash.set()
        return await trio.sleep_forever()

    async def run(ctx: Context) -> str:
        await ctx.elicit("Which size?", Size, key="size")
        return str(await ctx.once("pay", pay))

    async def retry_until_the_crash(poster: Poster) -> None:
        await poster.retry(asked, "run", size=accept(size="S"))

    with trio.CancelScope() as process:
        async with posting(serving(run), store=SqliteStore(tmp_path / "store.db")) as here:
            asked = await here.call("run")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(retry_until_the_crash, here)
                await crash.wait()
                process.cancel()
    async with posting(serving(run), store=SqliteStore(tmp_path / "store.db")) as elsewhere:
        with trio.fail_after(20):
            reply = await elsewhere.retry(asked, "run", size=accept(size="S"))
    assert reply.result["isError"]
    assert "once('pay')" in reply.text
    assert "may have taken effect" in reply.text
    assert trail.done == ["paying"]


@pytest.mark.parametrize("stateless", [True, False], ids=["stateless", "in a session"])
async def test_a_function_that_was_cancelled_is_not_run_again(stateless: bool, autojump_clock: MockClock) -> None:
    trail = Trail()

    async def pay() -> str:
        trail("paying")
        return await trio.sleep_forever()

    async def run(ctx: Context) -> str:
        with trio.move_on_after(1):
            await ctx.once("pay", pay)
        return str(await ctx.once("pay", pay))

    server = serving(run)
    if stateless:
        async with posting(server) as poster:
            text = (await poster.call("run")).text
    else:
        async with talking(server) as talk:
            text = await talk.fault("run")
    assert "may have taken effect" in text
    assert trail.done == ["paying"]


@pytest.mark.parametrize("stateless", [True, False], ids=["stateless", "in a session"])
async def test_a_function_that_raised_may_run_again(stateless: bool, autojump_clock: MockClock) -> None:
    trail = Trail()

    def pay() -> str:
        trail("tried")
        if len(trail.done) == 1:
            raise ConnectionError
        return "paid"

    async def run(ctx: Context) -> str:
        with pytest.raises(ConnectionError):
            await ctx.once("pay", pay)
        return str(await ctx.once("pay", pay))

    server = serving(run)
    if stateless:
        async with posting(server) as poster:
            assert (await poster.call("run")).text == "paid"
    else:
        async with talking(server) as talk:
            assert await talk.text("run") == "paid"
    assert trail.done == ["tried", "tried"]


async def test_a_function_whose_result_could_not_be_recorded_is_not_run_again(autojump_clock: MockClock) -> None:
    trail = Trail()

    def pay():  # type: ignore[no-untyped-def]  # without an annotation, so that it runs
        trail("paid")
        return object()

    async def run(ctx: Context) -> str:
        with pytest.raises(ValueError, match="has no JSON form"):
            await ctx.once("pay", pay)
        return str(await ctx.once("pay", pay))

    async with posting(serving(run)) as poster:
        assert "may have taken effect" in (await poster.call("run")).text
    assert trail.done == ["paid"]


async def test_a_run_that_is_cancelled_before_the_function_starts_leaves_no_claim(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    trail = Trail()
    store = MemoryStore()

    async def run(ctx: Context) -> str:
        with monkeypatch.context() as patch, trio.move_on_after(1):
            patch.setattr(store, "flush", trio.sleep_forever)
            await ctx.once("pay", trail, "paid too early")
        return str(await ctx.once("pay", trail, "paid"))

    async with posting(serving(run), store=store) as poster:
        assert (await poster.call("run")).text == "paid"
    assert trail.done == ["paid"]
