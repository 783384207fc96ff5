"""Tools that run as tasks: the handle at once, the rest by asking for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import Context, DeclarationError, MCPError, Server, ToolError
from mcptrio.auth.server import Principal
from mcptrio.extensions.tasks import IDENTIFIER, Tasks, begin_task
from mcptrio.stores.sqlite import SqliteStore
from tests.server.talk import Refused, talking

from .kit import PLAIN, WITH_TASKS, Caller, accept, calling, open_runtime, settled, visit

ENVELOPE = {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "_meta"}

ALICE, MALLORY = Principal(subject="alice"), Principal(subject="mallory")


@dataclass
class Name:
    name: str


@dataclass
class Confirm:
    confirm: bool


def workshop(tasks: Tasks | None = None) -> Server:
    server = Server("workshop")
    if tasks is not None:
        server.add_extension(tasks)

    @server.tool(task="auto")
    async def sleep(seconds: float) -> str:
        await trio.sleep(seconds)
        return f"slept {seconds:g}"

    @server.tool(task=True)
    async def job() -> str:
        await trio.sleep(1)
        return "done"

    @server.tool(task="auto")
    async def stumble(kind: str) -> str:
        await trio.sleep(1)
        if kind == "tool":
            raise ToolError("the model may read this")
        if kind == "protocol":
            raise MCPError(-32050, "no such luck", {"luck": 0})
        raise RuntimeError("the secret is 7")

    @server.tool(task="auto")
    async def hello(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", Name, key="who")
        return f"hello {answer.value.name}" if answer.value else answer.action

    @server.tool(task="auto")
    async def both(ctx: Context) -> str:
        said: dict[str, Any] = {}

        async def ask(key: str, form: Any) -> None:
            said[key] = (await ctx.elicit(f"{key}?", form, key=key)).content

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "name", Name)
            nursery.start_soon(ask, "confirm", Confirm)
        return f"{said['name']['name']} {said['confirm']['confirm']}"

    @server.tool(task="later", replay=True)
    async def asks_first(ctx: Context) -> str:
        first = await ctx.elicit("Who?", Name, key="who")
        if not first.accepted:
            return "never mind"
        await begin_task(ctx)
        second = await ctx.elicit("Sure?", Confirm, key="sure")
        return f"{first.content} {second.content}"

    return server


# -- becoming a task


async def test_a_call_becomes_a_task_where_the_client_knows_tasks(autojump_clock: MockClock) -> None:
    async with calling(workshop()) as caller:
        created = await caller.call("sleep", seconds=10)
        assert set(created) == ENVELOPE
        assert (created["resultType"], created["status"]) == ("task", "working")
        assert created["ttlMs"] == 3_600_000
        assert created["pollIntervalMs"] == 1000
        assert created["createdAt"].endswith("Z")
        seen = await caller.get(created)
        assert seen["resultType"] == "complete"
        assert seen["status"] == "working"
        done = await caller.until_over(created)
        assert done["status"] == "completed"
        assert done["result"] == {"content": [{"type": "text", "text": "slept 10"}]}


async def test_without_the_extension_a_call_is_a_plain_one(autojump_clock: MockClock) -> None:
    async with calling(workshop(), PLAIN) as caller:
        result = await caller.call("sleep", seconds=10)
        assert result["resultType"] == "complete"
        assert result["content"] == [{"type": "text", "text": "slept 10"}]


async def test_capabilities_of_an_earlier_request_do_not_count(autojump_clock: MockClock) -> None:
    async with calling(workshop()) as caller:
        assert (await caller.call("sleep", seconds=1))["resultType"] == "task"
        assert (await caller.call("sleep", PLAIN, seconds=1))["resultType"] == "complete"


async def test_a_tool_that_must_be_a_task_says_what_is_missing() -> None:
    async with calling(workshop(), PLAIN) as caller:
        for tool in ("job", "asks_first"):
            error = await caller.refused("tools/call", name=tool, arguments={})
            assert error.code == -32021
            assert error.data == {"requiredCapabilities": {"extensions": {IDENTIFIER: {}}}}


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_the_methods_need_the_extension_too(method: str) -> None:
    async with calling(workshop(), PLAIN) as caller:
        error = await caller.refused(method, taskId="x", inputResponses={})
        assert (error.code, list(error.data["requiredCapabilities"])) == (-32021, ["extensions"])


async def test_servers_say_that_they_have_tasks_and_only_then_have_the_methods() -> None:
    async with calling(workshop()) as caller:
        found = await caller.ask("server/discover")
        assert found["capabilities"]["extensions"] == {IDENTIFIER: {}}
        assert "tasks" not in found["capabilities"]
    async with calling(Server("without")) as caller:
        assert "extensions" not in (await caller.ask("server/discover"))["capabilities"]
        assert (await caller.refused("tasks/get", taskId="x")).code == -32601


async def test_stateful_sessions_know_no_tasks(autojump_clock: MockClock) -> None:
    async with talking(workshop(), capabilities=WITH_TASKS) as talk:
        result = await talk.request("tools/call", name="sleep", arguments={"seconds": 1})
        assert result == {"content": [{"type": "text", "text": "slept 1"}]}
        for method in ("tasks/get", "tasks/cancel"):
            with pytest.raises(Refused) as caught:
                await talk.request(method, taskId="x")
            assert caught.value.code == -32601


async def test_wrong_arguments_are_answered_at_once() -> None:
    async with calling(workshop()) as caller:
        result = await caller.call("sleep", seconds="long")
        assert result["isError"] is True
        assert "seconds" in result["content"][0]["text"]


# -- how it ends


async def test_an_error_of_the_tool_is_a_completed_task(autojump_clock: MockClock) -> None:
    async with calling(workshop()) as caller:
        done = await caller.until_over(await caller.call("stumble", kind="tool"))
        assert done["status"] == "completed"
        assert done["result"]["isError"] is True
        assert "error" not in done


async def test_an_error_of_the_protocol_is_a_failed_task(autojump_clock: MockClock) -> None:
    async with calling(workshop()) as caller:
        done = await caller.until_over(await caller.call("stumble", kind="protocol"))
        assert done["status"] == "failed"
        assert done["error"] == {"code": -32050, "message": "no such luck", "data": {"luck": 0}}
        assert done["statusMessage"] == "no such luck"
        assert "result" not in done


async def test_a_crash_in_a_task_is_reported_without_its_text(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with calling(workshop()) as caller:
        done = await caller.until_over(await caller.call("stumble", kind="crash"))
        assert done["result"]["isError"] is True
        assert "secret" not in str(done)
        assert "the secret is 7" in caplog.text
        assert (await caller.call("sleep", PLAIN, seconds=0))["content"]  # the server goes on


async def test_a_cancelled_task_stops_and_stays_cancelled(autojump_clock: MockClock) -> None:
    ended: list[str] = []
    server = workshop()

    @server.tool(task=True)
    async def long() -> str:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("long")

    async with calling(server) as caller:
        created = await caller.call("long")
        await settled()
        acknowledged = await caller.ask("tasks/cancel", taskId=created["taskId"])
        assert set(acknowledged) == {"resultType", "_meta"}
        await settled()
        assert ended == ["long"]
        assert (await caller.get(created))["status"] == "cancelled"
        again = await caller.ask("tasks/cancel", taskId=created["taskId"])
        assert again["resultType"] == "complete"


async def test_cancelling_what_is_done_changes_nothing(autojump_clock: MockClock) -> None:
    async with calling(workshop()) as caller:
        created = await caller.call("sleep", seconds=1)
        await caller.until_over(created)
        await caller.ask("tasks/cancel", taskId=created["taskId"])
        assert (await caller.get(created))["status"] == "completed"


async def test_a_task_outlives_the_connection_that_made_it(autojump_clock: MockClock) -> None:
    async with open_runtime(workshop()) as runtime:
        async with visit(runtime) as caller:
            created = await caller.call("sleep", seconds=30)
        async with visit(runtime) as other:
            assert (await other.until_over(created))["result"]["content"][0]["text"] == "slept 30"


async def test_a_task_may_take_longer_than_a_call(autojump_clock: MockClock) -> None:
    """The usual limit of a call, a minute without progress, is not for tasks."""
    async with calling(workshop()) as caller:
        done = await caller.until_over(await caller.call("sleep", seconds=1800), every=100)
        assert done["status"] == "completed"


async def test_the_time_limit_of_a_tool_holds_in_a_task_too(autojump_clock: MockClock) -> None:
    server = Server("slow")

    @server.tool(task=True, timeout=5)
    async def slow() -> str:
        await trio.sleep_forever()

    async with calling(server) as caller:
        done = await caller.until_over(await caller.call("slow"))
        assert done["result"]["isError"]
        assert "it may take 5 s" in done["result"]["content"][0]["text"]


# -- whose it is


async def test_neg_task_other_principal_not_found(autojump_clock: MockClock) -> None:
    """The handle of another principal's task is answered like an unknown one (V24)."""
    async with open_runtime(workshop()) as runtime:
        async with (
            visit(runtime, principal=ALICE) as alice,
            visit(runtime, principal=MALLORY) as mallory,
        ):
            created = await alice.call("hello")
            await alice.until_asked(created)
            handle = created["taskId"]
            never = [await _refusal(mallory, method, "never-was") for method in METHODS]
            assert [await _refusal(mallory, method, handle) for method in METHODS] == never
            assert {code for code, _ in never} == {-32602}
            assert (await alice.get(created))["status"] == "input_required"
            await alice.update(created, who=accept(name="Alice"))
            done = await alice.until_over(created)
            assert done["result"]["content"][0]["text"] == "hello Alice"
            assert (await _refusal(mallory, "tasks/get", handle)) == never[0]  # from the store too


