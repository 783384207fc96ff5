"""Parked calls (2026-07-28) across workers: a retry reaches the call wherever it waits, once."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from mcptrio import Context, Server
from mcptrio._actors import parking
from mcptrio.stores.base import StreamKey
from mcptrio.stores.redis.connection import StoreUnavailable
from tests.redis_server import RedisServer, running_server
from tests.stateless.kit import Reply, Trail, accept, meta

from .posting import ADA, EVE, PostingWorker, posting_workers
from .two_workers import until


@dataclass
class Name:
    name: str


def make_server(trail: Trail, cue: trio.Event) -> Server:
    server = Server("orders")

    async def steps(ctx: Context) -> str:
        trail("begun")
        name = await ctx.elicit("Who?", Name, key="name")
        order = await ctx.once("order", trail, f"ordered for {name.value.name if name.value else '-'}")
        sure = await ctx.elicit("Sure?", Name, key="sure")
        return f"{order}, {sure.action}"

    server.add_tool(steps, name="plain")
    server.add_tool(steps, name="replayed", replay=True)

    @server.tool
    async def report(ctx: Context) -> str:
        name = await ctx.elicit("Who?", Name, key="name")
        for number in range(3):
            await ctx.progress(number, 3)
        try:
            await cue.wait()
        except trio.Cancelled:
            trail("cancelled")
            raise
        return f"reported {name.value.name if name.value else '-'}"

    return server


async def test_a_retry_at_another_worker_continues_the_call_where_it_waits(redis_server: RedisServer) -> None:
    """The handler may not be run again, so it goes on in its stack frame."""
    async with posting_workers(make_server, redis_server.url) as (one, other):
        first = await one.poster.call("plain")
        second = await other.poster.retry(first, "plain", name=accept(name="Ada"))
        assert "Sure?" in str(second.asked)
        third = await other.poster.retry(second, "plain", sure=accept(name="Ada"))
        assert third.text == "ordered for Ada, accept"
        assert (one.trail.done, other.trail.done) == (["begun", "ordered for Ada"], [])


async def test_a_state_is_used_once_in_the_whole_cluster(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        first = await one.poster.call("replayed")
        assert (await other.poster.retry(first, "replayed", name=accept(name="Ada"))).asked
        for worker in (other, one):
            again = await worker.poster.retry(first, "replayed", name=accept(name="Eve"))
            assert again.error["message"] == parking.REFUSED
        assert (one.trail.done, other.trail.done) == (["begun", "ordered for Ada"], [])


async def test_the_state_of_another_principal_is_refused_at_every_worker(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        first = await one.as_principal(ADA).call("plain")
        refusals = [
            (await worker.as_principal(EVE).retry(first, "plain", name=accept(name="Eve"))).error
            for worker in (one, other)
        ]
        assert refusals[0] == refusals[1]
        assert refusals[0]["message"] == parking.REFUSED
        second = await other.as_principal(ADA).retry(first, "plain", name=accept(name="Ada"))
        assert "Sure?" in str(second.asked)
        assert one.trail.done == ["begun", "ordered for Ada"]


async def test_progress_and_the_answer_come_from_the_other_worker(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        first = await one.poster.call("report")
        given: dict[str, Any] = {"name": "report", "arguments": {}, "requestState": first.state}
        given |= {"inputResponses": {"name": accept(name="Ada")}, "_meta": meta(progressToken="t")}
        reader = await other.poster.stream("tools/call", given)
        assert [(await reader.frame())["params"]["progress"] for _ in range(3)] == [0, 1, 2]
        one.cue.set()
        assert (await reader.frame())["result"]["content"][0]["text"] == "reported Ada"
        assert await reader.frame() is None
        reader.hang_up()
        await until(lambda: not list(one.store._streams.index))  # nothing is left of it


async def test_a_stream_of_another_worker_is_followed_when_the_store_answers_again(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call runs, and its stream cannot be resumed: a slow moment of the store must not cost its answer."""
    async with posting_workers(make_server, redis_server.url) as (one, other):
        failures = 3
        prepare = other.store.mirrors.prepare

        async def fail_first(key: StreamKey) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise StoreUnavailable("slow")
            await prepare(key)

        monkeypatch.setattr(other.store.mirrors, "prepare", fail_first)
        first = await one.poster.call("report")
        given: dict[str, Any] = {"name": "report", "arguments": {}, "requestState": first.state}
        reader = await other.poster.stream("tools/call", {**given, "inputResponses": {"name": accept(name="Ada")}})
        one.cue.set()
        assert (await reader.frame())["result"]["content"][0]["text"] == "reported Ada"
        assert failures == 0


