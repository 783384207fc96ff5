"""Servers that break the protocol, lie, stall or vanish: every call ends with a typed error, in bounded time."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import (
    Client,
    ConnectionLost,
    MCPError,
    MCPTrioError,
    Reconnect,
    RemoteProtocolError,
    RequestTimeout,
    connect,
)
from mcptrio.cli.inspect import describe
from mcptrio.extensions.skills.loading import list_skills
from mcptrio.transports.pipe.client import PipeClientLink
from tests.client.kit import BOTH, STATEFUL, Wire, scripted

NEVER = Reconnect(tries=0)
OLD, NEW = BOTH


async def nothing(wire: Wire) -> None:
    while True:
        await wire.take()


async def test_a_server_that_says_nothing_is_given_up(autojump_clock: MockClock) -> None:
    with pytest.raises(RequestTimeout):
        async with connect(scripted(nothing), open_timeout=20):
            pass
    assert trio.current_time() < 60


async def test_a_server_that_hangs_up_at_once_is_reported(autojump_clock: MockClock) -> None:
    async def leave(wire: Wire) -> None:
        pass

    with pytest.raises(ConnectionLost):
        async with connect(scripted(leave)):
            pass


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
        {"protocolVersion": NEW, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
        {"protocolVersion": OLD, "capabilities": [], "serverInfo": {"name": "x", "version": "1"}},
        {"protocolVersion": OLD, "capabilities": {}, "serverInfo": "me"},
    ],
)
async def test_an_unusable_initialize_result_is_refused(result: dict[str, Any]) -> None:
    async def serve(wire: Wire) -> None:
        await wire.answer(await wire.take("initialize"), **result)
        await nothing(wire)

    with pytest.raises(RemoteProtocolError):
        async with connect(scripted(serve), protocol=STATEFUL):
            pass


async def test_a_slow_server_is_not_taken_for_an_old_one(autojump_clock: MockClock) -> None:
    """A modern server that takes long to start gets both introductions at once, and refuses the older one."""

    async def serve(wire: Wire) -> None:
        await trio.sleep(8)
        discover = await wire.take("server/discover")
        initialize = await wire.take("initialize")
        await wire.answer(
            discover, resultType="complete", supportedVersions=[NEW], capabilities={}, ttlMs=0, cacheScope="private"
        )
        await wire.refuse(initialize, -32601)
        await nothing(wire)

    async with connect(scripted(serve)) as client:
        assert client.protocol_version == NEW


async def test_a_server_that_ignores_discover_is_tried_with_initialize(autojump_clock: MockClock) -> None:
    async def serve(wire: Wire) -> None:
        request = await wire.take("initialize")
        await wire.answer(
            request, protocolVersion=OLD, capabilities={}, serverInfo={"name": "x", "version": "1"}
        )  # fmt: skip
        await nothing(wire)

    async with connect(scripted(serve)) as client:
        assert client.protocol_version == OLD


async def test_a_refused_version_is_tried_again_with_one_that_is_offered() -> None:
    async def serve(wire: Wire) -> None:
        await wire.refuse(await wire.take(), -32022, data={"supported": [NEW], "requested": "x"})
        await wire.open_stateless()
        await wire.refuse(await wire.take(), -32022, data={"supported": [NEW], "requested": "x"})
        await wire.answer(await wire.take(), resultType="complete", tools=[])

    async with connect(scripted(serve)) as client:
        assert await client.list_tools() == ()


@pytest.mark.parametrize("supported", [["1999-01-01"], [], None, "all"])
async def test_a_server_without_a_common_version_is_an_error(supported: Any) -> None:
    async def serve(wire: Wire) -> None:
        while True:
            await wire.refuse(await wire.take(), -32022, data={"supported": supported})

    with pytest.raises((RemoteProtocolError, MCPError)):
        async with connect(scripted(serve)):
            pass


@pytest.mark.parametrize("date", BOTH)
async def test_killing_the_link_ends_every_call_that_waits(date: str, autojump_clock: MockClock) -> None:
    async def serve(wire: Wire) -> None:
        await (wire.open_stateful() if date == OLD else wire.open_stateless())
        for _ in range(5):
            await wire.take("tools/call")

    ended: list[float] = []
    async with connect(scripted(serve), protocol=date, reconnect=NEVER) as client, trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(ConnectionLost):
                await client.call_tool("t")
            ended.append(trio.current_time())

        for _ in range(5):
            nursery.start_soon(call)
    assert len(ended) == 5
    assert max(ended) < 0.1


async def test_banner_lines_are_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def serve(wire: Wire) -> None:
        await wire.raw(b"Welcome to my server!")
        await wire.raw(b"[1, 2")
        await wire.open_stateful()
        await wire.raw(b"\xff\xfe")
        await wire.answer(await wire.take("tools/list"), tools=[])

    with caplog.at_level(logging.WARNING):
        async with connect(scripted(serve), protocol=OLD) as client:
            assert await client.list_tools() == ()
    assert "Welcome to my server!" in caplog.text


async def test_responses_to_unknown_requests_and_second_responses_are_ignored() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        request = await wire.take("tools/list")
        await wire.say(id=999, result={"tools": []})
        await wire.say(id="1", result={"tools": []})
        await wire.answer(request, tools=[{"name": "first", "inputSchema": {"type": "object"}}])
        await wire.answer(request, tools=[])
        await wire.say(method="notifications/unheard_of", params={})
        await nothing(wire)

    async with connect(scripted(serve), protocol=OLD) as client:
        assert [tool.name for tool in await client.list_tools()] == ["first"]


@pytest.mark.parametrize("result", [[], 7, None, "text", {"tools": "many"}, {"tools": [{"name": 1}]}, {}])
async def test_a_result_of_another_shape_is_the_servers_fault(result: Any) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        request = await wire.take("tools/list")
        await wire.say(id=request["id"], result=result)
        await nothing(wire)

    async with connect(scripted(serve), protocol=OLD) as client:
        with pytest.raises(RemoteProtocolError):
            await client.list_tools()


async def test_a_malformed_answer_ends_the_call_that_it_is_for() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        request = await wire.take("tools/list")
        await wire.raw(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": "bad"}).encode())
        await nothing(wire)

    async with connect(scripted(serve), protocol=OLD) as client:
        with pytest.raises(RemoteProtocolError):
            await client.list_tools()


async def test_a_list_whose_pages_never_end_is_cut_off() -> None:
    async def same(wire: Wire) -> None:
        await wire.open_stateful()
        while True:
            await wire.answer(await wire.take("tools/list"), tools=[], nextCursor="more")

    async def fresh(wire: Wire) -> None:
        await wire.open_stateful()
        while True:
            await wire.answer(await wire.take("tools/list"), tools=[], nextCursor=f"more {len(wire.received)}")

    for script in (same, fresh):
        async with connect(scripted(script), protocol=OLD, max_pages=20) as client:
            with pytest.raises(RemoteProtocolError):
                await client.list_tools()


@pytest.mark.parametrize(
    ("listing", "method", "items"), [(describe, "tools/list", "tools"), (list_skills, "skills/list", "skills")]
)
async def test_commands_and_extensions_notice_a_list_that_repeats_itself(
    listing: Callable[[Client], Awaitable[Any]], method: str, items: str
) -> None:
    async def same(wire: Wire) -> None:
        await wire.open_stateful()
        while True:
            await wire.answer(await wire.take(method), **{items: []}, nextCursor="more")

    async with connect(scripted(same), protocol=OLD) as client:
        with pytest.raises(RemoteProtocolError, match=f"{method} returned the same cursor twice"):
            await listing(client)


async def test_a_stateless_server_that_sends_a_request_is_hung_up_on(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """2026-07-28 basic/patterns: servers MUST NOT initiate requests, and clients do not send responses."""

    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        request = await wire.take()
        if len(server.wires) == 1:
            await wire.take()
            await wire.say(id=1, method="roots/list", params={})
        else:
            await wire.answer(request, resultType="complete", tools=[])
        await nothing(wire)

    server = scripted(serve)
    failures: list[str] = []
    async with connect(server, protocol=NEW, roots=["file:///secret"]) as client:

        async def fail(ask: Any) -> None:
            with pytest.raises(RemoteProtocolError) as caught:
                await ask()
            failures.append(caught.value.message)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, client.list_tools)
            nursery.start_soon(fail, client.list_prompts)
        assert await client.list_tools() == (), "on a new connection"
    text = "the server sent a request (roots/list), which its protocol version forbids"
    assert sorted(failures) == [f"prompts/list: {text}", f"tools/list: {text}"]
    assert all("method" in message for message in server.wires[0].received), "it was not answered"
    assert text in caplog.text


async def test_a_request_that_was_not_offered_is_refused_by_the_client() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        request = await wire.take("tools/list")
        await wire.say(id="s1", method="sampling/createMessage", params={})
        refused = await wire.take()
        assert refused["error"]["code"] == -32601
        await wire.say(id="s2", method="ping")
        assert (await wire.take())["result"] == {}
        await wire.answer(request, tools=[])

    async with connect(scripted(serve), protocol=OLD) as client:
        assert await client.list_tools() == ()


@pytest.mark.parametrize(
    ("structured", "good"),
    [({"n": 1}, True), ({"n": "x"}, False), (None, False), ([1], False)],
)
async def test_structured_results_are_held_against_what_the_tool_promised(structured: Any, good: bool) -> None:
    promise = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        tool = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": promise}
        await wire.answer(await wire.take("tools/list"), tools=[tool])
        result = {"content": []} | ({} if structured is None else {"structuredContent": structured})
        await wire.answer(await wire.take("tools/call"), **result)
        await nothing(wire)

    async with connect(scripted(serve), protocol=OLD) as client:
        await client.list_tools()
        if good:
            assert (await client.call_tool("t")).structured_content == structured
        else:
            with pytest.raises(RemoteProtocolError):
                await client.call_tool("t")


async def test_an_output_schema_that_leads_out_of_itself_is_never_followed() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        tool = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": {"$ref": "http://127.0.0.1:9/x.json"}}
        await wire.answer(await wire.take("tools/list"), tools=[tool])
        await wire.answer(await wire.take("tools/call"), content=[], structuredContent={})
        await nothing(wire)

    async with connect(scripted(serve), protocol=OLD) as client:
        await client.list_tools()
        with pytest.raises(RemoteProtocolError, match="cannot be used"):
            await client.call_tool("t")


async def test_a_flood_of_notifications_costs_bounded_memory_and_no_call(autojump_clock: MockClock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        request = await wire.take("tools/list")
        for number in range(3000):
            await wire.say(method="notifications/message", params={"level": "info", "data": number})
        await wire.answer(request, tools=[])
        await nothing(wire)

    async def slow(_: Any) -> None:
        await trio.sleep(1)

    async with connect(scripted(serve), protocol=OLD, log=slow) as client:
        assert await client.list_tools() == ()
        assert client._service.callbacks.dropped > 1000


async def test_a_callback_that_fails_is_logged_and_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        await wire.say(method="notifications/message", params={"level": "info", "data": 1})
        await wire.say(method="notifications/message", params={"level": "nonsense"})
        await wire.answer(await wire.take("tools/list"), tools=[])
        await nothing(wire)

    def log(_: Any) -> None:
        raise RuntimeError("broken callback")

    async with connect(scripted(serve), protocol=OLD, log=log) as client:
        assert await client.list_tools() == ()
        await trio.testing.wait_all_tasks_blocked()
    assert "broken callback" in caplog.text


async def test_a_cancel_is_sent_for_what_is_given_up_but_never_for_the_handshake(autojump_clock: MockClock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        request = await wire.take("tools/call")
        cancelled = await wire.take()
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == request["id"]
        await wire.answer(request, content=[])  # too late: ignored
        await nothing(wire)

    async with connect(scripted(serve), protocol=OLD) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=1)
        await trio.testing.wait_all_tasks_blocked()

    server = scripted(nothing)
    with pytest.raises(MCPTrioError):
        async with connect(server, protocol=OLD, open_timeout=1):
            pass
    assert [message["method"] for message in server.wires[0].received] == ["initialize"]


async def test_a_server_that_does_not_read_makes_its_callers_wait_and_nothing_gathers(
    autojump_clock: MockClock,
) -> None:
    reads = trio.Event()

    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        await reads.wait()
        while True:
            message = await wire.take()
            if message["method"] == "tools/call":
                await wire.answer(message, content=[])

    async def give_up_soon() -> None:
        with trio.move_on_after(1):
            await client.call_tool("t", {"text": "x" * 1000})

    async with connect(scripted(serve), protocol=OLD) as client:
        connection = client._connector.ready
        assert connection is not None
        link = connection._link
        assert isinstance(link, PipeClientLink)
        for _ in range(20):
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(give_up_soon)
        assert len(link.outbox._items) < 2 * link.outbox.max_items  # the accepted messages, and their cancellations
        began = trio.current_time()
        with pytest.raises(RequestTimeout, match="tools/call was not answered within 7 s"):
            await client.call_tool("t", timeout=7)
        with pytest.raises(RequestTimeout, match="tools/list was not answered within 3 s"):
            await client.request("tools/list", total_timeout=3)
        assert trio.current_time() - began == 10
        with pytest.raises(RequestTimeout, match="notifications/x could not be sent within 60 s"):
            await client.notify("notifications/x")
        async with trio.open_nursery() as nursery:
            for _ in range(500):
                nursery.start_soon(client.call_tool, "t")
            await trio.testing.wait_all_tasks_blocked()
            reads.set()
        assert client._service.timeouts._waiting == set()


async def test_a_server_that_asks_and_does_not_read_is_hung_up_on(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcptrio.transports.pipe.client._MOST_UNSENT", 100_000)
    asked = 0

    async def serve(wire: Wire) -> None:
        nonlocal asked
        await wire.open_stateful()
        await wire.take("tools/call")
        while True:
            await wire.say(id=asked, method="ping")
            asked += 1

    async with connect(scripted(serve), protocol=OLD, reconnect=NEVER) as client:
        with pytest.raises(ConnectionLost, match="the server does not read"):
            await client.call_tool("t")
    assert 500 < asked < 2000


async def test_a_server_that_asks_more_than_the_host_can_answer_is_refused(autojump_clock: MockClock) -> None:
    errors: list[dict[str, Any]] = []
    params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}

    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        for number in range(3000):
            await wire.say(id=number, method="elicitation/create", params=params)
            with suppress(trio.WouldBlock):
                errors.append(json.loads(wire.incoming.receive_nowait())["error"])
        await trio.sleep_forever()

    async def think(asked: Any) -> dict[str, Any]:
        await trio.sleep(100)
        return {}

    async with connect(scripted(serve), protocol=OLD, elicit=think) as client:
        await trio.sleep(50)
        connection = client._connector.ready
        assert connection is not None
        assert connection.session.peer.calls == 1032  # those that are answered, and those that wait
        assert len(errors) > 1800
        assert errors[0]["message"] == "overloaded: too many requests are waiting"


async def test_a_caller_that_waits_for_room_learns_that_the_client_was_closed(autojump_clock: MockClock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        await trio.sleep_forever()

    async def call() -> None:
        with pytest.raises(ConnectionLost, match="the client was closed"):
            await client.call_tool("t")

    async with connect(scripted(serve), protocol=OLD) as client, trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        await client.aclose()


@pytest.mark.parametrize(("seconds", "shield"), [(2, True), (float("inf"), False)])
async def test_closing_a_client_while_it_opens_leaves_it_closed(
    seconds: float, shield: bool, autojump_clock: MockClock
) -> None:
    class Slow:
        @asynccontextmanager
        async def open_memory_link(self) -> AsyncIterator[Any]:
            with trio.CancelScope(shield=shield):
                await trio.sleep(seconds)
            async with scripted(Wire.open_stateful).open_memory_link() as end:
                yield end

    client = connect(Slow(), protocol=OLD)

    async def use() -> None:
        with pytest.raises(ConnectionLost, match="the client was closed"):
            async with client:
                pytest.fail("a closed client was opened")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        await trio.sleep(1)
        await client.aclose()
    assert trio.current_time() < 3


def bomb(length: int) -> dict[str, Any]:
    """A chain of definitions that each refer to the next one twice."""
    twice = [{"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(length)]
    defs = {f"d{n}": schema for n, schema in enumerate(twice)}
    return {"type": "object", "$ref": "#/$defs/d0", "$defs": {**defs, f"d{length}": {"type": "string"}}}


@pytest.mark.defect("S3")
@pytest.mark.parametrize("date", BOTH)
async def test_an_output_schema_that_explodes_is_refused(date: str) -> None:
    async def serve(wire: Wire) -> None:
        await (wire.open_stateful() if date == OLD else wire.open_stateless())
        tool = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": bomb(30)}
        await wire.answer(await wire.take(), tools=[tool])
        while True:
            await wire.answer(await wire.take(), content=[], structuredContent={"a": 1})

    async with connect(scripted(serve), protocol=date) as client:
        await client.list_tools()
        with pytest.raises(RemoteProtocolError, match="expand too far"):
            await client.call_tool("t")


@pytest.mark.defect("S3")
async def test_a_form_that_explodes_is_refused() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        call = await wire.take()
        await wire.say(id=7, method="elicitation/create", params={"message": "?", "requestedSchema": bomb(30)})
        answer = await wire.take()
        await wire.answer(call, content=[{"type": "text", "text": str(answer["error"])}])

    async with connect(scripted(serve), protocol=OLD, elicit=lambda _: {"a": 1}) as client:
        assert "expand too far" in (await client.call_tool("t")).text


@pytest.mark.parametrize(
    ("echoed", "answered"),
    [("{}", True), ("0{}", False), ("+{}", False), ("{}.0", False), ("٣", False), ("9" * 30, False)],
)
async def test_an_id_that_is_echoed_as_text_answers_only_if_it_is_the_same_number(
    echoed: str, answered: bool, autojump_clock: MockClock
) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        request = await wire.take("tools/call")
        await wire.say(id=echoed.format(request["id"]), result={"content": []})
        await trio.sleep_forever()

    async with connect(scripted(serve), protocol=OLD, reconnect=NEVER) as client:
        if answered:
            await client.call_tool("t")
        else:
            with pytest.raises(RequestTimeout):
                await client.call_tool("t")


@pytest.mark.defect("E26")
@pytest.mark.parametrize("date", BOTH)
async def test_an_array_may_answer_several_callers_and_hold_other_things(date: str) -> None:
    async def serve(wire: Wire) -> None:
        await (wire.open_stateful() if date == OLD else wire.open_stateless())
        one, two, three = [await wire.take("tools/call") for _ in range(3)]
        answers = [{"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}} for asked in (three, one)]
        wrong = {"jsonrpc": "2.0", "id": two["id"], "result": {}, "error": {"code": "x"}}
        await wire.raw(json.dumps([answers[0], 5, wrong, answers[1]]).encode())
        await wire.take()

    failed: list[str] = []

    async def call(name: str) -> None:
        try:
            await client.call_tool(name)
        except RemoteProtocolError:
            failed.append(name)

    async with connect(scripted(serve), protocol=date) as client:
        async with trio.open_nursery() as nursery:
            for name in ("a", "b", "c"):
                nursery.start_soon(call, name)
    assert len(failed) == 1


async def test_a_cancellation_of_no_id_is_ignored() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        for number in ([1], {"a": 1}, None, 1.5):
            await wire.say(method="notifications/cancelled", params={"requestId": number})
        await wire.answer(await wire.take("tools/call"), content=[])
        await wire.take()

    async with connect(scripted(serve), protocol=NEW, reconnect=NEVER) as client:
        await client.call_tool("t")


@pytest.mark.defect("C18")
@pytest.mark.parametrize("failed", [MCPError(-1, "no \ud800"), RuntimeError("\udfff"), {"name": "\ud800"}])
async def test_text_of_a_callback_that_cannot_be_encoded_does_not_end_the_connection(failed: Any) -> None:
    answers: list[dict[str, Any]] = []

    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        call = await wire.take("tools/call")
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        await wire.say(id=7, method="elicitation/create", params={"message": "?", "requestedSchema": form})
        answers.append(await wire.take())
        await wire.answer(call, content=[{"type": "text", "text": "done"}])
        await wire.take()

    def elicit(_: object) -> Any:
        if isinstance(failed, Exception):
            raise failed
        return failed

    async with connect(scripted(serve), protocol=OLD, elicit=elicit, reconnect=NEVER) as client:
        with trio.fail_after(30):
            assert (await client.call_tool("t")).text == "done"
    assert "error" in answers[0]
    if isinstance(failed, MCPError):
        assert answers[0]["error"]["message"] == "no \\ud800"
