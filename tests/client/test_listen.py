"""Listeners: stateful and stateless, and across the death of a server."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import ConnectionLost, MCPError, Reconnect, RequestTimeout, connect
from mcptrio.client import Change
from tests.client.kit import BOTH, Scripted, Wire, make_server, scripted

OLD, NEW = BOTH
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


@pytest.mark.parametrize("date", BOTH)
async def test_a_listener_gets_changes_of_lists_and_resources(date: str, autojump_clock: MockClock) -> None:
    server = make_server()
    async with connect(server, protocol=date) as client:
        async with client.listen(tools=True, resources=["orders://7"]) as changes:
            server.remove_tool("fail")
            assert await anext(changes) == Change(kind="tools")
            server.remove_resource("shop://hours")  # this client did not subscribe to the list of resources
            server.notify_resource_updated("orders://8")
            server.notify_resource_updated("orders://7")
            assert await anext(changes) == Change(kind="resource", uri="orders://7")
        assert len(await client.list_tools()) == 7


async def test_an_unread_change_is_delivered_once(autojump_clock: MockClock) -> None:
    server = make_server()
    async with connect(server) as client, client.listen(tools=True, prompts=True) as changes:
        for name in ("fail", "wait", "steps"):
            server.remove_tool(name)
            await trio.sleep(1)
        server.remove_prompt("complaint")
        await trio.sleep(1)
        assert await anext(changes) == Change(kind="tools")
        assert await anext(changes) == Change(kind="prompts")


async def acknowledge(wire: Wire, request: dict[str, object]) -> None:
    params = request["params"]
    assert isinstance(params, dict)
    requested = {"_meta": {SUBSCRIPTION: request["id"]}, "notifications": params["notifications"]}
    await wire.say(method="notifications/subscriptions/acknowledged", params=requested)


async def test_two_subscriptions_on_one_pipe_are_kept_apart() -> None:
    done: list[str] = []

    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        one, two = await wire.take(), await wire.take()
        await acknowledge(wire, two)
        await acknowledge(wire, one)
        for request in (one, two):
            kind = "tools" if "toolsListChanged" in request["params"]["notifications"] else "prompts"
            meta = {SUBSCRIPTION: request["id"]}
            await wire.say(method=f"notifications/{kind}/list_changed", params={"_meta": meta})
        await wire.say(method="notifications/tools/list_changed", params={"_meta": {SUBSCRIPTION: 999}})
        await wire.take()

    async with connect(scripted(serve), protocol=NEW) as client, trio.open_nursery() as nursery:

        async def hear(kind: str) -> None:
            async with client.listen(**{kind: True}) as changes:
                assert (await anext(changes)).kind == kind
                assert changes.honoured == ({kind}, frozenset())
                done.append(kind)
                await trio.testing.wait_all_tasks_blocked(0.01)

        nursery.start_soon(hear, "tools")
        nursery.start_soon(hear, "prompts")
    assert sorted(done) == ["prompts", "tools"]


async def test_leaving_cancels_the_subscription() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        request = await wire.take()
        await acknowledge(wire, request)
        cancelled = await wire.take()
        assert cancelled["params"]["requestId"] == request["id"]
        await wire.take()

    server = scripted(serve)
    async with connect(server, protocol=NEW) as client:
        async with client.listen(tools=True):
            pass
        await trio.testing.wait_all_tasks_blocked()
    assert server.wires[0].received[-1]["method"] == "notifications/cancelled"


@pytest.mark.parametrize("ending", ["death", "result", "cancelled"])
async def test_a_listener_listens_again_and_counts_everything_as_changed(
    ending: str, autojump_clock: MockClock
) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        request = await wire.take("subscriptions/listen")
        await acknowledge(wire, request)
        await trio.sleep(20)
        if len(server.wires) > 1:
            await trio.sleep_forever()
        if ending == "result":
            await wire.answer(request, resultType="complete", _meta={SUBSCRIPTION: request["id"]})
        elif ending == "cancelled":
            await wire.say(method="notifications/cancelled", params={"requestId": request["id"]})
        if ending != "death":
            again = await wire.take("subscriptions/listen")
            await acknowledge(wire, again)
            await trio.sleep_forever()

    server = scripted(serve)
    async with connect(server, protocol=NEW) as client, client.listen(tools=True, resources=["a://b"]) as changes:
        with trio.fail_after(300):
            assert await anext(changes) == Change(kind="tools")
            assert await anext(changes) == Change(kind="resource", uri="a://b")
    assert len(server.wires) == (2 if ending == "death" else 1)


async def test_a_listener_without_a_server_ends_with_an_error(autojump_clock: MockClock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        await acknowledge(wire, await wire.take("subscriptions/listen"))

    async with connect(scripted(serve), protocol=NEW, reconnect=Reconnect(tries=0)) as client:
        async with client.listen(tools=True) as changes:
            with pytest.raises(ConnectionLost):
                await anext(changes)


async def test_a_refused_subscription_is_raised_where_it_is_opened() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        await wire.refuse(await wire.take("subscriptions/listen"), -32601)
        await wire.take()

    async with connect(scripted(serve), protocol=NEW) as client:
        with pytest.raises(MCPError):
            async with client.listen(tools=True):
                pass


async def test_leaving_before_there_was_room_for_the_request_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        await trio.sleep_forever()

    async def listen() -> None:
        async with client.listen(tools=True):
            pytest.fail("it was not acknowledged")

    async with connect(scripted(serve), protocol=NEW) as client, trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(client.call_tool, "t")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        connection = client._connector.ready
        assert connection is not None
        assert len(connection._listens) == 1
        nursery.cancel_scope.cancel()
    assert connection._listens == connection._ended_by_server == {}
    assert client._service.timeouts._waiting == set()


async def subscribed_to(wire: Wire) -> None:
    """Answer everything; a stateful server that has subscriptions."""
    await wire.open_stateful(resources={"subscribe": True})
    while True:
        await wire.answer(await wire.take())


def requested(server: Scripted) -> list[str]:
    frames = [one for wire in server.wires for one in wire.received]
    return [one["method"] for one in frames if one["method"].startswith("resources/")]


@pytest.mark.defect("C17")
async def test_unsubscribing_does_not_silence_a_listener() -> None:
    server = scripted(subscribed_to)
    async with connect(server, protocol=OLD) as client:
        async with client.listen(resources=["a://b"]):
            await client.subscribe("a://b")
            await client.unsubscribe("a://b")
            await client.unsubscribe("a://b")  # once too often
            assert requested(server) == ["resources/subscribe"] * 2
        assert requested(server)[2:] == ["resources/unsubscribe"]


@pytest.mark.defect("C17")
async def test_a_listener_that_ends_does_not_silence_a_subscription_or_another_listener() -> None:
    server = scripted(subscribed_to)
    async with connect(server, protocol=OLD) as client:
        await client.subscribe("a://b")
        await client.subscribe("a://b")
        async with client.listen(resources=["a://b"]):
            async with client.listen(resources=["a://b"]):
                pass
            await client.unsubscribe("a://b")
        assert requested(server) == ["resources/subscribe"] * 4
        await client.unsubscribe("a://b")
        assert requested(server)[4:] == ["resources/unsubscribe"]


async def test_a_listener_reports_missed_changes_only_when_the_server_watches_again(autojump_clock: MockClock) -> None:
    """Reported before that, a change between the look of the listener and the new subscription would be missed."""

    async def first(wire: Wire) -> None:
        await wire.open_stateless()
        await acknowledge(wire, await wire.take("subscriptions/listen"))
        await trio.sleep(20)

    async def second(wire: Wire) -> None:
        await wire.open_stateless()
        request = await wire.take("subscriptions/listen")
        await trio.sleep(30)
        await acknowledge(wire, request)
        await trio.sleep_forever()

    async with connect(scripted(first, second), protocol=NEW) as client, client.listen(tools=True) as changes:
        with trio.fail_after(300):
            assert await anext(changes) == Change(kind="tools")
        assert trio.current_time() >= 50


async def test_a_subscription_that_is_not_acknowledged_again_is_retried_and_given_up(autojump_clock: MockClock) -> None:
    """The first acknowledgement has a timeout, and so has every later one."""
    asked: list[int] = []

    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        request = await wire.take("subscriptions/listen")
        asked.append(request["id"])
        if len(asked) == 1:
            await acknowledge(wire, request)
            await trio.sleep(100)  # longer than the timeout, which is over with the acknowledgement
            return
        while True:
            asked.append((await wire.take("subscriptions/listen"))["id"])

    policy = Reconnect(tries=3)
    async with connect(scripted(serve), protocol=NEW, timeout=5, reconnect=policy) as client:
        async with client.listen(tools=True) as changes:
            with trio.fail_after(300), pytest.raises(RequestTimeout, match="subscriptions/listen"):
                await anext(changes)
    assert len(asked) == 1 + policy.tries


async def test_an_acknowledgement_of_the_wrong_shape_names_no_resource(caplog: pytest.LogCaptureFixture) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        request = await wire.take("subscriptions/listen")
        honoured = {"resourceSubscriptions": [{}, [], None, "a://b"], "toolsListChanged": True}
        params = {"_meta": {SUBSCRIPTION: request["id"]}, "notifications": honoured}
        await wire.say(method="notifications/subscriptions/acknowledged", params=params)
        await wire.take()

    async with connect(scripted(serve), protocol=NEW) as client:
        async with client.listen(tools=True, resources=["a://b", "a://c"]) as changes:
            assert changes.honoured == ({"tools"}, {"a://b"})
    assert caplog.records == []


@pytest.mark.parametrize("refusal", ["error", "no capability", "no object"])
async def test_a_new_server_without_a_subscribed_resource_can_be_used(refusal: str, autojump_clock: MockClock) -> None:
    """Otherwise one resource that is gone would make every later call fail."""

    async def first(wire: Wire) -> None:
        await wire.open_stateful(resources={"subscribe": True}, tools={})
        await wire.answer(await wire.take("resources/subscribe"))
        await wire.take("ping")

    async def second(wire: Wire) -> None:
        await wire.open_stateful(tools={}, **({} if refusal == "no capability" else {"resources": {"subscribe": True}}))
        while True:
            request = await wire.take()
            if request["method"] != "resources/subscribe":
                await wire.answer(request, content=[])
            elif refusal == "error":
                await wire.refuse(request, -32002, "no such resource")
            else:
                await wire.say(id=request["id"], result=None)

    server = scripted(first, second)
    async with connect(server, protocol=OLD) as client:
        await client.subscribe("a://b")
        await client.ping()  # the connection is lost, and opened again
        assert not (await client.call_tool("any")).is_error
    assert len(server.wires) == 2


HAS_BOTH: dict[str, Any] = {"resources": {"subscribe": True}, "tools": {"listChanged": True}}


async def refuse_gone(wire: Wire) -> None:
    """Answer everything, but refuse to subscribe to or unsubscribe from `a://gone`."""
    while True:
        request = await wire.take()
        if request["params"].get("uri") == "a://gone":
            await wire.refuse(request, -32002, "no such resource")
        else:
            await wire.answer(request)


@pytest.mark.defect("E23")
@pytest.mark.parametrize("capable", [True, False])
async def test_a_listener_goes_on_without_a_resource_that_a_new_server_does_not_have(
    capable: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def first(wire: Wire) -> None:
        await wire.open_stateful(**HAS_BOTH)
        for _ in range(2):
            await wire.answer(await wire.take("resources/subscribe"))
        await trio.sleep(20)

    async def second(wire: Wire) -> None:
        await wire.open_stateful(**(HAS_BOTH if capable else {"tools": {"listChanged": True}}))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refuse_gone, wire)
            await trio.sleep(60)
            await wire.say(method="notifications/tools/list_changed")

    server = scripted(first, second)
    async with connect(server, protocol=OLD) as client:
        async with client.listen(tools=True, resources=["a://gone", "a://here"]) as changes:
            assert changes.honoured == ({"tools"}, {"a://gone", "a://here"})
            with trio.fail_after(300):
                missed = [await anext(changes) for _ in range(3)]
                assert changes.honoured == ({"tools"}, {"a://here"} if capable else set())
                assert await anext(changes) == Change(kind="tools")
            assert missed == [
                Change(kind="tools"),
                *(Change(kind="resource", uri=f"a://{x}") for x in ("gone", "here")),
            ]
    left = [(one["method"], one["params"]["uri"]) for one in server.wires[1].received if "uri" in one.get("params", {})]
    asked = [("resources/subscribe", "a://gone"), ("resources/subscribe", "a://here")]
    assert left == ([*asked, ("resources/unsubscribe", "a://here")] if capable else [])
    assert len(caplog.records) == (1 if capable else 2)
    assert "rejected resources/subscribe" in caplog.text


@pytest.mark.defect("E23")
async def test_a_resource_that_is_refused_before_the_block_begins_is_an_error(autojump_clock: MockClock) -> None:
    """Also if the first connection was lost: this listener has listened to nothing yet."""

    async def first(wire: Wire) -> None:
        await wire.open_stateful(**HAS_BOTH)
        await wire.take("resources/subscribe")

    async def second(wire: Wire) -> None:
        await wire.open_stateful(**HAS_BOTH)
        await refuse_gone(wire)

    async with connect(scripted(first, second), protocol=OLD) as client:
        with trio.fail_after(300), pytest.raises(MCPError, match="no such resource"):
            async with client.listen(tools=True, resources=["a://gone"]):
                pass


async def test_a_listener_that_is_refused_one_resource_unsubscribes_from_the_others() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful(**HAS_BOTH)
        await refuse_gone(wire)

    server = scripted(serve)
    async with connect(server, protocol=OLD) as client:
        with pytest.raises(MCPError, match="no such resource"):
            async with client.listen(resources=["a://first", "a://gone"]):
                pass
        assert requested(server) == ["resources/subscribe"] * 2 + ["resources/unsubscribe"]