async def test_a_stream_that_begins_without_an_event(redis_server: RedisServer) -> None:
    """The answer takes longer than `stream_after`, and there is no progress."""
    async with posting_workers(make_server, redis_server.url) as (one, other):
        first = await one.poster.call("report")
        given: dict[str, Any] = {"name": "report", "arguments": {}, "requestState": first.state}
        reader = await other.poster.stream("tools/call", {**given, "inputResponses": {"name": accept(name="Ada")}})
        one.cue.set()
        assert (await reader.frame())["result"]["content"][0]["text"] == "reported Ada"


async def test_a_client_that_leaves_the_other_worker_cancels_the_call(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        for streams in (True, False):
            one.trail.done.clear()
            first = await one.poster.call("report")
            given: dict[str, Any] = {"name": "report", "arguments": {}, "requestState": first.state}
            given |= {"inputResponses": {"name": accept(name="Ada")}, "_meta": meta(progressToken="t")}
            if streams:
                reader = await other.poster.stream("tools/call", given)
                await reader.frame()
                reader.hang_up()
            else:
                del given["_meta"]
                with trio.move_on_after(0.02):
                    await other.poster.stream("tools/call", given)
            await until(lambda: one.trail.done == ["cancelled"])


async def test_a_call_of_a_dead_worker_is_replayed_once(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url, 3) as (one, other, third):
        first = await one.poster.call("replayed")
        await one.freeze(other, third)
        replies: list[Reply] = []

        async def retry(worker: PostingWorker) -> None:
            replies.append(await worker.poster.retry(first, "replayed", name=accept(name="Ada")))

        async with trio.open_nursery() as nursery:
            for worker in (other, third):
                nursery.start_soon(retry, worker)
        assert sorted("error" in reply.last for reply in replies) == [False, True]
        assert sorted(other.trail.done + third.trail.done) == ["begun", "ordered for Ada"]
        # It has lost the call itself, and another worker has used the state.
        await one.renew()
        again = await one.poster.retry(first, "replayed", name=accept(name="Ada"))
        assert again.error["message"] == parking.REFUSED
        assert one.trail.done == ["begun"]


async def test_a_call_of_a_dead_worker_that_may_not_run_again_is_refused(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        first = await one.poster.call("plain")
        await one.freeze(other)
        refused = await other.poster.retry(first, "plain", name=accept(name="Ada"))
        assert refused.error["message"] == parking.REFUSED
        assert other.trail.done == []


async def test_a_worker_that_dies_while_it_replays_frees_the_state(redis_server: RedisServer) -> None:
    """The result of `once` stays: it is found by the next worker that replays the call."""
    async with posting_workers(make_server, redis_server.url, 3) as (one, other, third):
        first = await one.poster.call("replayed")
        await one.freeze(other, third)
        marks = other.store.marks
        done = marks.done
        marks.done = lambda kind, *args, **kw: None if kind == "state" else done(kind, *args, **kw)  # type: ignore[method-assign]
        assert (await other.poster.retry(first, "replayed", name=accept(name="Ada"))).asked  # its client gets nothing
        assert (await third.poster.retry(first, "replayed", name=accept(name="Ada"))).error
        await other.freeze(third)
        assert "Sure?" in str((await third.poster.retry(first, "replayed", name=accept(name="Ada"))).asked)
        assert other.trail.done == ["begun", "ordered for Ada"]
        assert third.trail.done == ["begun"]


async def test_a_stream_of_a_worker_that_dies_ends_with_an_error(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        first = await one.poster.call("report")
        given: dict[str, Any] = {"name": "report", "arguments": {}, "requestState": first.state}
        given |= {"inputResponses": {"name": accept(name="Ada")}, "_meta": meta(progressToken="t")}
        reader = await other.poster.stream("tools/call", given)
        for _ in range(3):
            await reader.frame()
        await one.freeze(other)
        with trio.fail_after(30):
            assert (await reader.frame())["error"]["data"] == {"mayHaveRun": True}
            assert await reader.frame() is None


async def test_a_call_parked_here_is_resumed_while_the_store_is_down() -> None:
    with running_server() as server:
        # A stream would need the store, so the answer is plain, however long it takes.
        async with posting_workers(make_server, server.url, stream_after=60) as (one, other):
            one.cue.set()
            calls = [await one.poster.call("report") for _ in range(2)]
            server.stop()
            for worker, call in zip((one, other), calls, strict=True):  # also through the link
                assert (await worker.poster.retry(call, "report", name=accept(name="Ada"))).text == "reported Ada"


async def test_the_log_says_who_can_open_states(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcptrio.runtime")
    async with posting_workers(make_server, redis_server.url, 1):
        assert "anyone who can read the store can open them" in caplog.text
