"""Places of a call: worker threads, `limit=` and `serial=True`. They are given back while the user is asked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import Context, Server, telemetry
from mcptrio._actors.limits import Limits
from tests.server.talk import Silence, open_server, refusal, talking
from tests.stateless.kit import Poster, accept, posting


@dataclass
class Name:
    name: str


def asking(**options: Any) -> Server:
    server = Server("places", limits=Limits(busy_timeout=0.2))

    @server.tool(**options)
    async def order(ctx: Context, who: str = "") -> str:
        answer = await ctx.elicit("Who?", Name, key="name")
        return f"{who}{answer.value.name if answer.value else '-'}"

    return server


# -- D27: limit= and serial=


@pytest.mark.defect("D27")
async def test_a_parked_call_holds_no_place_of_its_tool(autojump_clock: MockClock) -> None:
    async with posting(asking(limit=1)) as poster:
        first, second = await poster.call("order", {"who": "1"}), await poster.call("order", {"who": "2"})
        for asked, who in ((second, "2"), (first, "1")):
            reply = await poster.retry(asked, "order", {"who": who}, name=accept(name="Ada"))
            assert reply.text == f"{who}Ada"


@pytest.mark.defect("D27")
@pytest.mark.parametrize("options", [{"limit": 1}, {"serial": True}], ids=["limit", "serial"])
async def test_a_call_of_a_session_holds_no_place_while_the_user_is_asked(
    options: Any, autojump_clock: MockClock
) -> None:
    script: dict[str, Callable[[Any], Any]] = {"elicitation/create": lambda params: Silence()}
    async with talking(asking(**options), capabilities={"elicitation": {}}, script=script) as talk:
        for who in ("1", "2"):
            await talk.begin("tools/call", name="order", arguments={"who": who})
        await wait_all_tasks_blocked()
        assert len(talk.asked) == 2


@pytest.mark.defect("D27")
async def test_an_answered_call_takes_its_place_again(autojump_clock: MockClock) -> None:
    server = Server("places")
    at_work: list[int] = []

    @server.tool(limit=1)
    async def order(ctx: Context) -> str:
        await ctx.elicit("Who?", Name, key="name")
        at_work.append(1)
        assert len(at_work) == 1
        await trio.sleep(5)
        at_work.pop()
        return "done"

    async with posting(server) as poster:
        asked = [await poster.call("order") for _ in range(4)]
        received: list[str] = []

        async def retry(poster: Poster, asked: Any) -> None:
            received.append((await poster.retry(asked, "order", name=accept(name="A"))).text)

        async with trio.open_nursery() as nursery:
            for one in asked:
                nursery.start_soon(retry, Poster(poster.endpoint), one)
        assert received == ["done"] * 4


@pytest.mark.defect("D27")
async def test_a_handler_that_gives_up_asking_does_not_go_on_without_its_place(autojump_clock: MockClock) -> None:
    server = Server("places", limits=Limits(busy_timeout=0.2))
    worked: list[str] = []

    @server.tool(limit=1)
    async def impatient(ctx: Context, first: bool) -> str:
        if first:
            with trio.move_on_after(10):
                await ctx.elicit("Who?", Name, key="name")
        else:
            await trio.sleep(30)
        worked.append("first" if first else "second")
        return "done"

    async with posting(server) as poster:
        asked = await poster.call("impatient", {"first": True})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Poster(poster.endpoint).call, "impatient", {"first": False})
            await trio.sleep(11)
            reply = await poster.retry(asked, "impatient", {"first": True})
            assert "place" in reply.error["message"]
        assert worked == ["second"]


# -- S10: worker threads. Real time: threads do not follow the mock clock.


def plain(threads: int = 1, **limits: Any) -> tuple[Server, threading.Event, list[Any]]:
    server = Server("threads", threads=threads, limits=Limits(**{"busy_timeout": 0.2, **limits}))
    release, events = threading.Event(), []  # type: ignore[var-annotated]
    server.on_event(events.append)

    @server.tool
    def block() -> str:
        release.wait(20)
        return "released"

    @server.tool
    def quick() -> str:
        return threading.current_thread().name

    @server.tool
    def order(ctx: Context) -> str:
        answer = trio.from_thread.run(lambda: ctx.elicit("Who?", Name, key="name"))
        return f"for {answer.value.name if answer.value else '-'}"

    return server, release, events


@pytest.mark.defect("S10")
async def test_a_plain_function_that_finds_no_thread_is_answered_as_overloaded() -> None:
    server, release, events = plain()
    async with open_server(server) as join, join() as talk:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.text, "block")
            await wait_all_tasks_blocked()
            with trio.fail_after(30):
                refused = await refusal(talk, "tools/call", name="quick", arguments={})
            assert "every worker thread is busy" in refused.message
            assert refused.data == {"retryAfter": 1, "limit": "threads"}
            release.set()
        assert (await talk.text("quick")).startswith("tools/call quick")
    assert [event.name for event in events if isinstance(event, telemetry.LimitHit)] == ["threads"]


@pytest.mark.defect("S10")
async def test_one_client_cannot_hold_every_thread() -> None:
    server, release, _ = plain(threads=4, busy_timeout=60)
    async with posting(server) as greedy, trio.open_nursery() as nursery:
        greedy.client = ("192.0.2.1", 1)
        honest = Poster(greedy.endpoint, client=("192.0.2.2", 1))
        await honest.call("unknown")  # needs no thread, and still tells that there are two clients
        for _ in range(8):
            nursery.start_soon(greedy.call, "block")
        await wait_all_tasks_blocked()
        assert greedy.endpoint.runtime.threads.shares.used == 3
        with trio.fail_after(30):
            assert (await honest.call("quick")).text.startswith("tools/call quick")
        release.set()


@pytest.mark.defect("S10")
async def test_the_only_client_may_use_every_thread() -> None:
    server, release, _ = plain(threads=4)
    async with posting(server) as poster, trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(poster.call, "block")
        await wait_all_tasks_blocked()
        assert poster.endpoint.runtime.threads.shares.used == 4
        release.set()


@pytest.mark.defect("S10")
async def test_a_plain_function_that_asks_the_user_gives_its_thread_place_back() -> None:
    server, _, _ = plain()
    async with posting(server) as poster:
        first, second = await poster.call("order"), await poster.call("order")
        assert (await poster.call("quick")).text.startswith("tools/call quick")
        assert (await poster.retry(second, "order", name=accept(name="B"))).text == "for B"
        assert (await poster.retry(first, "order", name=accept(name="A"))).text == "for A"
        runtime = poster.endpoint.runtime
        assert runtime.threads.shares.used == 0


@pytest.mark.defect("S10")
async def test_one_client_cannot_leave_any_number_of_threads_that_wait_for_the_user() -> None:
    server, _, events = plain(threads=2)
    async with posting(server) as greedy:
        greedy.client = ("192.0.2.1", 1)
        honest = Poster(greedy.endpoint, client=("192.0.2.2", 1))
        runtime = greedy.endpoint.runtime
        runtime.parking._in_threads.size = 4
        mine = await honest.call("order")
        asked = [await greedy.call("order") for _ in range(10)]
        with trio.fail_after(30):
            while len(runtime.threads._running) > 4:
                await wait_all_tasks_blocked(0.01)
        assert len(runtime.parking) == 4
        assert [event.name for event in events if isinstance(event, telemetry.LimitHit)] == ["parked"] * 7
        assert (await honest.retry(mine, "order", name=accept(name="H"))).text == "for H"
        for question in asked[7:]:
            assert (await greedy.retry(question, "order", name=accept(name="G"))).text == "for G"
        assert "requestState" in (await greedy.retry(asked[6], "order", name=accept(name="G"))).error["message"]
        assert len(runtime.parking._in_threads) == 0


@pytest.mark.defect("S10")
async def test_an_abandoned_thread_is_counted_and_named_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    server, release, events = plain(threads=2, ignore_cancel=1.0)
    async with talking(server) as talk:
        (runtime,) = server._app.publisher.runtimes
        number = await talk.begin("tools/call", name="block", arguments={})
        await wait_all_tasks_blocked()
        await talk.notify("notifications/cancelled", requestId=number)
        await wait_all_tasks_blocked()
        runtime.threads.find_zombies(trio.current_time())
        assert runtime.threads.zombies == 0, "not at once"
        with caplog.at_level(logging.ERROR):
            runtime.threads.find_zombies(trio.current_time() + 2)
            runtime.threads.find_zombies(trio.current_time() + 3)
        assert runtime.threads.zombies == 1
        assert "tools/call block" in caplog.text
        assert [event.method for event in events if isinstance(event, telemetry.Zombie)] == ["tools/call"]
        assert runtime.threads.shares.used == 1
        release.set()
        with trio.fail_after(30):
            while runtime.threads.zombies or runtime.threads.shares.used:
                await wait_all_tasks_blocked(0.01)


@pytest.mark.defect("S10")
async def test_a_thread_that_was_abandoned_in_one_runtime_is_not_missing_in_the_next() -> None:
    server, release, _ = plain()
    async with talking(server) as talk:
        await talk.begin("tools/call", name="block", arguments={})
        await wait_all_tasks_blocked()
    async with talking(server) as talk:
        assert (await talk.text("quick")).startswith("tools/call quick")
    release.set()
