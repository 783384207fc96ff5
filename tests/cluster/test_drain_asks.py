"""A stateless call that asks while its server drains: the client gets a question that it can answer later, or an error.

The parked call itself ends with the drain, because a user may take minutes to answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from mcptrio import Context, Server
from mcptrio._actors.supervisor import Supervisor
from tests.stateless.kit import Poster, Reply, Trail, accept, posting

from .posting import posting_workers
from .two_workers import until

SHUTTING_DOWN = "the server is shutting down, and an answer could not be used any more"


def make_server(trail: Trail, cue: trio.Event, **options: Any) -> Server:
    server = Server("orders", **options)

    @server.tool(replay=True)
    async def again(ctx: Context) -> str:
        return await ask(ctx)

    @server.tool
    async def once(ctx: Context) -> str:
        return await ask(ctx)

    async def ask(ctx: Context) -> str:
        trail("begun")
        await cue.wait()
        answer = await ctx.elicit("Your name?", str, key="name")
        return f"hello {answer.value}"

    return server


async def ask_in_drain(
    poster: Poster, tool: str, late: bool, trail: Trail, cue: trio.Event, begin: Callable[[], object] = lambda: None
) -> Reply:
    """Have a tool ask its client while the server drains; return the response, after the drain has ended."""
    supervisor: Supervisor = poster.endpoint.runtime.supervisor
    replies: dict[str, Reply] = {}

    async def call(name: str) -> None:
        replies[name] = await poster.call(name)

    async def drain() -> None:
        begin()
        await supervisor.drain(60)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "again" if late else tool)
            await until(lambda: len(trail.done) == 1)
            nursery.start_soon(drain)
            await until(lambda: supervisor.draining)
            if late:
                nursery.start_soon(call, tool)
                await until(lambda: len(trail.done) == 2 or tool in replies)
            cue.set()
    return replies[tool]


@pytest.mark.parametrize("late", [False, True], ids=["before the drain", "late"])
@pytest.mark.parametrize("at", [0, 1], ids=["there", "at the other one"])
async def test_a_question_of_a_worker_that_drains_can_be_answered(url: str, at: int, late: bool) -> None:
    async with posting_workers(make_server, url) as workers:
        one = workers[0]
        asked = await ask_in_drain(one.poster, "again", late, one.trail, one.cue, one.cluster.drain)
        workers[1].cue.set()
        reply = await workers[at].poster.retry(asked, "again", name=accept(value="Ada"))
        assert reply.text == "hello Ada"


@pytest.mark.parametrize("late", [False, True], ids=["before the drain", "late"])
async def test_a_call_that_no_other_worker_may_repeat_asks_nothing_in_a_drain(url: str, late: bool) -> None:
    async with posting_workers(make_server, url) as (one, _):
        refused = await ask_in_drain(one.poster, "once", late, one.trail, one.cue, one.cluster.drain)
        assert refused.error["message"] == SHUTTING_DOWN


@pytest.mark.parametrize("keys", [["ab" * 32], None], ids=["keys", "no keys"])
@pytest.mark.parametrize("tool", ["again", "once"])
async def test_one_server_that_drains_asks_only_what_the_next_one_can_use(tool: str, keys: list[str] | None) -> None:
    make, trail, cue = partial(make_server, state_keys=keys), Trail(), trio.Event()
    async with posting(make(trail, cue)) as poster:
        asked = await ask_in_drain(poster, tool, False, trail, cue)
        late = await poster.call(tool)
        assert (late.status, late.headers[b"retry-after"]) == (503, b"5")
    if keys is None or tool == "once":
        assert asked.error["message"] == SHUTTING_DOWN
        return
    async with posting(make(trail, cue)) as poster:
        reply = await poster.retry(asked, tool, name=accept(value="Ada"))
        assert reply.text == "hello Ada"
