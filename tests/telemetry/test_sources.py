"""The sources of events: calls, questions, and a session whose inbox is full."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from mcptrio import Context, MCPError, Overloaded, Server, ToolError, connect, telemetry
from mcptrio._actors.limits import Limits
from mcptrio._wire.jsonrpc import Request
from mcptrio.types import CallToolResult, ElicitResult, TextContent
from tests.actors.kit import App, ListLink, open_runtime


async def test_a_full_inbox_is_reported_and_nothing_is_lost(autojump_clock: trio.testing.MockClock) -> None:
    app = App(limits=Limits(inbox=1))
    async with open_runtime(app) as runtime:
        link = ListLink()
        # Its loop has not begun: nothing is taken yet.
        session = runtime.new_session(link, transport="memory", reader=trio.sleep_forever)
        for number in range(5):
            await session.deliver(Request(number, "ping", {}), link)
        await session.wait_until_quiet()
        assert telemetry.LimitHit(name="inbox", session=session.id) in app.events
        assert [answer["id"] for answer in link.sent] == [0, 1, 2, 3, 4]


@dataclass
class Size:
    size: str


def make_server(events: list[Any]) -> Server:
    server = Server("shop", version="1")
    server.on_event(events.append)

    @server.tool
    async def fine() -> str:
        return "fine"

    @server.tool
    async def wrong() -> str:
        raise ToolError("wrong")

    @server.tool
    async def failed() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="failed")], is_error=True)

    @server.tool
    async def refused() -> str:
        raise MCPError(-32000, "refused")

    @server.tool
    async def busy() -> str:
        raise Overloaded("busy", retry_after=1)

    @server.tool(timeout=1)
    async def late() -> str:
        await trio.sleep_forever()
        return "late"

    @server.tool(serial=True)
    async def serial() -> str:
        await trio.sleep(2)
        return "done"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which size?", Size)
        await trio.sleep(1)
        return answer.value.size if answer.value else "none"

    @server.resource("orders://{order_id}")
    async def order(order_id: str) -> str:
        return order_id

    return server


def of(events: list[Any], kind: type[telemetry.Event]) -> list[Any]:
    return [event for event in events if type(event) is kind and event.name is not None]


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_the_end_of_a_call_names_the_tool_and_how_it_ended(
    protocol: str, autojump_clock: trio.testing.MockClock
) -> None:
    events: list[Any] = []
    async with connect(make_server(events), protocol=protocol) as client:
        for name in ("fine", "wrong", "failed", "refused", "busy", "late", "unknown"):
            with suppress(MCPError, Overloaded):
                await client.call_tool(name)
        with trio.move_on_after(0.5):
            await client.call_tool("serial")
        await trio.testing.wait_all_tasks_blocked()
        await client.read_resource("orders://7")
        await trio.testing.wait_all_tasks_blocked()
    ended = of(events, telemetry.CallEnded)
    assert [(event.name, event.entry, event.outcome) for event in ended] == [
        ("fine", "fine", "ok"),
        ("wrong", "wrong", "tool_error"),
        ("failed", "failed", "tool_error"),
        ("refused", "refused", "error"),
        ("busy", "busy", "overloaded"),
        ("late", "late", "timeout"),
        ("unknown", None, "error"),
        ("serial", "serial", "cancelled"),
        ("orders://7", "orders://{order_id}", "ok"),
    ]
    assert ended[3].message == "refused"
    assert ended[7].cause == "client"
    started = of(events, telemetry.CallStarted)
    assert [event.call for event in started] == [event.call for event in ended]
    assert len({event.call for event in ended}) == len(ended), "a number of its own for each call"
    assert {event.protocol for event in started} == {protocol}


async def test_waiting_for_a_place_and_for_the_user_are_separate_figures(
    autojump_clock: trio.testing.MockClock,
) -> None:
    events: list[Any] = []

    async def elicit(params: Any) -> ElicitResult:
        await trio.sleep(30)
        return ElicitResult(action="accept", content={"size": "L"})

    async with connect(make_server(events), elicit=elicit) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "serial")
            nursery.start_soon(client.call_tool, "serial")
        await client.call_tool("ask")
    first, second, asked = of(events, telemetry.CallEnded)
    assert (first.queued, second.queued) == (0, pytest.approx(2))
    assert second.seconds == pytest.approx(4)
    assert asked.asking == pytest.approx(30, abs=0.1)
    assert asked.seconds == pytest.approx(31, abs=0.1)


async def test_a_parked_call_says_that_it_waits_and_that_it_continues(autojump_clock: trio.testing.MockClock) -> None:
    events: list[Any] = []

    async def elicit(params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"size": "L"})

    async with connect(make_server(events), protocol="2026-07-28", elicit=elicit) as client:
        assert (await client.call_tool("ask")).text == "L"
    kinds = (telemetry.CallStarted, telemetry.CallParked, telemetry.CallResumed, telemetry.CallEnded)
    received = [event for event in events if type(event) in kinds and event.name == "ask"]
    assert [type(event) for event in received] == list(kinds)
    assert len({event.call for event in received}) == 1
    assert received[2].request_id != received[0].request_id


async def test_a_client_says_what_it_requests_and_listeners_may_add_to_meta() -> None:
    events: list[Any] = []
    seen: list[Any] = []

    def add(event: Any) -> None:
        if isinstance(event, telemetry.AskSent):
            event.meta["com.example/trace"] = event.name
        events.append(event)

    async with connect(make_server(seen), on_event=add) as client:
        await client.call_tool("wrong")
    (sent,) = [event for event in events if isinstance(event, telemetry.AskSent) and event.name == "wrong"]
    (ended,) = [event for event in events if isinstance(event, telemetry.AskEnded) and event.ask == sent.ask]
    assert (sent.method, ended.outcome) == ("tools/call", "tool_error")
    (started,) = of(seen, telemetry.CallStarted)
    assert started.meta["com.example/trace"] == "wrong"