METHODS = ("tasks/get", "tasks/update", "tasks/cancel")


async def _refusal(caller: Caller, method: str, handle: str) -> tuple[int, str]:
    error = await caller.refused(method, taskId=handle, inputResponses={"who": accept(name="Mallory")})
    return error.code, error.message


async def test_a_principal_may_have_any_name(autojump_clock: MockClock) -> None:
    async with open_runtime(workshop()) as runtime, visit(runtime, principal=Principal(subject="Zo\u00eb")) as zoe:
        created = await zoe.call("sleep", seconds=1)
        assert (await zoe.until_over(created))["status"] == "completed"


async def test_handles_are_random_and_long() -> None:
    async with calling(workshop()) as caller:
        handles = {(await caller.call("sleep", seconds=1000))["taskId"] for _ in range(50)}
        assert len(handles) == 50
        assert all(len(handle) * 6 >= 128 for handle in handles)  # six bits in each character


# -- asking


async def test_a_task_asks_through_its_status(autojump_clock: MockClock) -> None:
    async with calling(workshop()) as caller:
        created = await caller.call("hello")
        seen = await caller.until_asked(created)
        assert seen["status"] == "input_required"
        assert seen["inputRequests"]["who"]["method"] == "elicitation/create"
        assert seen["inputRequests"]["who"]["params"]["message"] == "Who?"
        assert "requestState" not in seen
        acknowledged = await caller.update(created, who=accept(name="Ann"))
        assert set(acknowledged) == {"resultType", "_meta"}
        done = await caller.until_over(created)
        assert done["result"]["content"][0]["text"] == "hello Ann"
        assert "inputRequests" not in done


