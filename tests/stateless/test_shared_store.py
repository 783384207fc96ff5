"""Two processes behind one address, with one Redis store: requests that stand alone are served by either.

Two runtimes in one Trio run stand for the processes; they share nothing but the server of the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from mcptrio import Context, Server
from mcptrio._actors import parking
from mcptrio.extensions.tasks import Tasks
from mcptrio.stores.redis import RedisStore
from mcptrio.transports.http_server.config import HttpConfig
from tests.extensions.kit import WITH_TASKS
from tests.redis_server import RedisServer, lengthen_deadlines, running_server

from .kit import Poster, Trail, accept, meta, posting


@pytest.fixture(autouse=True)
def deadlines_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    lengthen_deadlines(monkeypatch)


@dataclass
class Name:
    name: str


def make_server(trail: Trail) -> Server:
    server = Server("orders")
    server.add_extension(Tasks(poll=0.01))

    async def steps(ctx: Context) -> str:
        trail("begun")
        name = await ctx.elicit("Who?", Name, key="name")
        order = await ctx.once("order", trail, f"ordered for {name.value.name if name.value else '-'}")
        age = await ctx.elicit("Sure?", Name, key="sure")
        return f"{order}, {age.action}"

    server.add_tool(steps, name="plain")
    server.add_tool(steps, name="replayed", replay=True)

    @server.tool
    async def greet(ctx: Context) -> str:
        name = await ctx.elicit("Who?", Name, key="name")
        return f"hello {name.value.name if name.value else '-'}"

    @server.tool(task=True)
    async def hello(ctx: Context) -> str:
        name = await ctx.elicit("Who?", Name, key="name")
        return f"hello {name.value.name if name.value else '-'}"

    @server.resource("news://today")
    def today() -> str:
        "The news."
        return "rain"

    return server


@asynccontextmanager
async def two_processes(url: str, trail: Trail | None = None) -> AsyncIterator[tuple[Poster, Poster]]:
    trail = trail or Trail()
    config = HttpConfig(stream_after=60)  # no answer becomes a stream because the machine is busy
    async with (
        posting(make_server(trail), config, RedisStore.from_url(url)) as one,
        posting(make_server(trail), config, RedisStore.from_url(url)) as other,
    ):
        yield one, other


async def test_a_call_that_waits_in_one_process_goes_on_in_another(redis_server: RedisServer) -> None:
    """No keys are configured: the key of the states comes from the store."""
    trail = Trail()
    async with two_processes(redis_server.url, trail) as (one, other):
        first = await one.call("replayed")
        second = await other.retry(first, "replayed", name=accept(name="Ada"))
        third = await one.retry(second, "replayed", sure=accept(name="Ada"))
        assert third.text == "ordered for Ada, accept"
    assert trail.done == ["begun", "begun", "ordered for Ada", "begun"]


async def test_a_state_is_used_once_in_all_processes(redis_server: RedisServer) -> None:
    trail = Trail()
    async with two_processes(redis_server.url, trail) as (one, other):
        asked = await one.retry(await one.call("replayed"), "replayed", name=accept(name="Ada"))
        assert (await other.retry(asked, "replayed", sure=accept(name="Ada"))).text == "ordered for Ada, accept"
        for poster in (other, one):
            trail.done.clear()
            again = await poster.retry(asked, "replayed", sure=accept(name="Ada"))
            if poster is other:
                assert again.error["message"] == parking.REFUSED
                assert trail.done == []


async def test_of_two_processes_that_get_one_state_at_once_one_replays_it(redis_server: RedisServer) -> None:
    trail, url = Trail(), redis_server.url
    async with posting(make_server(trail), store=RedisStore.from_url(url)) as gone:
        asked = await gone.call("replayed")
    trail.done.clear()
    replies: list[Any] = []
    async with two_processes(url, trail) as posters:

        async def retry(poster: Poster) -> None:
            replies.append(await poster.retry(asked, "replayed", name=accept(name="Ada")))

        async with trio.open_nursery() as nursery:
            for poster in posters:
                nursery.start_soon(retry, poster)
    assert sorted("error" in reply.last for reply in replies) == [False, True]
    assert trail.done == ["begun", "ordered for Ada"]


async def test_a_call_that_may_not_be_repeated_goes_on_only_where_it_waits(redis_server: RedisServer) -> None:
    trail = Trail()
    async with two_processes(redis_server.url, trail) as (one, other):
        asked = await one.call("plain")
        refused = await other.retry(asked, "plain", name=accept(name="Ada"))
        assert refused.error["message"] == parking.REFUSED
        assert "Sure?" in str((await one.retry(asked, "plain", name=accept(name="Ada"))).asked)


async def listen(poster: Poster, notifications: dict[str, Any], capabilities: Any = None) -> Any:
    stream = await poster.stream("subscriptions/listen", {"notifications": notifications, "_meta": meta(capabilities)})
    acknowledged = await stream.frame()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    return stream


async def test_a_listener_hears_changes_in_another_process(redis_server: RedisServer) -> None:
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["news://today"]}
    server, url = make_server(Trail()), redis_server.url
    async with (
        posting(server, store=RedisStore.from_url(url)) as one,
        posting(make_server(Trail()), store=RedisStore.from_url(url)) as other,
    ):
        near, far = await listen(one, wanted), await listen(other, wanted)
        server.remove_tool("greet")
        server.notify_resource_updated("news://today")
        with trio.fail_after(30):
            for stream in (near, far):
                frames = {frame["method"]: frame for frame in [await stream.frame(), await stream.frame()]}
                assert "notifications/tools/list_changed" in frames
                assert frames["notifications/resources/updated"]["params"]["uri"] == "news://today"
        server.notify_tools_changed()
        with trio.fail_after(30):
            for stream in (near, far):
                assert (await stream.frame())["method"] == "notifications/tools/list_changed"
        for stream in (near, far):
            stream.hang_up()


async def test_a_task_is_read_in_another_process(redis_server: RedisServer) -> None:
    async with two_processes(redis_server.url) as (one, other):
        known = {"_meta": meta(WITH_TASKS)}
        created = (await one.post("tools/call", {"name": "hello", "arguments": {}, **known})).result
        about = {"taskId": created["taskId"], **known}
        stream = await listen(other, {"taskIds": [created["taskId"]]}, WITH_TASKS)
        with trio.fail_after(30):
            while (seen := (await other.post("tasks/get", about)).result)["status"] != "input_required":
                pass
        assert "name" in seen["inputRequests"]
        # The answer cannot be delivered from there, and that is not hidden.
        for method, more in (("tasks/update", {"inputResponses": {"name": accept(name="Ada")}}), ("tasks/cancel", {})):
            refused = await other.post(method, {**about, **more})
            assert (refused.status, refused.headers[b"retry-after"]) == (503, b"1")
        await one.post("tasks/update", {**about, "inputResponses": {"name": accept(name="Ada")}})
        heard = []
        with trio.fail_after(30):
            while not heard or heard[-1]["status"] != "completed":
                heard.append((await stream.frame())["params"])
        assert heard[-1]["result"]["content"][0]["text"] == "hello Ada"
        assert (await other.post("tasks/get", about)).result["result"] == heard[-1]["result"]
        assert (await other.post("tasks/cancel", about)).status == 200  # over: nothing to do
        stream.hang_up()


async def test_calls_are_answered_while_the_server_of_the_store_is_down() -> None:
    with running_server() as server:
        async with two_processes(server.url) as (one, other):
            parked, asked = await one.call("greet"), await one.call("replayed")
            server.stop()
            with trio.fail_after(30):
                while one.endpoint.parts.store.degraded is None:
                    assert (await one.post("tools/list")).status == 200
                    one.endpoint.parts.store.tasks.put("anything", b"")
                    await trio.lowlevel.checkpoint()
                while not other.endpoint.parts.store.connection._failures:  # type: ignore[attr-defined]
                    await trio.lowlevel.checkpoint()
            assert (await one.post("tools/list")).status == 200
            refused = await other.retry(asked, "replayed", name=accept(name="Ada"))  # it cannot be claimed
            assert refused.status == 503
            assert refused.error["message"] == "overloaded: the store is not available"
            assert (await one.retry(parked, "greet", name=accept(name="Ada"))).text == "hello Ada"


async def test_processes_with_configured_keys_keep_them(redis_server: RedisServer) -> None:
    key = "00" * 32
    async with posting(Server("s", state_keys=[key]), store=RedisStore.from_url(redis_server.url)) as poster:
        assert poster.endpoint.runtime.parking.keys._keys == [bytes(32)]


async def test_a_large_result_is_read_in_another_process(redis_server: RedisServer) -> None:
    server, url = Server("large", max_result_bytes=1000), redis_server.url

    @server.tool
    async def text() -> str:
        return "x" * 2_000_000

    async with (
        posting(server, store=RedisStore.from_url(url)) as one,
        posting(server, store=RedisStore.from_url(url)) as other,
    ):
        link = (await one.call("text")).result["content"][-1]
        read = await other.post("resources/read", {"uri": link["uri"]})
        assert read.result["contents"][0]["text"] == "x" * 2_000_000
