"""Tasks of requests without a session: their owners, their scopes, and serial tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import define
from trio.testing import MockClock

from mcptrio import Context, Limits, Server
from mcptrio.auth.server import Principal
from mcptrio.extensions.tasks import Tasks
from mcptrio.stores import MemoryStore, StoreLimits
from tests.stateless.kit import Poster, Reply, endpoint_of, meta

from .kit import WITH_TASKS, Json

METHODS = ("tasks/get", "tasks/update", "tasks/cancel")


@define(eq=False, kw_only=True)
class HttpCaller(Poster):
    """A caller with scopes and an address."""

    scopes: frozenset[str] | None = None
    address: str = "192.0.2.1"

    def compose(self, method: str, params: Json, **headers: Any) -> tuple[Any, bytes]:
        self.client = (self.address, 1234)
        composed, body = super().compose(method, {"_meta": meta(WITH_TASKS), **params}, **headers)
        composed.scopes = self.scopes
        return composed, body

    async def task(self, method: str, created: Reply) -> Reply:
        return await self.post(method, {"taskId": created.result["taskId"], "inputResponses": {}})

    async def result_of(self, created: Reply) -> str:
        while (seen := await self.task("tasks/get", created)).result["status"] == "working":
            await trio.sleep(0.1)
        return str(seen.result["result"]["content"][0]["text"])


@asynccontextmanager
async def callers(server: Server, *described: Json, store: Any = None) -> AsyncIterator[list[HttpCaller]]:
    async with endpoint_of(server, store=store) as endpoint:
        yield [HttpCaller(endpoint=endpoint, **each) for each in described]


ALICE = Principal(subject="alice")


@pytest.mark.defect("S19")
@pytest.mark.parametrize("over", [False, True], ids=["running", "stored"])
async def test_neg_a_task_needs_the_scopes_of_its_tool(over: bool, autojump_clock: MockClock) -> None:
    server = Server("scoped")
    ended = []

    @server.tool(task=True, scopes=["reports:read"])
    async def report() -> str:
        try:
            await trio.sleep(10)
        finally:
            ended.append(trio.current_time())
        return "figures"

    rich = {"principal": ALICE, "scopes": frozenset({"reports:read", "other"})}
    poor = {"principal": ALICE, "scopes": frozenset({"other"})}
    async with callers(server, rich, poor) as (allowed, narrow):
        created = await allowed.call("report")
        if over:
            assert await allowed.result_of(created) == "figures"
        for method in METHODS:
            reply = await narrow.task(method, created)
            assert (reply.status, reply.error["data"]["error"]) == (403, "insufficient_scope")
            assert reply.error["data"]["scopes"] == ["reports:read"]
        assert len(ended) == over  # the refused cancellation ended nothing
        assert await allowed.result_of(created) == "figures"


async def test_a_task_knows_the_request_that_it_began_as(autojump_clock: MockClock) -> None:
    server = Server("s")

    @server.tool(task=True)
    async def who(ctx: Context) -> str:
        await trio.sleep(1)
        return f"{ctx.principal.subject} {ctx.http.client if ctx.http else None}"

    async with callers(server, {"principal": ALICE}) as (caller,):
        assert await caller.result_of(await caller.call("who")) == "alice 192.0.2.1"


def one_at_a_time() -> tuple[Server, list[int]]:
    server = Server("serial")
    inside: list[int] = [0, 0]

    @server.tool(task="auto", serial=True)
    async def work() -> str:
        inside[0] += 1
        inside[1] = max(inside)
        await trio.sleep(10)
        inside[0] -= 1
        return "done"

    @server.tool(serial=True)
    async def plain() -> str:
        inside[0] += 1
        inside[1] = max(inside)
        await trio.sleep(10)
        inside[0] -= 1
        return "done"

    return server, inside


BOB = Principal(subject="bob")


@pytest.mark.defect("D09")
@pytest.mark.parametrize("tool", ["work", "plain"])
@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ({"principal": ALICE}, {"principal": ALICE, "address": "192.0.2.9"}, 1),
        ({"principal": ALICE}, {"principal": BOB}, 2),
        ({"address": "192.0.2.1"}, {"address": "192.0.2.1"}, 1),
        ({"address": "192.0.2.1"}, {"address": "192.0.2.2"}, 2),
    ],
    ids=["one principal", "two principals", "one address", "two addresses"],
)
async def test_a_serial_tool_takes_one_call_of_a_caller_at_a_time(
    tool: str, first: Json, second: Json, together: int, autojump_clock: MockClock
) -> None:
    server, inside = one_at_a_time()
    async with callers(server, first, second) as both:

        async def call(caller: HttpCaller) -> None:
            reply = await caller.call(tool)
            text = await caller.result_of(reply) if tool == "work" else reply.text
            assert text == "done"

        async with trio.open_nursery() as nursery:
            for caller in both:
                nursery.start_soon(call, caller)
        assert inside[1] == together
        assert not both[0].endpoint.runtime.serial  # a lock goes with the last call that uses it


@pytest.mark.defect("D22")
async def test_two_runtimes_do_not_see_each_others_tasks(autojump_clock: MockClock) -> None:
    server, _ = one_at_a_time()
    alice = {"principal": ALICE}
    async with callers(server, alice) as (here,), callers(server, alice) as (there,):
        created = await here.call("work")
        assert (await there.task("tasks/get", created)).error["code"] == -32602
        await there.task("tasks/cancel", created)
        assert await here.result_of(created) == "done"


@pytest.mark.defect("D22")
async def test_a_task_that_runs_when_its_runtime_ends_is_stored_as_failed(autojump_clock: MockClock) -> None:
    server, _ = one_at_a_time()
    store = MemoryStore()
    alice = {"principal": ALICE}
    async with callers(server, alice, store=store) as (first,):
        created = await first.call("work")
    assert b'"failed"' in (await store.tasks.get(created.result["taskId"]) or b"")
    async with callers(server, alice, store=store) as (second,):
        reply = await second.task("tasks/get", created)
        assert reply.result["status"] == "failed"
        assert reply.result["error"]["message"] == "the server was stopped while the task was running"
        assert await second.result_of(await second.call("work")) == "done"


def sleeper(**bounds: Any) -> Server:
    server = Server("sleeper", limits=Limits(busy_timeout=2))
    server.add_extension(Tasks(**bounds))

    @server.tool(task=True)
    async def sleep(seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"

    return server


@pytest.mark.defect("S7")
async def test_one_client_cannot_take_every_place_of_running_tasks(autojump_clock: MockClock) -> None:
    async with callers(sleeper(max_running=8), {"principal": ALICE}, {"principal": BOB}) as (greedy, honest):
        for _ in range(6):
            assert (await greedy.call("sleep", {"seconds": 1000})).result["resultType"] == "task"
        refused = await greedy.call("sleep", {"seconds": 1000})
        assert refused.error["data"] == {"retryAfter": 10, "limit": "max_running"}
        began = trio.current_time()
        assert await honest.result_of(await honest.call("sleep", {"seconds": 0})) == "done"
        assert trio.current_time() - began < 1


@pytest.mark.defect("S7")
async def test_clients_that_wait_for_a_place_of_a_task_get_it_in_turn(autojump_clock: MockClock) -> None:
    order: list[str] = []
    async with callers(sleeper(max_running=1), {"principal": ALICE}, {"principal": BOB}) as (greedy, honest):

        async def call(caller: HttpCaller, name: str) -> None:
            await caller.call("sleep", {"seconds": 0.5})
            order.append(name)

        async with trio.open_nursery() as nursery:
            for caller, name in ((greedy, "g1"), (greedy, "g2"), (greedy, "g3"), (honest, "h")):
                nursery.start_soon(call, caller, name)
                await trio.sleep(0.01)
    assert order == ["g1", "g2", "h", "g3"]


@pytest.mark.defect("S7")
async def test_one_client_cannot_push_the_results_of_others_out(autojump_clock: MockClock) -> None:
    store = MemoryStore(StoreLimits(tasks=4))
    anonymous = [{"address": "192.0.2.1"}, {"address": "192.0.2.2"}]
    async with callers(sleeper(), *anonymous, store=store) as (greedy, honest):
        wanted = await honest.call("sleep", {"seconds": 0})
        first, *_ = [await greedy.call("sleep", {"seconds": 0}) for _ in range(6)]
        await trio.sleep(1)
        assert await honest.result_of(wanted) == "done"
        assert (await greedy.task("tasks/get", first)).error["code"] == -32602