async def test_answers_may_come_one_by_one(autojump_clock: MockClock) -> None:
    async with calling(workshop()) as caller:
        created = await caller.call("both")
        await caller.until_asked(created, 2)
        await caller.update(created, name=accept(name="Ann"), unknown=accept(x=1))
        seen = await caller.get(created)
        assert (seen["status"], list(seen["inputRequests"])) == ("input_required", ["confirm"])
        await caller.update(created, name=accept(name="too late"))
        await caller.update(created, confirm=accept(confirm=True))
        done = await caller.until_over(created)
        assert done["result"]["content"][0]["text"] == "Ann True"


@pytest.mark.defect("D26")
async def test_an_answer_that_does_not_fit_is_asked_for_again_under_a_new_key(autojump_clock: MockClock) -> None:
    async with calling(workshop()) as caller:
        created = await caller.call("hello")
        await caller.until_asked(created)
        await caller.update(created, who=accept(name=5))
        await settled()
        assert list((await caller.get(created))["inputRequests"]) == ["who-2"]
        await caller.update(created, **{"who": accept(name="Old"), "who-2": accept(wrong=1)})
        await settled()
        assert list((await caller.get(created))["inputRequests"]) == ["who-3"]
        await caller.update(created, **{"who-3": {"action": "decline"}})
        assert (await caller.until_over(created))["result"]["content"][0]["text"] == "decline"


