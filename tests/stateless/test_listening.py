"""`subscriptions/listen`: one request that stays open and gets the requested changes, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import Context, Server
from mcptrio._actors.asks import Asks
from mcptrio._actors.limits import Limits
from mcptrio._eras.stateless import SERVER_INFO, SUBSCRIPTION
from mcptrio._peer.era import Role
from mcptrio._peer.messages import Notified
from mcptrio.extensions import Extension, Heard
from mcptrio.server.features.listen import MAX_LISTENING, News
from mcptrio.transports.http_server.config import HttpConfig
from tests.server.talk import Talk, open_server, refusal
from tests.transports.app_for_tests import Client, Reader, request

from .kit import Poster, meta, posting


def make_server(*, prompts: bool = True, limits: Limits | None = None) -> Server:
    server = Server("news", limits=limits or Limits())

    @server.tool
    async def a_tool() -> str:
        return "a"

    if prompts:

        @server.prompt
        async def a_prompt() -> str:
            return "a"

    @server.resource("news://open")
    async def open_one() -> str:
        return "open"

    @server.resource("news://hidden", visible=lambda ctx: False)
    async def hidden() -> str:
        return "hidden"

    @server.resource("news://by/{name}")
    async def by_name(name: str) -> str:
        return name

    return server


async def another() -> str:
    return "another"


ALL = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


async def listen(poster: Poster, **wanted: Any) -> tuple[Reader, dict[str, Any]]:
    """An open stream, and its acknowledgement."""
    stream = await poster.stream("subscriptions/listen", {"notifications": wanted})
    return stream, await stream.frame()


def notification(method: str, subscription: Any, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": {SUBSCRIPTION: subscription}}}


async def test_the_acknowledgement_comes_first_and_says_what_is_heard(autojump_clock: MockClock) -> None:
    async with posting(make_server(prompts=False)) as poster:
        uris = ["news://open", "news://hidden", "news://by/me", "news://nowhere"]
        _, acknowledged = await listen(poster, **ALL, resourceSubscriptions=uris)
        # Neither what the server does not have, nor what this client could not read.
        assert acknowledged == notification(
            "notifications/subscriptions/acknowledged",
            1,
            notifications={
                "toolsListChanged": True,
                "resourcesListChanged": True,
                "resourceSubscriptions": ["news://open", "news://by/me"],
            },
        )


async def test_a_listener_gets_only_the_requested_kinds(autojump_clock: MockClock) -> None:
    server = make_server()
    async with posting(server) as poster:
        stream, _ = await listen(poster, toolsListChanged=True, resourceSubscriptions=["news://open"])
        server.add_prompt(another)
        server.add_resource("news://new", another)
        server.notify_resource_updated("news://by/me")
        server.notify_resource_updated("news://open")
        server.add_tool(another)
        assert await stream.frame() == notification("notifications/resources/updated", 1, uri="news://open")
        assert await stream.frame() == notification("notifications/tools/list_changed", 1)
        await poster.endpoint.runtime.drain(1)
        assert (await stream.frame())["id"] == 1


async def test_changes_are_sent_at_once(autojump_clock: MockClock) -> None:
    server = make_server()
    async with posting(server) as poster:
        stream, _ = await listen(poster, **ALL)
        began = trio.current_time()
        server.remove_tool("a_tool")
        assert (await stream.frame())["method"] == "notifications/tools/list_changed"
        assert trio.current_time() - began < 0.8


async def test_the_id_of_a_subscription_is_that_of_its_request_whatever_its_type(autojump_clock: MockClock) -> None:
    server = make_server()
    async with open_server(server) as join, join(opened=False) as talk:
        for name in ("a", 2, "2"):
            params = {"_meta": meta(), "notifications": {"toolsListChanged": True}}
            await talk.send(id=name, method="subscriptions/listen", params=params)
        await wait_all_tasks_blocked()
        server.add_tool(another)
        await wait_all_tasks_blocked()
        heard = talk.heard("notifications/tools/list_changed")
        assert sorted((params["_meta"][SUBSCRIPTION] for params in heard), key=repr) == ["2", "a", 2]


async def test_many_listeners_get_one_change(autojump_clock: MockClock) -> None:
    server = make_server()
    async with posting(server, HttpConfig(max_calls=10)) as poster:
        streams = [(await listen(poster, resourceSubscriptions=["news://open"]))[0] for _ in range(300)]
        server.notify_resource_updated("news://open")
        frames = [await stream.frame() for stream in streams]
        assert [frame["params"]["_meta"][SUBSCRIPTION] for frame in frames] == [*range(1, 301)]
        # Listeners take no place from calls.
        assert (await poster.call("a_tool")).text == "a"


async def test_the_number_of_listeners_is_limited(autojump_clock: MockClock) -> None:
    async with posting(make_server(), HttpConfig(max_listeners=2)) as poster:
        (first, _), _ = await listen(poster), await listen(poster)
        reply = await poster.post("subscriptions/listen", {"notifications": {}})
        assert reply.status == 503
        first.hang_up()
        await wait_all_tasks_blocked()
        await listen(poster)


@pytest.mark.defect("S7")
async def test_one_client_cannot_take_every_place_of_listeners(autojump_clock: MockClock) -> None:
    async with posting(make_server(), HttpConfig(max_listeners=8)) as greedy:
        greedy.client = ("192.0.2.1", 1)
        for _ in range(6):
            await listen(greedy)
        with trio.fail_after(60):  # an open stream would have no end
            assert (await greedy.post("subscriptions/listen", {"notifications": {}})).status == 503
        honest = Poster(greedy.endpoint, client=("192.0.2.2", 1))
        for _ in range(2):
            await listen(honest)


@pytest.mark.defect("S7")
async def test_one_client_cannot_subscribe_to_everything(autojump_clock: MockClock) -> None:
    """Subscriptions of all requests count together, long URIs more than once, and end with their request."""
    server = make_server(limits=Limits(max_subscriptions=8))
    async with posting(server) as greedy:
        places = greedy.endpoint.runtime.subscriptions
        greedy.client = ("192.0.2.1", 1)
        first, _ = await listen(greedy, resourceSubscriptions=["news://by/a", "news://by/b" + "x" * 500])
        assert places.used == 4
        await listen(greedy, resourceSubscriptions=["news://open", "news://nowhere"])
        wanted = {"notifications": {"resourceSubscriptions": ["news://open", "news://by/c"]}}
        reply = await greedy.post("subscriptions/listen", wanted)
        assert (reply.status, reply.error["data"]["limit"]) == (503, "max_subscriptions")
        honest = Poster(greedy.endpoint, client=("192.0.2.2", 1))
        stream, _ = await listen(honest, resourceSubscriptions=["news://open", "news://by/me"])
        server.notify_resource_updated("news://open")
        assert await stream.frame() == notification("notifications/resources/updated", 1, uri="news://open")
        first.hang_up()
        await wait_all_tasks_blocked()
        assert places.used == 4
        await listen(greedy, resourceSubscriptions=["news://open", "news://by/c"])


@pytest.mark.defect("S2")
async def test_requests_of_one_owner_match_their_resources_one_after_the_other() -> None:
    running: set[Any] = set()
    most = 0

    def visible(ctx: Context) -> bool:
        nonlocal most
        running.add(ctx._call)
        most = max(most, len(running))
        return True

    server = make_server()

    @server.resource("many://{name}", visible=visible)
    async def many(name: str, ctx: Context) -> str:
        return name

    async with posting(server) as poster, trio.open_nursery() as nursery:
        uris = [f"many://{number}" for number in range(20)]

        async def one() -> None:
            await listen(poster, resourceSubscriptions=uris)
            running.clear()

        for _ in range(5):
            nursery.start_soon(one)
        with trio.fail_after(30):
            await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert most <= 2, "the next one begins before the acknowledgement of the last is read"


async def test_a_slow_reader_gets_each_change_once_and_does_not_delay_others(autojump_clock: MockClock) -> None:
    server = make_server()
    async with posting(server, HttpConfig(outbox_events=4)) as poster:
        stream, _ = await listen(poster, resourceSubscriptions=["news://open", "news://by/me"], toolsListChanged=True)
        quick, _ = await listen(poster, resourceSubscriptions=["news://open"])
        for _ in range(1000):
            server.notify_resource_updated("news://open")
            server.notify_resource_updated("news://by/me")
            await wait_all_tasks_blocked()
            assert (await quick.frame())["params"]["uri"] == "news://open"
        server.add_tool(another)
        seen = []
        while (frame := await stream.frame())["method"] != "notifications/tools/list_changed":
            seen.append(frame["params"]["uri"])
        assert len(seen) < 20
        assert set(seen) == {"news://open", "news://by/me"}


class Narrow:
    """A link, and its session, that has room only when the test says so."""

    def __init__(self) -> None:
        self.full, self.sent = False, list[str]()
        self.link = self.inbox = self.service = self
        self.role = Role.CLIENT  # without turns of the event loop
        self.has_room = trio.Event()

    async def room(self) -> None:
        if self.full:
            await self.has_room.wait()

    def post_nowait(self, message: Notified) -> bool:
        self.sent.append(message.method)
        return True

    async def post(self, message: Notified) -> None:
        self.post_nowait(message)


async def test_a_change_that_waits_for_room_is_not_overtaken_by_a_later_one() -> None:
    link: Any = Narrow()
    link.asks = Asks(link)
    news = News(link, cast(Any, SimpleNamespace(start=SimpleNamespace(link=link, call=1))))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(news.deliver)
        await wait_all_tasks_blocked()
        news.add("first", {})
        assert link.sent == ["first"], "at once, without a task switch"
        link.full = True
        news.add("second", {})
        await wait_all_tasks_blocked()
        link.full = False
        link.has_room.set()
        news.add("third", {})  # there is room, but the second has not left yet
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert link.sent == ["first", "second", "third"]


async def test_changes_before_the_acknowledgement_is_read_are_not_lost(autojump_clock: MockClock) -> None:
    server = make_server()
    async with posting(server) as poster:
        stream = await poster.stream("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        server.add_tool(another)
        assert (await stream.frame())["method"] == "notifications/subscriptions/acknowledged"
        assert (await stream.frame())["method"] == "notifications/tools/list_changed"


async def test_a_drain_ends_a_stream_with_its_result(autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        stream, _ = await listen(poster, **ALL)
        await poster.endpoint.runtime.drain(25)
        frame = await stream.frame()
        assert frame["id"] == 1
        assert frame["result"]["resultType"] == "complete"
        assert frame["result"]["_meta"][SUBSCRIPTION] == 1
        assert frame["result"]["_meta"][SERVER_INFO]["name"] == "news"
        assert await stream.frame() is None
        assert trio.current_time() < 5


async def test_on_a_pipe_a_drain_sends_the_result_and_then_a_notification(autojump_clock: MockClock) -> None:
    """basic/patterns/cancellation: a server MUST send notifications/cancelled when it ends a subscription."""
    server = make_server()
    async with server._app.make_runtime().open() as runtime:
        from mcptrio.transports.memory.server import open_memory_link

        async with open_memory_link(runtime) as end, trio.open_nursery() as nursery:
            talk = Talk(end, {})
            nursery.start_soon(talk.read)
            number = await talk.begin("subscriptions/listen", _meta=meta(), notifications={"toolsListChanged": True})
            await wait_all_tasks_blocked()
            await runtime.drain(5)
            await wait_all_tasks_blocked()
            result, cancelled = talk.raw[-2:]
            assert b'"result"' in result
            assert talk.heard("notifications/cancelled")[0]["requestId"] == number
            assert b"notifications/cancelled" in cancelled
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["cancelled", "hung up"])
async def test_after_the_client_ended_it_nothing_more_comes(how: str, autojump_clock: MockClock) -> None:
    server = make_server()
    async with open_server(server) as join, join(opened=False) as talk:
        number = await talk.begin("subscriptions/listen", _meta=meta(), notifications=ALL)
        await wait_all_tasks_blocked()
        if how == "hung up":
            talk.end.close()
        else:
            await talk.notify("notifications/cancelled", requestId=number)
        await wait_all_tasks_blocked()
        before = list(talk.raw)
        server.add_tool(another)
        server.notify_resource_updated("news://open")
        await wait_all_tasks_blocked()
        assert talk.raw == before
        assert server._app.publisher.runtimes[0].bus._topics.keys() <= {"list tools", "list prompts", "list resources"}


async def test_a_disconnect_ends_it(autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        stream, _ = await listen(poster, resourceSubscriptions=["news://open"])
        runtime = poster.endpoint.runtime
        assert (len(runtime.supervisor.exchanges), poster.endpoint.exchanges.listen_places.used) == (1, 1)
        stream.hang_up()
        await wait_all_tasks_blocked()
        assert (len(runtime.supervisor.exchanges), poster.endpoint.exchanges.listen_places.used) == (0, 0)
        assert not any("news://" in topic for topic in runtime.bus._topics)


async def test_a_quiet_stream_is_kept_alive_with_comments(autojump_clock: MockClock) -> None:
    async with posting(make_server(), HttpConfig(heartbeat=15)) as poster:
        stream, _ = await listen(poster, **ALL)
        began = trio.current_time()
        for _ in range(3):
            chunk = await stream.chunk()
            assert chunk is not None
            assert chunk.startswith(b":")
        assert trio.current_time() - began == pytest.approx(45, abs=0.1)


async def test_a_listener_stays_longer_than_any_call_may(autojump_clock: MockClock) -> None:
    server = make_server()
    async with posting(server) as poster:
        stream, _ = await listen(poster, **ALL)
        await trio.sleep(3000)
        server.add_tool(another)
        assert (await stream.frame())["method"] == "notifications/tools/list_changed"


async def test_too_many_resources_are_refused(autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        uris = [f"news://by/{number}" for number in range(10_001)]
        reply = await poster.post("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
        assert reply.error["code"] == -32602


async def test_one_publish_reaches_subscribers_and_listeners_alike(autojump_clock: MockClock) -> None:
    """A stateful session that subscribed, and a stateless listener, at one endpoint."""
    server = make_server()
    async with posting(server) as poster:
        old = await Client.open(poster.endpoint)
        get = await old.listen()
        await old.post(request(5, "resources/subscribe", uri="news://open"))
        new, _ = await listen(poster, resourceSubscriptions=["news://open"], toolsListChanged=True)
        server.notify_resource_updated("news://open")
        server.add_tool(another)
        assert [(await new.frame())["method"] for _ in range(2)] == [
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]
        assert [(await get.frame())["method"] for _ in range(2)] == [
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]


async def test_listeners_take_no_place_from_calls_on_a_pipe(autojump_clock: MockClock) -> None:
    async with open_server(make_server()) as join, join(opened=False) as talk:
        for _ in range(100):
            await talk.begin("subscriptions/listen", _meta=meta(), notifications=ALL)
        result = await talk.request("tools/call", _meta=meta(), name="a_tool", arguments={})
        assert result["content"][0]["text"] == "a"


async def test_a_pipe_has_only_so_many_listeners(autojump_clock: MockClock) -> None:
    async with open_server(make_server()) as join, join(opened=False) as talk:
        for _ in range(MAX_LISTENING):
            await talk.begin("subscriptions/listen", _meta=meta(), notifications={})
        await talk.settled()  # handlers begin in random order: the last one would not always be the one too many
        refused = await refusal(talk, "subscriptions/listen", _meta=meta(), notifications={})
        assert refused.data == {"retryAfter": 5, "limit": "listeners"}
        result = await talk.request("tools/call", _meta=meta(), name="a_tool", arguments={})
        assert result["content"][0]["text"] == "a"


async def test_even_an_endpoint_without_streams_serves_listeners(autojump_clock: MockClock) -> None:
    server = make_server()
    async with posting(server, HttpConfig(json_only=True)) as poster:
        stream, _ = await listen(poster, **ALL)
        server.add_tool(another)
        assert (await stream.frame())["method"] == "notifications/tools/list_changed"


async def test_progress_and_logs_of_calls_are_not_on_the_stream(autojump_clock: MockClock) -> None:
    server = make_server()

    @server.tool
    async def talkative(ctx: Context) -> str:
        await ctx.info("hello")
        await ctx.progress(1)
        return "said"

    async with posting(server) as poster:
        stream, _ = await listen(poster, **ALL)
        spoken = meta(progressToken=7, **{"io.modelcontextprotocol/logLevel": "info"})
        reply = await poster.post("tools/call", {"name": "talkative", "arguments": {}, "_meta": spoken})
        assert [frame.get("method") for frame in reply.frames] == [
            "notifications/message",
            "notifications/progress",
            None,
        ]
        await poster.endpoint.runtime.drain(1)
        assert "result" in await stream.frame()


@pytest.mark.defect("D13")
async def test_a_listen_request_that_fails_half_way_leaves_no_subscription(autojump_clock: MockClock) -> None:
    class Fine(Extension):
        identifier = "test/fine"
        closed = False

        async def listen(self, ctx: Any, wanted: Any) -> Heard:
            return Heard(honoured={}, begin=lambda notify: self.close)

        def close(self) -> None:
            self.closed = True

    class Broken(Extension):
        identifier = "test/broken"

        async def listen(self, ctx: Any, wanted: Any) -> Heard:
            def begin(tell: Any) -> Any:
                raise RuntimeError("no")

            return Heard(honoured={}, begin=begin)

    server, fine = make_server(), Fine()
    server.add_extension(fine)
    server.add_extension(Broken())
    async with open_server(server) as join, join(opened=False) as talk:
        (runtime,) = server._app.publisher.runtimes

        def subscriptions() -> dict[str, int]:
            return {topic: len(heard) for topic, heard in runtime.bus._topics.items()}

        others = subscriptions()
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["news://open"]}
        await refusal(talk, "subscriptions/listen", _meta=meta(), notifications=wanted)
        before = len(talk.raw)
        server.notify_tools_changed()
        await talk.settled()
        assert fine.closed
        assert len(talk.raw) == before
        assert subscriptions() == others


async def test_a_change_carries_its_metadata_to_listeners(autojump_clock: MockClock) -> None:
    server = make_server()
    async with posting(server) as poster:
        stream, _ = await listen(poster, resourceSubscriptions=["news://open"])
        server.notify_resource_updated("news://open", {"why": "new"})
        about = (await stream.frame())["params"]
        assert (about["uri"], about["_meta"]["why"]) == ("news://open", "new")
        assert SUBSCRIPTION in about["_meta"]
