"""Tasks across workers: they run in one, are read and steered at each, and outlive their worker where they may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import trio

from mcptrio import Context, Server
from mcptrio.extensions.tasks import Tasks, begin_task
from mcptrio.extensions.tasks.run import topic
from mcptrio.extensions.tasks.running import STOPPED
from tests.extensions.kit import WITH_TASKS
from tests.redis_server import RedisServer, running_server
from tests.stateless.kit import Json, Poster, Reply, Trail, accept, meta
from tests.transports.app_for_tests import Reader

from .posting import ADA, EVE, posting_worker, posting_workers
from .two_workers import until


@dataclass
class Name:
    name: str


def make_server(trail: Trail, cue: trio.Event) -> Server:
    server = Server("orders")
    server.add_extension(Tasks(poll=0.01))

    async def work(ctx: Context) -> str:
        trail("begun")
        try:
            name = await ctx.elicit("Who?", Name, key="name")
            order = await ctx.once("order", trail, f"ordered for {name.value.name if name.value else '-'}")
            await cue.wait()
        except trio.Cancelled:
            trail("cancelled")
            raise
        return f"{order} by {ctx.principal.subject if ctx.principal else 'anyone'}"

    async def later(ctx: Context) -> str:
        name = await ctx.elicit("Who?", Name, key="name")
        trail("agreed")
        await begin_task(ctx)
        await cue.wait()
        return f"done for {name.value.name if name.value else '-'}"

    server.add_tool(work, name="plain", task=True)
    server.add_tool(work, name="replayed", task=True, replay=True)
    server.add_tool(later, task="later", replay=True)
    return server


async def about(poster: Poster, method: str, task: str, **more: Any) -> Reply:
    return await poster.post(method, {"taskId": task, "_meta": meta(WITH_TASKS), **more})


async def begin(poster: Poster, tool: str) -> str:
    created = await poster.post("tools/call", {"name": tool, "arguments": {}, "_meta": meta(WITH_TASKS)})
    return str(created.result["taskId"])


async def look(poster: Poster, task: str, *statuses: str) -> Json:
    """Poll a task until it has one of these statuses."""
    with trio.fail_after(30):
        while (seen := (await about(poster, "tasks/get", task)).result)["status"] not in statuses:
            await trio.sleep(0.005)
    return seen


async def answer(poster: Poster, task: str) -> None:
    """Answer the question of a task, through any worker."""
    await look(poster, task, "input_required")
    assert (await update(poster, task)).status == 200


async def update(poster: Poster, task: str) -> Reply:
    return await about(poster, "tasks/update", task, inputResponses={"name": accept(name="Ada")})


async def listen(poster: Poster, task: str) -> Reader:
    wanted = {"notifications": {"taskIds": [task]}, "_meta": meta(WITH_TASKS)}
    stream = await poster.stream("subscriptions/listen", wanted)
    await stream.frame()
    return stream


async def hear(stream: Reader, *statuses: str) -> Json:
    with trio.fail_after(30):
        while (heard := (await stream.frame())["params"])["status"] not in statuses:
            pass
    return dict(heard)


def text_of(seen: Json) -> str:
    return str(seen["result"]["content"][0]["text"])


async def test_a_task_is_answered_and_read_at_another_worker(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        task = await begin(one.poster, "plain")
        await answer(other.poster, task)
        await until(lambda: "ordered for Ada" in one.trail.done)
        assert (await look(other.poster, task, "working"))["taskId"] == task  # its worker lives
        one.cue.set()
        assert text_of(await look(other.poster, task, "completed")) == "ordered for Ada by anyone"
        assert (await about(other.poster, "tasks/cancel", task)).status == 200  # over: nothing to do
        assert other.trail.done == []


async def test_a_task_is_cancelled_at_another_worker(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        task = await begin(one.poster, "plain")
        await look(other.poster, task, "input_required")
        assert (await about(other.poster, "tasks/cancel", task)).status == 200
        await until(lambda: one.trail.done == ["begun", "cancelled"])
        await look(other.poster, task, "cancelled")


async def test_the_task_of_another_principal_is_unknown_at_every_worker(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        task = await begin(one.as_principal(ADA), "plain")
        await look(other.as_principal(ADA), task, "input_required")
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            given = {"inputResponses": {"name": accept(name="Eve")}} if method == "tasks/update" else {}
            refusals = [
                await about(worker.as_principal(EVE), method, name, **given)
                for worker in (one, other)
                for name in (task, "invented")
            ]
            assert len({(reply.status, str(reply.error)) for reply in refusals}) == 1
        assert one.trail.done == ["begun"]
        await answer(other.as_principal(ADA), task)
        one.cue.set()
        assert text_of(await look(other.as_principal(ADA), task, "completed")) == "ordered for Ada by ada"


async def test_a_task_of_a_dead_worker_that_may_not_run_again_fails(redis_server: RedisServer) -> None:
    """A client that listens learns it, though it sends nothing."""
    async with posting_workers(make_server, redis_server.url) as (one, other):
        task = await begin(one.poster, "plain")
        await look(other.poster, task, "input_required")
        stream = await listen(other.poster, task)
        await one.freeze(other)
        heard = await hear(stream, "failed")
        assert heard["error"]["message"] == STOPPED
        assert (await look(other.poster, task, "failed"))["error"] == heard["error"]
        # The frozen worker goes on, and learns that the task is not its own: nothing that it does is stored.
        one.cue.set()
        await one.renew()
        await until(lambda: one.trail.done == ["begun", "cancelled"])
        assert (await about(one.poster, "tasks/get", task)).result["status"] == "failed"
        assert other.trail.done == []
        stream.hang_up()


async def test_a_task_of_a_dead_worker_that_may_run_again_does_so_once(redis_server: RedisServer) -> None:
    """Answers are not asked for again, results of `once` are found, and the caller is the same."""
    async with posting_workers(make_server, redis_server.url, 4) as (one, *others):
        (extension,) = one.server._app.extensions
        task = await begin(one.as_principal(ADA), "replayed")
        created = (await look(others[0].as_principal(ADA), task, "input_required"))["createdAt"]
        await answer(others[0].as_principal(ADA), task)
        await until(lambda: one.trail.done == ["begun", "ordered for Ada"])
        await one.store.flush()
        await one.freeze(others[0])
        await until(lambda: any(worker.trail.done for worker in others))
        for worker in others:
            await worker.renew()
            worker.cue.set()
        seen = await look(others[1].as_principal(ADA), task, "completed", "failed", "input_required")
        assert text_of(seen) == "ordered for Ada by ada"
        assert seen["createdAt"] == created
        assert [done for worker in others for done in worker.trail.done] == ["begun"]
        # The frozen worker comes to its own end of the task, which is neither stored nor shown.
        stream = await listen(others[0].as_principal(ADA), task)
        one.cue.set()
        await until(lambda: not extension._running[one.poster.endpoint.runtime])  # type: ignore[attr-defined]
        assert await look(one.as_principal(ADA), task, "completed") == seen
        one.poster.endpoint.runtime.bus.publish(topic(task), {"status": "mark"})
        while (heard := await hear(stream, "completed", "mark"))["status"] != "mark":
            assert heard["lastUpdatedAt"] == seen["lastUpdatedAt"]
        stream.hang_up()
        assert (await about(one.as_principal(EVE), "tasks/get", task)).error


async def test_a_task_that_was_taken_over_is_taken_over_again(redis_server: RedisServer) -> None:
    url = redis_server.url
    async with posting_workers(make_server, url, 3) as (one, other, third):
        task = await begin(one.poster, "replayed")
        await look(other.poster, task, "input_required")
        third.cluster.drain()  # it claims nothing yet
        await one.freeze(third)
        await until(lambda: other.trail.done == ["begun"])
        await answer(third.poster, task)
        await until(lambda: "ordered for Ada" in other.trail.done)
        await other.store.flush()
        async with posting_worker(make_server, url, "9") as fourth:
            await other.freeze(third)
            await fourth.renew()
            await until(lambda: fourth.trail.done == ["begun"])
            fourth.cue.set()
            assert text_of(await look(third.poster, task, "completed")) == "ordered for Ada by anyone"


async def test_a_task_that_began_later_runs_again_with_its_answers(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        known = {"_meta": meta(WITH_TASKS)}
        first = await one.poster.call("later", **known)
        created = await other.poster.call(
            "later", requestState=first.state, inputResponses={"name": accept(name="Ada")}, **known
        )
        task = created.result["taskId"]
        assert one.trail.done == ["agreed"]
        await one.freeze(other)
        await until(lambda: other.trail.done == ["agreed"])
        other.cue.set()
        assert text_of(await look(other.poster, task, "completed")) == "done for Ada"


async def test_a_lookup_takes_a_task_over_as_well(redis_server: RedisServer) -> None:
    """The worker that should have done it may have died too."""
    async with posting_workers(make_server, redis_server.url) as (one, other):
        task = await begin(one.poster, "plain")
        await look(other.poster, task, "input_required")
        other.poster.endpoint.runtime.takeovers.clear()
        await one.freeze(other)
        assert (await about(other.poster, "tasks/get", task)).result["status"] == "failed"


async def test_a_task_of_a_worker_that_leaves_goes_on_elsewhere(redis_server: RedisServer) -> None:
    url = redis_server.url
    async with posting_worker(make_server, url, "2") as other:
        async with posting_worker(make_server, url, "1") as one:
            moved, ended = await begin(one.poster, "replayed"), await begin(one.poster, "plain")
            await until(lambda: one.trail.done == ["begun", "begun"])
            await one.poster.endpoint.runtime.drain(0)
        await look(other.poster, moved, "input_required")
        await until(lambda: other.trail.done == ["begun"])
        assert (await look(other.poster, ended, "failed"))["taskId"] == ended


async def test_a_task_goes_on_after_the_store_was_emptied() -> None:
    with running_server() as server:
        async with posting_workers(make_server, server.url) as (one, other):
            task = await begin(one.poster, "plain")
            await look(other.poster, task, "input_required")
            server.command("FLUSHALL")
            for worker in (one, other):
                await worker.renew()
            with trio.fail_after(30):
                while await one.store.connection.ask("HGET", one.store._keys.task(task), "home") is None:
                    await one.renew()
                    await other.renew()
                while (updated := await update(other.poster, task)).status == 503:  # until all that was lost is back
                    assert b"retry-after" in updated.headers
                    await one.renew()
                    await other.renew()
            assert updated.status == 200
            one.cue.set()
            assert text_of(await look(other.poster, task, "completed")) == "ordered for Ada by anyone"


async def test_nothing_is_left_of_tasks_that_are_over(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        tasks = [await begin(worker.poster, "plain") for worker in (one, other, one)]
        await about(one.poster, "tasks/cancel", tasks[1])
        await answer(other.poster, tasks[0])
        one.cue.set()
        await look(other.poster, tasks[0], "completed")
        await one.freeze(other)
        await look(other.poster, tasks[2], "failed")
        keys = other.store._keys
        with trio.fail_after(30):
            while await other.store.connection.ask("SMEMBERS", keys.homes):
                await trio.sleep(0.01)
        assert not await other.store.connection.ask("SMEMBERS", keys.tasks_of(other.id))