@pytest.mark.defect("D26")
async def test_an_answer_whose_check_fails_in_any_way_is_asked_for_again(autojump_clock: MockClock) -> None:
    @dataclass
    class Picky:
        name: str

        def __post_init__(self) -> None:
            if self.name == "bad":
                raise KeyError(self.name)

    server = Server("picky")

    @server.tool(task=True)
    async def hello(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", Picky, key="who")
        return f"hello {answer.value.name}" if answer.value else answer.action

    async with calling(server) as caller:
        created = await caller.call("hello")
        await caller.until_asked(created)
        await caller.update(created, who=accept(name="bad"))
        assert list((await caller.get(created))["inputRequests"]) == ["who-2"]
        await caller.update(created, **{"who-2": accept(name="good")})
        assert (await caller.until_over(created))["result"]["content"][0]["text"] == "hello good"


async def test_a_key_stands_for_one_question_in_the_life_of_a_task(autojump_clock: MockClock) -> None:
    server = Server("again")

    @server.tool(task=True)
    async def twice(ctx: Context) -> str:
        first = await ctx.elicit("First?", Name, key="k")
        second = await ctx.elicit("Second?", Name, key="k")
        return f"{first.content} {second.content}"

    async with calling(server) as caller:
        created = await caller.call("twice")
        (first,) = (await caller.until_asked(created))["inputRequests"]
        await caller.update(created, **{first: accept(name="a")})
        await settled()
        (second,) = (await caller.until_asked(created))["inputRequests"]
        assert first != second
        await caller.update(created, **{second: accept(name="b")})
        assert "'a'} {'name': 'b'" in (await caller.until_over(created))["result"]["content"][0]["text"]


async def test_a_task_asks_only_what_its_client_can_answer(autojump_clock: MockClock) -> None:
    async with calling(workshop(), {"extensions": {IDENTIFIER: {}}}) as caller:
        done = await caller.until_over(await caller.call("hello"))
        assert (done["status"], done["error"]["code"]) == ("failed", -32021)
        assert "elicitation" in done["error"]["data"]["requiredCapabilities"]


async def test_a_question_that_is_given_up_is_not_shown_any_more(autojump_clock: MockClock) -> None:
    server = Server("impatient")

    @server.tool(task=True)
    async def ask(ctx: Context) -> str:
        with trio.move_on_after(5):
            await ctx.elicit("Quick?", Name)
        await trio.sleep(100)
        return "alone"

    async with calling(server) as caller:
        created = await caller.call("ask")
        await caller.until_asked(created)
        await trio.sleep(10)
        assert (await caller.get(created))["status"] == "working"
        assert (await caller.until_over(created))["result"]["content"][0]["text"] == "alone"


async def test_waiting_for_a_person_is_not_the_tools_own_time(autojump_clock: MockClock) -> None:
    server = Server("patient")

    @server.tool(task=True, timeout=5)
    async def ask(ctx: Context) -> str:
        await trio.sleep(3)
        answer = await ctx.elicit("Who?", Name, key="who")
        await trio.sleep(3)
        return str(answer.action)

    async with calling(server) as caller:
        created = await caller.call("ask")
        await caller.until_asked(created)
        await trio.sleep(600)
        await caller.update(created, who=accept(name="Ann"))
        assert (await caller.until_over(created))["result"]["content"][0]["text"] == "accept"


# -- beginning later


async def test_a_question_before_a_task_begins_is_asked_in_the_call(autojump_clock: MockClock) -> None:
    async with calling(workshop()) as caller:
        first = await caller.call("asks_first")
        assert first["resultType"] == "input_required"
        assert "taskId" not in first
        created = await caller.ask(
            "tools/call",
            name="asks_first",
            arguments={},
            inputResponses={"who": accept(name="Ann")},
            requestState=first["requestState"],
        )
        assert set(created) == ENVELOPE
        assert created["resultType"] == "task"
        assert list((await caller.until_asked(created))["inputRequests"]) == ["sure"]
        await caller.update(created, sure=accept(confirm=True))
        done = await caller.until_over(created)
        assert done["result"]["content"][0]["text"] == "{'name': 'Ann'} {'confirm': True}"


async def test_a_call_that_never_begins_a_task_is_answered_plainly(autojump_clock: MockClock) -> None:
    async with calling(workshop()) as caller:
        first = await caller.call("asks_first")
        result = await caller.ask(
            "tools/call",
            name="asks_first",
            arguments={},
            inputResponses={"who": {"action": "decline"}},
            requestState=first["requestState"],
        )
        assert (result["resultType"], result["content"][0]["text"]) == ("complete", "never mind")


async def test_a_task_that_began_in_a_repeated_request_can_be_cancelled(autojump_clock: MockClock) -> None:
    """The request that is answered with the handle has another id than the one that the work began in."""
    server = Server("repeated")
    ended: list[str] = []

    @server.tool(task="later")
    async def work(ctx: Context) -> str:
        await ctx.elicit("Who?", Name, key="who")
        await begin_task(ctx)
        try:
            await trio.sleep_forever()
        finally:
            ended.append("work")

    async with open_runtime(server) as runtime, visit(runtime) as caller:
        asked = await caller.call("work")
        created = await caller.ask(
            "tools/call",
            name="work",
            arguments={},
            inputResponses={"who": accept(name="Ann")},
            requestState=asked["requestState"],
        )
        await caller.ask("tasks/cancel", taskId=created["taskId"])
        await settled()
        assert ended == ["work"]
        assert (await caller.get(created))["status"] == "cancelled"
        assert not runtime.supervisor.exchanges


async def test_two_tasks_of_a_call_may_both_begin_the_task(autojump_clock: MockClock) -> None:
    server = Server("two")

    @server.tool(task="later")
    async def both(ctx: Context) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(begin_task, ctx)
            nursery.start_soon(begin_task, ctx)
        return "begun"

    async with calling(server) as caller:
        assert (await caller.until_over(await caller.call("both")))["status"] == "completed"


@pytest.mark.parametrize(
    ("timeout", "steps", "good"), [(None, 1, False), (None, 4, True), (300, 1, True), (5, 4, False)]
)
async def test_before_it_begins_a_task_has_the_time_limits_of_a_call(
    autojump_clock: MockClock, timeout: float | None, steps: int, good: bool
) -> None:
    """Two minutes of work: too long in one piece without progress, unless the tool may take that long."""
    server = Server("preparing")
    options: Any = {} if timeout is None else {"timeout": timeout}

    @server.tool(task="later", **options)
    async def prepare(ctx: Context) -> str:
        for step in range(steps):
            await ctx.progress(step, steps)
            await trio.sleep(120 / steps)
        await begin_task(ctx)
        return "prepared"

    async with open_runtime(server) as runtime, visit(runtime) as caller:
        if good:
            assert (await caller.call("prepare"))["resultType"] == "task"
        else:
            result = await caller.call("prepare")
            assert result["isError"]
            assert "The tool 'prepare' was stopped" in result["content"][0]["text"]
        await settled()
        assert not runtime.supervisor.exchanges


async def test_a_request_that_is_cancelled_before_the_task_begins_ends_the_work(autojump_clock: MockClock) -> None:
    server = Server("early")
    ended: list[str] = []

    @server.tool(task="later")
    async def think(ctx: Context) -> str:
        try:
            await trio.sleep(100)
        finally:
            ended.append("think")
        await begin_task(ctx)
        return "thought"

    async with open_runtime(server) as runtime, visit(runtime) as caller:
        request = await caller.begin("tools/call", name="think", arguments={})
        await settled()
        await caller.talk.notify("notifications/cancelled", requestId=request)
        await settled()
        assert ended == ["think"]
        assert not runtime.supervisor.exchanges


async def test_a_call_that_is_run_again_elsewhere_does_not_repeat_its_work(autojump_clock: MockClock) -> None:
    """The retry reaches another process: what `once` recorded travels with the state, into the task too."""
    server = Server("twice")
    done: list[str] = []

    @server.tool(task="later", replay=True)
    async def order(ctx: Context) -> str:
        number = await ctx.once("reserve", lambda: done.append("reserved") or 7)
        await ctx.elicit("Sure?", Confirm, key="sure")
        await begin_task(ctx)
        return f"{number} {await ctx.once('reserve', lambda: 8)}"

    async with open_runtime(server) as here, open_runtime(server) as there:
        there.parking.keys, there.parking.audience = here.parking.keys, here.parking.audience
        async with visit(here) as first, visit(there) as second:
            asked = await first.call("order")
            created = await second.ask(
                "tools/call",
                name="order",
                arguments={},
                inputResponses={"sure": accept(confirm=True)},
                requestState=asked["requestState"],
            )
            finished = await second.until_over(created)
            assert finished["result"]["content"][0]["text"] == "7 7"
            assert done == ["reserved"]


# -- bounds and time


async def test_a_task_is_unknown_after_its_time_to_live(autojump_clock: MockClock) -> None:
    async with calling(workshop(Tasks(ttl=60))) as caller:
        done = await caller.call("sleep", seconds=1)
        assert done["ttlMs"] == 60_000
        await caller.until_over(done)
        await trio.sleep(50)
        assert (await caller.get(done))["status"] == "completed"
        await trio.sleep(20)
        assert (await caller.refused("tasks/get", taskId=done["taskId"])).code == -32602


async def test_a_task_may_be_kept_without_a_limit(autojump_clock: MockClock) -> None:
    async with calling(workshop(Tasks(ttl=None))) as caller:
        created = await caller.call("sleep", seconds=1)
        assert created["ttlMs"] is None
        await trio.sleep(8_000)
        assert (await caller.get(created))["status"] == "completed"


async def test_a_task_that_still_works_then_is_ended(autojump_clock: MockClock) -> None:
    async with open_runtime(workshop(Tasks(ttl=60))) as runtime, visit(runtime) as caller:
        working = await caller.call("sleep", seconds=1000)
        asking = await caller.call("hello")
        await caller.until_asked(asking)
        await trio.sleep(61)
        assert not runtime.supervisor.exchanges
        for created in (working, asking):  # a client that follows it learns why it ended
            seen = await caller.get(created)
            assert (seen["status"], seen["error"]["message"]) == ("failed", "the task's time to live is over")
        await trio.sleep(60)
        for created in (working, asking):
            assert (await caller.refused("tasks/get", taskId=created["taskId"])).code == -32602


async def test_a_task_that_ignores_the_end_of_its_time_gives_its_slot_back(autojump_clock: MockClock) -> None:
    server = Server("stubborn")
    server.add_extension(Tasks(ttl=60, max_running=1))

    @server.tool(task=True)
    async def stubborn() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)
        return "late"

    async with calling(server) as caller:
        created = await caller.call("stubborn")
        await trio.sleep(61)
        assert (await caller.until_over(created))["error"]["message"] == "the task's time to live is over"
        assert (await caller.call("stubborn"))["resultType"] == "task"


