"""Changes across workers: broadcasts, subscriptions, list changes and listen streams."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio
from attrs import evolve

from mcptrio import Server
from mcptrio.errors import DeclarationError
from tests.redis_server import RedisServer, running_server
from tests.server.test_durable_sessions import passivated
from tests.stateless.kit import Poster, Trail, endpoint_of
from tests.transports.app_for_tests import Client, Reader, exchange, request, result_of

from .posting import PostingWorker, posting_workers
from .two_workers import until


def make_server(trail: Trail, cue: trio.Event) -> Server:
    server = Server("orders")

    @server.resource("news://today")
    def today() -> str:
        "The news."
        return "rain"

    @server.resource("news://from/{slot}")
    def news(slot: str) -> str:
        "The news of a worker."
        return slot

    @server.tool
    def greet() -> str:
        "Greet."
        return "hello"

    @server.prompt
    def ask() -> str:
        "Ask."
        return "Why?"

    @server.on_broadcast("plugins")
    async def changed(names: list[str]) -> None:
        for name in names:
            server.add_tool(greet, name=name)
        trail(",".join(names))

    @server.on_broadcast("slow plugins")
    async def changed_slowly(name: str) -> None:
        await cue.wait()
        server.add_tool(greet, name=name)

    return server


async def listen(poster: Poster, **wanted: Any) -> Reader:
    stream = await poster.stream("subscriptions/listen", {"notifications": wanted})
    await stream.frame()
    return stream


async def tools_of(worker: PostingWorker) -> set[str]:
    return {tool["name"] for tool in (await worker.poster.post("tools/list")).result["tools"]}


async def test_a_broadcast_changes_every_worker(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    async with posting_workers(make_server, redis_server.url, 3) as workers:
        streams = [await listen(worker.poster, toolsListChanged=True) for worker in workers]
        workers[0].server.broadcast("plugins", ["one", "two"])
        for worker, stream in zip(workers, streams, strict=True):
            await until(lambda worker=worker: worker.trail.done == ["one,two"])  # type: ignore[misc]
            with trio.fail_after(30):
                assert (await stream.frame())["method"] == "notifications/tools/list_changed"
            assert await tools_of(worker) == {"greet", "one", "two"}
            stream.hang_up()
    assert "in this worker only" not in caplog.text


async def test_a_broadcast_notifies_each_client_once(redis_server: RedisServer) -> None:
    """Each worker changes its own list, and notifies its own clients only."""
    async with posting_workers(make_server, redis_server.url, 3) as workers:
        news = [f"news://from/{slot}" for slot in range(3)]
        streams = [await listen(worker.poster, toolsListChanged=True, resourceSubscriptions=news) for worker in workers]
        workers[0].server.broadcast("slow plugins", "one")
        with trio.fail_after(30):
            for worker, stream in zip(workers, streams, strict=True):
                worker.cue.set()
                assert (await stream.frame())["method"] == "notifications/tools/list_changed"
            for worker, uri in zip(workers, news, strict=True):
                worker.server.notify_resource_updated(uri)  # published after everything that the change published
            for stream in streams:
                assert {(await stream.frame())["method"] for _ in news} == {"notifications/resources/updated"}
                stream.hang_up()


async def test_a_session_that_was_passivated_hears_of_a_broadcast(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        client = await Client.open(one.poster.endpoint)
        await passivated(client)
        one.server.broadcast("plugins", ["one"])
        for worker in (one, other):
            await until(lambda worker=worker: worker.trail.done == ["one"] and not worker.store.bus._unsent)  # type: ignore[misc]
            await worker.store.connection.ask("PING")
        stream = await evolve(client, endpoint=other.poster.endpoint).listen()
        with trio.fail_after(30):
            assert (await stream.frame())["method"] == "notifications/tools/list_changed"
        stream.hang_up()


CHANGES: list[tuple[str, Callable[[Server], Any]]] = [
    ("tools", lambda server: server.add_tool(lambda: "x", name="late")),
    ("tools", lambda server: server.remove_tool("greet")),
    ("prompts", lambda server: server.add_prompt(lambda: "x", name="late")),
    ("resources", lambda server: server.add_resource("news://late", lambda: "x", name="late")),
]


@pytest.mark.parametrize(("kind", "change"), CHANGES, ids=["add tool", "remove tool", "add prompt", "add resource"])
async def test_a_change_of_one_worker_notifies_the_clients_of_all(
    redis_server: RedisServer, kind: str, change: Callable[[Server], Any]
) -> None:
    async with posting_workers(make_server, redis_server.url) as workers:
        streams = []
        for worker in workers:
            client = await Client.open(worker.poster.endpoint)
            streams += [await client.listen(), await listen(worker.poster, **{f"{kind}ListChanged": True})]
        change(workers[0].server)
        for stream in streams:
            with trio.fail_after(30):
                assert (await stream.frame())["method"] == f"notifications/{kind}/list_changed"
            stream.hang_up()


async def test_a_change_of_one_worker_logs_once_how_to_change_all(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        assert not [record for record in caplog.records if "on_broadcast" in record.getMessage()]
        for name in ("first", "second"):
            one.server.add_tool(lambda: "x", name=name)
        hints = [record for record in caplog.records if "on_broadcast" in record.getMessage()]
        assert [record.levelno for record in hints] == [logging.WARNING]
        assert "first" in await tools_of(one)
        assert "first" not in await tools_of(other)


async def test_a_broadcast_in_a_single_process() -> None:
    trail = Trail()
    server = Server("alone")
    release = trio.Event()

    @server.on_broadcast("level")
    async def level(value: Any) -> None:
        trail(f"level {value}")
        await release.wait()
        if value == 1:
            raise ValueError("a failure is logged, and the next value is taken")

    @server.on_broadcast("level")
    def plain(value: Any) -> None:
        trail(f"plain {value}")

    async with endpoint_of(server):
        with pytest.raises(DeclarationError, match="before serving"):
            server.on_broadcast("late")(plain)
        server.broadcast("unknown", {})
        server.broadcast("level", 1)
        await until(lambda: sorted(trail.done) == ["level 1", "plain 1"])
        for value in (2, 3):  # while the first value is being handled: the newest one counts
            server.broadcast("level", value)
        release.set()
        await until(lambda: "level 3" in trail.done and "plain 3" in trail.done)
        assert "level 2" not in trail.done
        with pytest.raises(TypeError):
            server.broadcast("level", object())
        await trio.to_thread.run_sync(server.broadcast, "level", 4)
        await until(lambda: "level 4" in trail.done)


async def test_a_session_hears_changes_of_another_worker(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other):
        client = await Client.open(one.poster.endpoint)
        await exchange(one.poster.endpoint, client.head(), request(1, "resources/subscribe", uri="news://today"))
        stream = await client.listen()
        with trio.fail_after(30):
            other.server.notify_resource_updated("news://today")
            assert (await stream.frame())["params"]["uri"] == "news://today"
            other.server.notify_tools_changed()
            assert (await stream.frame())["method"] == "notifications/tools/list_changed"


async def test_a_change_after_a_death_is_announced_for_the_spelling_that_is_left(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unsubscribing from one spelling of a URI does not forget the version at which the client saw the other one."""
    monkeypatch.setattr("mcptrio.stores.redis.bus.RECENT", -60)  # as if the change was an hour ago
    async with posting_workers(make_server, redis_server.url, stream_after=60) as (one, other):
        client = await Client.open(one.poster.endpoint)
        left, ended = "news://from/a%20b", "news://from/a b"
        for number, (word, uri) in enumerate((("", left), ("", ended), ("un", ended))):
            result_of(await client.post(request(number, f"resources/{word}subscribe", uri=uri)))
        await one.store.flush()
        await one.freeze(other)
        for followed in client.session.data["subscriptions"].values():
            followed.close()  # it hears nothing any more
        topic, bus = f"resource {left}", other.store.bus
        before = await bus.versions([topic])
        other.server.notify_resource_updated(left)
        with trio.fail_after(30):
            while await bus.versions([topic]) == before:
                await trio.sleep(0.01)
        stream = await evolve(client, endpoint=other.poster.endpoint).listen()
        with trio.fail_after(30):
            assert (await stream.frame())["params"] == {"uri": left}


async def test_changes_during_an_outage_arrive_after_it() -> None:
    """Each worker compares the versions of its topics when it is connected again."""
    with running_server("--save", "3600 1") as server:
        async with posting_workers(make_server, server.url) as (one, other):
            stream = await listen(other.poster, toolsListChanged=True, resourceSubscriptions=["news://today"])
            await until(lambda: len(other.store.bus._versions) >= 2)
            server.stop()
            await until(lambda: not one.store.connection.connected and not other.store.connection.connected)
            one.server.notify_resource_updated("news://today")
            one.server.broadcast("plugins", ["late"])
            server.start()
            with trio.fail_after(30):
                while (await stream.frame())["method"] != "notifications/resources/updated":
                    pass
            await until(lambda: other.trail.done == ["late"])
            stream.hang_up()
