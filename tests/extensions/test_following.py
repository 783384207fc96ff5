"""The client's side of tasks: a call that became a task looks like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from mcptrio import Context, McpError, RemoteProtocolError, Server, ToolError, connect
from mcptrio.extensions.client import extended
from mcptrio.extensions.tasks import TaskCancelled, Tasks, begin_task, follow_task

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
    await follow_task(server, "t")
    assert [list(questions) for questions in server.answered] == [["k"], ["l"]]
    updates = [params for method, params in server.asked if method == "tasks/update"]
    assert [list(update["inputResponses"]) for update in updates] == [["k"], ["l"]]


async def test_how_a_task_failed_is_raised(autojump_clock: MockClock) -> None:
    with pytest.raises(McpError) as caught:
        await follow_task(Script([{"status": "failed", "error": {"code": -32050, "message": "no", "data": 1}}]), "t")
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32050, "no", 1)
    with pytest.raises(TaskCancelled):
        await follow_task(Script([{"status": "cancelled"}]), "t")
    with pytest.raises(RemoteProtocolError):
        await follow_task(Script([{"status": 5}]), "t")


@pytest.mark.parametrize(("keep", "methods"), [(False, ["tasks/cancel"]), (True, [])])
async def test_whoever_stops_waiting_cancels_the_task_unless_told_not_to(
    autojump_clock: MockClock, keep: bool, methods: list[str]
) -> None:
    server = Script([{"status": "working"}])
    with trio.move_on_after(10):
        await follow_task(server, "t", cancel_on_cancel=not keep)
    assert [method for method, _ in server.asked if method != "tasks/get"] == methods


async def test_a_task_in_answer_to_anything_else_is_refused() -> None:
    complete = Tasks().results(Script([DONE]))["task"]
    with pytest.raises(RemoteProtocolError, match="prompts/get was answered with a task"):
        await complete("prompts/get", dict(HANDLE))


# -- with our own client and server


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
        raise ToolError("not today") if how == "tool" else McpError(-32050, "not at all")

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


async def test_errors_come_out_of_a_task_as_out_of_a_call(autojump_clock: MockClock) -> None:
    async with extended(connect(shop()), Tasks()) as client:
        with pytest.raises(McpError) as caught:
            await client.call_tool("fail", {"how": "protocol"})
        assert caught.value.code == -32050
        result = await client.request("tools/call", {"name": "fail", "arguments": {"how": "tool"}})
        assert result["isError"] is True
    async with connect(shop()) as client:
        with pytest.raises(McpError) as caught:
            await client.call_tool("fail", {"how": "tool"})
        assert caught.value.code == -32021