async def test_only_so_many_tasks_are_at_work(autojump_clock: MockClock) -> None:
    async with open_runtime(workshop(Tasks(max_running=2))) as runtime, visit(runtime) as caller:
        first = await caller.call("sleep", seconds=10)
        await caller.call("sleep", seconds=20)
        error = await caller.refused("tools/call", name="sleep", arguments={"seconds": 1})
        assert (error.code, error.data) == (-32603, {"retryAfter": 10, "limit": "max_running"})
        assert len(runtime.supervisor.exchanges) == 2  # the refused one left nothing behind
        await caller.until_over(first)
        assert (await caller.call("sleep", seconds=1))["resultType"] == "task"


@pytest.mark.defect("D09")
async def test_a_task_of_a_serial_tool_takes_turns_with_the_calls_of_its_connection(autojump_clock: MockClock) -> None:
    server = Server("serial")

    @server.tool(task="auto", serial=True)
    async def work() -> str:
        await trio.sleep(10)
        return "done"

    async with open_runtime(server) as runtime, visit(runtime) as one, visit(runtime) as other:
        began = trio.current_time()
        await one.call("work")
        await other.call("work", PLAIN)
        assert trio.current_time() - began == pytest.approx(10, abs=1), "it did not wait for another connection"
        await one.call("work")
        await one.call("work", PLAIN)
        assert trio.current_time() - began == pytest.approx(30, abs=1)


