"""Reconnecting: a lost connection is opened again, and no call that could do harm is sent twice."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import ConnectionLost, Reconnect, RequestTimeout, connect
from tests.client.kit import BOTH, Wire, scripted

OLD, NEW = BOTH
TOOLS = [
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "set", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": True}},
    {"name": "pay", "inputSchema": {"type": "object"}},
]


async def serve_all(wire: Wire, date: str) -> None:
    await (wire.open_stateful() if date == OLD else wire.open_stateless())
    while True:
        request = await wire.take()
        match request["method"]:
            case "tools/list":
                await wire.answer(request, tools=TOOLS)
            case "tools/call":
                await wire.answer(request, content=[{"type": "text", "text": "done"}])
            case _:
                await wire.answer(request)


def dying(date: str, after: str) -> Any:
    """A server that dies when it gets `after`, the first time."""

    async def die(wire: Wire) -> None:
        await (wire.open_stateful() if date == OLD else wire.open_stateless())
        while True:
            request = await wire.take()
            if request["method"] == after:
                return
            await wire.answer(request, tools=TOOLS)

    async def live(wire: Wire) -> None:
        await serve_all(wire, date)

    return scripted(die, live)


@pytest.mark.parametrize("date", BOTH)
async def test_a_list_is_asked_for_again_on_a_new_connection(date: str, autojump_clock: MockClock) -> None:
    server = dying(date, "tools/list")
    async with connect(server, protocol=date) as client:
        assert len(await client.list_tools()) == 3
    assert len(server.wires) == 2


@pytest.mark.parametrize("date", BOTH)
@pytest.mark.parametrize(("tool", "repeated"), [("look", True), ("set", True), ("pay", False), ("unknown", False)])
async def test_only_harmless_tools_are_called_again(
    date: str, tool: str, repeated: bool, autojump_clock: MockClock
) -> None:
    server = dying(date, "tools/call")
    async with connect(server, protocol=date) as client:
        await client.list_tools()
        if repeated:
            await client.call_tool(tool)
        else:
            with pytest.raises(ConnectionLost):
                await client.call_tool(tool)
            await client.call_tool(tool)  # the next call finds the server again
    calls = [m for wire in server.wires for m in wire.received if m.get("method") == "tools/call"]
    assert len(calls) == 2


async def test_without_attempts_a_lost_connection_is_not_reopened(autojump_clock: MockClock) -> None:
    server = dying(OLD, "tools/list")
    async with connect(server, protocol=OLD, reconnect=Reconnect(tries=0)) as client:
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await client.list_tools()
    assert len(server.wires) == 1


async def test_the_pauses_between_attempts_grow_and_the_attempts_end(autojump_clock: MockClock) -> None:
    async def opens(wire: Wire) -> None:
        await wire.open_stateful()

    async def dead(wire: Wire) -> None:
        times.append(trio.current_time())

    times: list[float] = []
    server = scripted(opens, dead)
    async with connect(server, protocol=OLD, reconnect=Reconnect(tries=4, first=1, most=100)) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("pay")
        times.clear()
        with pytest.raises(ConnectionLost):
            await client.call_tool("pay")
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert len(times) == 4
    assert all(low <= pause <= low * 2 for pause, low in zip(pauses, (0.5, 1, 2), strict=True))


async def test_many_callers_share_one_new_connection(autojump_clock: MockClock) -> None:
    server = dying(NEW, "tools/list")
    async with connect(server, protocol=NEW) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(client.list_tools)
    assert len(server.wires) == 2


async def test_a_new_session_gets_the_log_level_and_subscriptions_of_the_old_one(autojump_clock: MockClock) -> None:
    async def first(wire: Wire) -> None:
        await wire.open_stateful(resources={"subscribe": True}, logging={})
        for _ in range(2):
            request = await wire.take()
            await wire.answer(request)

    async def second(wire: Wire) -> None:
        await wire.open_stateful(resources={"subscribe": True}, logging={})
        while True:
            request = await wire.take()
            await wire.answer(request, **({"resources": []} if request["method"] == "resources/list" else {}))

    server = scripted(first, second)
    async with connect(server, protocol=OLD) as client:
        await client.set_log_level("error")
        await client.subscribe("a://b")
        await trio.testing.wait_all_tasks_blocked()
        await client.list_resources()
    requests = [(m["method"], m.get("params")) for m in server.wires[1].received if "id" in m]
    assert ("logging/setLevel", {"level": "error"}) in requests
    assert ("resources/subscribe", {"uri": "a://b"}) in requests


async def test_a_server_that_came_back_as_another_is_initialized_again(autojump_clock: MockClock) -> None:
    """The server was upgraded meanwhile: its earlier version is only the first one to try."""

    async def old(wire: Wire) -> None:
        await wire.open_stateful()

    async def new(wire: Wire) -> None:
        await wire.refuse(await wire.take("initialize"), -32601)
        await wire.open_stateless()
        while True:
            await wire.answer(await wire.take(), resultType="complete", tools=[])

    async with connect(scripted(old, new), protocol=BOTH, probe_timeout=0.1) as client:
        assert client.protocol_version == OLD
        await trio.testing.wait_all_tasks_blocked()
        assert await client.list_tools() == ()
        assert client.protocol_version == NEW


async def test_reconnecting_does_not_extend_the_timeout_of_a_call(
    autojump_clock: MockClock,
) -> None:
    async def opens(wire: Wire) -> None:
        await wire.open_stateful()

    async def silent(wire: Wire) -> None:
        await trio.sleep_forever()

    async with connect(scripted(opens, silent), protocol=OLD) as client:
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        with pytest.raises(RequestTimeout):
            await client.call_tool("pay", total_timeout=20, timeout=5)
        assert trio.current_time() - began == pytest.approx(20)


async def test_a_closed_client_does_not_come_back(autojump_clock: MockClock) -> None:
    server = dying(OLD, "tools/list")
    async with connect(server, protocol=OLD) as client:
        await client.aclose()
        with pytest.raises(ConnectionLost):
            await client.list_tools()
    assert len(server.wires) == 1


async def test_callers_that_wait_for_one_attempt_share_its_failure(autojump_clock: MockClock) -> None:
    async def opens(wire: Wire) -> None:
        await wire.open_stateful()

    async def dead(wire: Wire) -> None:
        pass

    ended: list[float] = []

    async def call() -> None:
        with pytest.raises(ConnectionLost):
            await client.call_tool("pay")
        ended.append(trio.current_time())

    server = scripted(opens, dead)
    async with connect(server, protocol=OLD, reconnect=Reconnect(tries=4)) as client:
        await trio.testing.wait_all_tasks_blocked()
        for times in (1, 2):  # later callers try again
            ended.clear()
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(call)
            assert len(server.wires) == 1 + 4 * times
            assert max(ended) == min(ended)
