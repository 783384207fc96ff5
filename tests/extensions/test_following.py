"""The client's side of tasks: a call that became a task looks like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from mcptrio import Context, MCPError, Overloaded, RemoteProtocolError, Server, ToolError, connect
from mcptrio.extensions.client import extended
from mcptrio.extensions.tasks import TaskCancelled, TaskHandle, Tasks, begin_task, call_as_task
from mcptrio.extensions.tasks.follow import Watch, follow_task
from tests.client.kit import Wire, scripted

HANDLE = {"resultType": "task", "taskId": "t", "status": "working", "createdAt": "x", "lastUpdatedAt": "x"}


@define(eq=False)
class Script:
    """A server that shows a task in these states, one after the other, the last one for ever."""

    states: list[dict[str, Any]]
    asked: list[tuple[str, dict[str, Any]]] = field(factory=list)
    answered: list[Mapping[str, Any]] = field(factory=list)

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        self.asked.append((method, params))
        if method != "tasks/get":
            return {"resultType": "complete"}
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {**HANDLE, "resultType": "complete", **state}

    async def answer(self, questions: Mapping[str, Any]) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        self.answered.append(questions)
        return {key: {"action": "accept", "content": {"key": key}} for key in questions}


ASKING = {"status": "input_required", "inputRequests": {"k": {"method": "elicitation/create", "params": {}}}}
DONE = {"status": "completed", "result": {"content": []}}


async def test_a_task_is_looked_at_as_often_as_the_server_wants(autojump_clock: MockClock) -> None:
    server = Script([{"status": "working", "pollIntervalMs": 2000}, {"status": "working"}, DONE])
    began = trio.current_time()
    assert await follow_task(server, {**HANDLE, "pollIntervalMs": 500}) == {"content": []}
    assert trio.current_time() - began == pytest.approx(0.5 + 2 + 1)


async def test_each_question_is_answered_once(autojump_clock: MockClock) -> None:
    more = {"inputRequests": {**ASKING["inputRequests"], "l": {"method": "roots/list"}}}  # type: ignore[dict-item]
    server = Script([ASKING, ASKING, {**ASKING, **more}, {"status": "working"}, DONE])
    await Watch(server, "t").result()
    assert [list(questions) for questions in server.answered] == [["k"], ["l"]]
    updates = [params for method, params in server.asked if method == "tasks/update"]
    assert [list(update["inputResponses"]) for update in updates] == [["k"], ["l"]]


async def test_the_failure_of_a_task_is_raised(autojump_clock: MockClock) -> None:
    with pytest.raises(MCPError) as caught:
        await Watch(Script([{"status": "failed", "error": {"code": -32050, "message": "no", "data": 1}}]), "t").result()
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32050, "no", 1)
    with pytest.raises(TaskCancelled):
        await Watch(Script([{"status": "cancelled"}]), "t").result()
    with pytest.raises(RemoteProtocolError):
        await Watch(Script([{"status": 5}]), "t").result()


async def test_a_caller_that_stops_waiting_for_a_call_cancels_its_task(autojump_clock: MockClock) -> None:
    server = Script([{"status": "working"}])
    with trio.move_on_after(10):
        await follow_task(server, HANDLE)
    assert [method for method, _ in server.asked if method != "tasks/get"] == ["tasks/cancel"]


async def test_a_caller_that_stops_waiting_for_a_handle_leaves_the_task_alone(autojump_clock: MockClock) -> None:
    server = Script([{"status": "working"}])
    with trio.move_on_after(10):
        await Watch(server, "t").result()
    assert {method for method, _ in server.asked} == {"tasks/get"}


async def test_a_task_in_answer_to_anything_else_is_refused() -> None:
    complete = Tasks().results(Script([DONE]))["task"]
    with pytest.raises(RemoteProtocolError, match="prompts/get was answered with a task"):
        await complete("prompts/get", dict(HANDLE))


@define(eq=False)
class Refusing(Script):
    """A server that refuses the first requests, with the time to wait or without."""

    refusals: list[Exception] = field(factory=list)

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if self.refusals:
            raise self.refusals.pop(0)
        return await super().request(method, params)


LATER = MCPError(-32603, "too much to do", {"retryAfter": 7})


@pytest.mark.defect("D25")
async def test_a_request_that_is_refused_for_now_is_retried_as_the_server_says(autojump_clock: MockClock) -> None:
    server = Refusing([ASKING, DONE], refusals=[LATER, Overloaded("busy", retry_after=5)])
    began = trio.current_time()
    assert await Watch(server, "t").result() == {"content": []}
    assert trio.current_time() - began == pytest.approx(7 + 5 + 1)
    server = Refusing([DONE], refusals=[LATER] * 1000)
    with pytest.raises(MCPError, match="too much to do"):
        await Watch(server, "t").result()
    server = Refusing([DONE], refusals=[MCPError(-32603, "broken")])
    with pytest.raises(MCPError, match="broken"):
        await Watch(server, "t").result()


@pytest.mark.defect("D11")
async def test_two_followers_of_one_task_ask_each_question_once(autojump_clock: MockClock) -> None:
    class Slow(Script):
        async def answer(self, questions: Mapping[str, Any]) -> dict[str, Any]:
            await trio.sleep(5)
            return await super().answer(questions)

    server = Slow([ASKING] * 20 + [DONE])
    watch = Watch(server, "t")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.result)
        nursery.start_soon(watch.result)
    assert [list(questions) for questions in server.answered] == [["k"]]
    assert [method for method, _ in server.asked].count("tasks/update") == 1


@pytest.mark.defect("D12")
async def test_a_failing_callback_cancels_the_task_that_it_was_asked_for(autojump_clock: MockClock) -> None:
    class Broken(Script):
        async def answer(self, questions: Mapping[str, Any]) -> dict[str, Any]:
            raise RuntimeError("no form today")

    server = Broken([ASKING])
    with pytest.raises(RuntimeError, match="no form today"):
        await follow_task(server, HANDLE)
    assert [method for method, _ in server.asked] == ["tasks/get", "tasks/cancel"]
    server = Broken([ASKING, ASKING])
    watch = Watch(server, "t")  # held: it stays, and the question may be asked again
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no form today"):
            await watch.result()
    assert [method for method, _ in server.asked] == ["tasks/get"] * 2


async def test_a_task_whose_time_to_live_has_passed_says_so(autojump_clock: MockClock) -> None:
    server = Refusing([{"status": "working", "ttlMs": 60_000}])
    watch = Watch(server, "t")
    await watch.look()
    server.refusals = [MCPError(-32602, "there is no such task")]
    with pytest.raises(MCPError, match="no such task"):
        await watch.look()
    await trio.sleep(61)
    server.refusals = [MCPError(-32602, "there is no such task")]
    with pytest.raises(MCPError, match="time to live is over"):
        await watch.look()


# -- with our own client and server


@pytest.mark.defect("D10")
@pytest.mark.parametrize("how", ["call_tool", "call_as_task", "with progress"])
async def test_a_call_cancelled_while_its_handle_is_on_the_way_cancels_the_task(
    how: str, autojump_clock: MockClock
) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        request = await wire.take("tools/call")
        await trio.sleep(5.5)  # the caller gives up after 5 seconds
        await wire.answer(request, **HANDLE)
        await wire.answer(await wire.take("tasks/cancel"), resultType="complete")
        cancelled.append(wire.received[-1]["params"]["taskId"])

    cancelled: list[str] = []
    async with extended(connect(scripted(serve), protocol="2026-07-28"), Tasks()) as client:
        with trio.move_on_after(5) as scope:
            if how == "call_as_task":
                await call_as_task(client, "t")
            else:
                await client.call_tool("t", on_progress=None if how == "call_tool" else lambda progress: None)
        assert scope.cancelled_caught
        assert cancelled == ["t"]


async def test_a_cancelled_call_without_an_answer_is_given_up_soon(autojump_clock: MockClock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        await wire.take("tools/call")
        await wire.take("notifications/cancelled")
        reported.append(trio.current_time())

    reported: list[float] = []
    async with extended(connect(scripted(serve), protocol="2026-07-28"), Tasks()) as client:
        began = trio.current_time()
        with trio.move_on_after(5):
            await client.call_tool("t")
        assert trio.current_time() - began == pytest.approx(6)
        await trio.sleep(0.1)
        assert reported


@dataclass
class Name:
    name: str


def shop() -> Server:
    server = Server("shop")

    @server.tool(task=True)
    async def greet(ctx: Context) -> str:
        await trio.sleep(100)
        answer = await ctx.elicit("Who?", Name)
        await trio.sleep(100)
        return f"hello {answer.value.name}" if answer.value else answer.action

    @server.tool(task="later")
    async def late(ctx: Context) -> str:
        first = await ctx.elicit("Who?", Name)
        await begin_task(ctx)
        second = await ctx.elicit("And who else?", Name)
        return f"{first.content} {second.content}"

    @server.tool(task=True)
    async def fail(how: str) -> str:
        raise ToolError("not today") if how == "tool" else MCPError(-32050, "not at all")

    return server


def person(names: list[str]) -> Callable[[Any], Any]:
    async def elicit(asked: Any) -> dict[str, Any]:
        await trio.sleep(50)
        return {"name": names.pop(0)}

    return elicit


async def test_a_call_that_became_a_task_looks_like_any_other(autojump_clock: MockClock) -> None:
    async with extended(connect(shop(), elicit=person(["Ann"])), Tasks()) as client:
        result = await client.call_tool("greet", {})
        assert result.content[0].text == "hello Ann"  # type: ignore[union-attr]


async def test_a_call_may_ask_before_and_after_it_became_a_task(autojump_clock: MockClock) -> None:
    async with extended(connect(shop(), elicit=person(["Ann", "Bob"])), Tasks()) as client:
        result = await client.call_tool("late", {})
        assert result.content[0].text == "{'name': 'Ann'} {'name': 'Bob'}"  # type: ignore[union-attr]


@pytest.mark.defect("D26")
async def test_an_answer_that_the_form_refuses_is_asked_for_again(autojump_clock: MockClock) -> None:
    @dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("odd")

    server = Server("even")

    @server.tool(task=True)
    async def halve(ctx: Context) -> str:
        answer = await ctx.elicit("Which number?", Even, key="number")
        return str(answer.value.number // 2) if answer.value else answer.action

    numbers = [1, 3, 4]

    async def choose(asked: Any) -> dict[str, Any]:
        return {"number": numbers.pop(0)}

    async with extended(connect(server, elicit=choose), Tasks()) as client:
        assert (await client.call_tool("halve")).text == "2"
        assert numbers == []


async def test_errors_come_out_of_a_task_as_out_of_a_call(autojump_clock: MockClock) -> None:
    async with extended(connect(shop()), Tasks()) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("fail", {"how": "protocol"})
        assert caught.value.code == -32050
        result = await client.request("tools/call", {"name": "fail", "arguments": {"how": "tool"}})
        assert result["isError"] is True
    async with connect(shop()) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("fail", {"how": "tool"})
        assert caught.value.code == -32021


# -- handles


async def test_a_handle_shows_every_state_and_gives_the_result(autojump_clock: MockClock) -> None:
    async with extended(connect(shop(), elicit=person(["Ann"])), Tasks()) as client:
        task = await call_as_task(client, "greet")
        assert trio.current_time() < 1  # there was no wait
        assert (await task.status()).status == "working"
        assert [state.status async for state in task] == ["input_required", "working", "completed"]
        assert await task.result(into=str) == "hello Ann"
        assert (await task.status()).status == "completed"
        assert [state async for state in task] == []
        again = TaskHandle(client, task.id)
        assert (await again.result()).content[0].text == "hello Ann"  # type: ignore[union-attr]


async def test_a_handle_can_be_waited_for_without_looking(autojump_clock: MockClock) -> None:
    async with extended(connect(shop(), elicit=person(["Ann"])), Tasks()) as client:
        task = await call_as_task(client, "greet")
        assert await task.result(into=str) == "hello Ann"
        assert await task.result(into=str) == "hello Ann"


async def test_a_task_goes_on_without_a_waiting_client_and_ends_when_it_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    async with extended(connect(shop()), Tasks()) as client:
        task = await call_as_task(client, "greet")
        with trio.move_on_after(10):
            await task.result()
        assert (await task.status()).status == "working"
        await task.cancel()
        with pytest.raises(TaskCancelled):
            await task.result()
        await task.cancel()  # does no harm
        assert (await task.status()).status == "cancelled"


async def test_the_failure_of_a_task_with_a_handle_is_raised(autojump_clock: MockClock) -> None:
    async with extended(connect(shop()), Tasks()) as client:
        with pytest.raises(MCPError, match="not at all"):
            await (await call_as_task(client, "fail", {"how": "protocol"})).result()
        task = await call_as_task(client, "fail", {"how": "tool"})
        assert (await task.result()).is_error
        with pytest.raises(ToolError, match="not today"):
            await task.result(into=str)
        with pytest.raises(MCPError, match="no such task"):
            await TaskHandle(client, "unknown").result()


async def test_a_tool_that_is_no_task_gives_a_handle_with_its_result() -> None:
    server = Server("plain")

    @server.tool
    async def double(n: int) -> int:
        return n * 2

    for date in ("2025-11-25", "2026-07-28"):
        async with extended(connect(server, protocol=date), Tasks()) as client:
            task = await call_as_task(client, "double", {"n": 4})
            assert task.id == ""
            assert (await task.status()).status == "completed"
            assert [state.status async for state in task] == ["completed"]
            assert await task.result(into=int) == 8
            await task.cancel()


async def test_a_handle_that_breaks_the_rules_is_the_servers_fault() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        await wire.answer(await wire.take(), resultType="task", taskId=7, status="working")

    async with extended(connect(scripted(serve), protocol="2026-07-28"), Tasks()) as client:
        with pytest.raises(RemoteProtocolError, match="task cannot be read"):
            await call_as_task(client, "t")