async def test_a_result_that_is_too_large_fails_the_task(autojump_clock: MockClock) -> None:
    server = Server("large")
    server.add_extension(Tasks(max_result=1000))

    @server.tool(task=True)
    async def large() -> str:
        return "x" * 1001

    async with calling(server) as caller:
        done = await caller.until_over(await caller.call("large"))
        assert done["status"] == "failed"
        assert "1000 bytes" in done["error"]["message"]


@pytest.mark.defect("D02")
@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
async def test_a_task_whose_texts_cannot_be_encoded_ends_and_frees_its_slot(
    how: str, autojump_clock: MockClock
) -> None:
    server = Server("odd")
    server.add_extension(Tasks(max_running=1))

    @server.tool(task=True)
    async def odd(ctx: Context) -> str:
        await ctx.progress(1, message="half a pair: \ud83d")
        await trio.sleep(1 if how != "cancelled" else 1000)
        if how == "failed":
            raise MCPError(-32050, "half a pair: \ud83d")
        return "done"

    async with calling(server) as caller:
        created = await caller.call("odd")
        await trio.sleep(0.5)
        assert (await caller.get(created))["statusMessage"] == "half a pair: \\ud83d (1)"
        if how == "cancelled":
            await caller.ask("tasks/cancel", taskId=created["taskId"])
        over = await caller.until_over(created)
        assert over["status"] == how
        if how == "failed":
            assert over["error"]["message"] == "half a pair: \\ud83d"
        assert (await caller.call("odd"))["resultType"] == "task"


async def test_nothing_is_left_of_tasks_that_are_over(autojump_clock: MockClock) -> None:
    tasks = Tasks()
    async with open_runtime(workshop(tasks)) as runtime, visit(runtime) as caller:
        created = [await caller.call("sleep", seconds=n) for n in range(20)]
        for each in created:
            await caller.until_over(each)
        assert not runtime.supervisor.exchanges
        assert not tasks._running[runtime]
    assert not tasks._running


# -- the end of the process


async def test_a_drain_waits_for_tasks_and_fails_the_rest(autojump_clock: MockClock) -> None:
    async with open_runtime(workshop()) as runtime, visit(runtime) as caller:
        short = await caller.call("sleep", seconds=5)
        long = await caller.call("sleep", seconds=500)
        asking = await caller.call("hello")
        await caller.until_asked(asking)
        await runtime.drain(10)
        await settled()
        kept = [await runtime.store.tasks.get(created["taskId"]) for created in (short, long, asking)]
        assert [b'"completed"' in kept[0], b'"failed"' in kept[1], b'"failed"' in kept[2]] == [True] * 3
        assert b"shutting down" in kept[1]


async def test_a_task_that_waits_for_a_person_does_not_hold_up_a_drain(autojump_clock: MockClock) -> None:
    async with open_runtime(workshop()) as runtime, visit(runtime) as caller:
        await caller.until_asked(await caller.call("hello"))
        began = trio.current_time()
        await runtime.drain(25)
        assert trio.current_time() - began < 3


async def test_results_survive_a_restart_and_what_was_at_work_has_failed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with calling(workshop(), store=SqliteStore(path)) as caller:
        done = await caller.call("sleep", seconds=0)
        before = await caller.until_over(done, every=0)
        working = await caller.call("sleep", seconds=1000)
    async with calling(workshop(), store=SqliteStore(path)) as caller:
        assert await caller.get(done) == before
        lost = await caller.get(working)
        assert lost["status"] == "failed"
        assert lost["error"]["message"] == "the server was stopped while the task was running"
        assert await caller.get(working) == lost
        assert (await caller.refused("tasks/get", taskId="never-was")).code == -32602


# -- telling


async def test_listeners_hear_how_a_task_goes_on(autojump_clock: MockClock) -> None:
    async with open_runtime(workshop()) as runtime, visit(runtime) as caller, visit(runtime) as listener:
        created = await caller.call("hello")
        await caller.until_asked(created)
        handle = created["taskId"]
        request = await listener.begin("subscriptions/listen", notifications={"taskIds": [handle, "never-was"]})
        await trio.sleep(1)
        (method, acknowledged) = listener.talk.notified[0]
        assert method == "notifications/subscriptions/acknowledged"
        assert acknowledged["notifications"] == {"taskIds": [handle]}
        await caller.update(created, who=accept(name="Ann"))
        await trio.sleep(1)
        heard = listener.talk.heard("notifications/tasks")
        assert [task["status"] for task in heard] == ["input_required", "working", "completed"]
        assert heard[-1]["result"]["content"][0]["text"] == "hello Ann"
        assert {task["_meta"]["io.modelcontextprotocol/subscriptionId"] for task in heard} == {request}
        received = {key: value for key, value in heard[-1].items() if key != "_meta"}
        seen = await caller.get(created)
        assert received == {key: value for key, value in seen.items() if key not in ("_meta", "resultType")}


async def test_listening_to_tasks_needs_the_extension_and_ones_own_tasks(autojump_clock: MockClock) -> None:
    async with open_runtime(workshop()) as runtime:
        async with (
            visit(runtime, principal=ALICE) as alice,
            visit(runtime, principal=MALLORY) as mallory,
        ):
            created = await alice.call("sleep", seconds=5)
            wanted = {"taskIds": [created["taskId"]]}
            assert (await alice.refused("subscriptions/listen", PLAIN, notifications=wanted)).code == -32021
            await mallory.begin("subscriptions/listen", notifications=wanted)
            await alice.until_over(created)
            await settled()
            assert mallory.talk.notified[0][1]["notifications"] == {"taskIds": []}
            assert mallory.talk.heard("notifications/tasks") == []
            assert (await alice.refused("subscriptions/listen", notifications={"taskIds": "x"})).code == -32602


async def test_progress_becomes_the_status_message_and_nothing_else_is_sent(autojump_clock: MockClock) -> None:
    server = Server("busy")

    @server.tool(task=True)
    async def busy(ctx: Context) -> str:
        await ctx.progress(1, 4, "digging")
        await ctx.error("a log message")
        await trio.sleep(10)
        return "dug"

    async with calling(server) as caller:
        created = await caller.call("busy")
        await settled()
        assert (await caller.get(created))["statusMessage"] == "digging (1 of 4)"
        await caller.until_over(created)
        assert caller.talk.notified == []


# -- declaring


async def test_a_wrong_value_is_refused_when_it_is_declared() -> None:
    server = Server("wrong")
    with pytest.raises(DeclarationError, match='task= is True, False, "auto" or "later"'):

        @server.tool(task="sometimes")  # type: ignore[arg-type]
        async def wrong() -> str:
            return ""

    with pytest.raises(DeclarationError, match="ttl must be positive"):
        Tasks(ttl=0)


async def test_task_false_is_a_plain_tool() -> None:
    server = Server("plain")

    @server.tool(task=False)
    async def plain() -> str:
        return "at once"

    async with calling(server) as caller:
        assert (await caller.call("plain"))["resultType"] == "complete"


async def test_the_tools_of_an_included_server_are_tasks_of_the_one_that_includes_it(autojump_clock: MockClock) -> None:
    outer = Server("outer")
    outer.add_extension(Tasks(ttl=5))
    outer.include(workshop(Tasks(ttl=500)), prefix="in_")
    async with calling(outer) as caller:
        created = await caller.call("in_sleep", seconds=1)
        assert created["ttlMs"] == 5000
        assert (await caller.until_over(created))["status"] == "completed"


async def test_a_task_has_its_own_state_and_what_middleware_left(autojump_clock: MockClock) -> None:
    server = Server("state")
    entered: list[str] = []

    @server.session
    async def session(handle: Any) -> Any:
        entered.append("in")
        yield {"state": len(entered)}
        entered.append("out")

    async def mark(ctx: Context, request: Any, call_next: Any) -> Any:
        ctx.data["marked"] = request.method
        return await call_next(ctx, request)

    server.use(mark)

    @server.tool(task=True)
    async def look(ctx: Context) -> str:
        await trio.sleep(5)
        return f"{ctx.state} {ctx.data['marked']} {entered.count('in') - entered.count('out')}"

    async with calling(server) as caller:
        created = await caller.call("look")
        await trio.sleep(6)
        done = await caller.until_over(created)
        assert done["result"]["content"][0]["text"].endswith("tools/call 1")
        await settled()
        assert entered.count("in") == entered.count("out")
