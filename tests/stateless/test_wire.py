"""The stateless protocol on the wire: metadata, headers, results, refusals, and the stateful one next to it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import Cache, Context, Header, Server, SessionHandle, SessionRefused
from mcptrio._eras.choose import ERAS
from mcptrio._eras.stateless import CAPABILITIES, LOG_LEVEL, SERVER_INFO, VERSION
from mcptrio.stores import MemoryStore, StoreLimits
from mcptrio.stores.base import StreamKey
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.message import Plain
from tests.server.talk import Refused, open_server
from tests.transports.app_for_tests import Client, exchange, head, initialize, plain, request, result_of

from .kit import DATE, Poster, Trail, ask, meta, posting

OLDER = [date for date, era in ERAS.items() if era.stateful]


def make_server(trail: Trail | None = None, **options: Any) -> Server:
    server = Server("wire", version="3", instructions="Be kind.", **options)
    trail = trail or Trail()

    @server.tool
    async def zebra() -> str:
        return "z"

    @server.tool
    async def region(
        region: Annotated[str, Header("Region")] = "",
        level: Annotated[int, Header("Level")] = 0,
        sure: Annotated[bool, Header("Sure")] = False,
    ) -> str:
        return f"{region} {level} {sure}"

    @server.tool
    async def slow(ctx: Context, seconds: float = 1000) -> str:
        trail("begun")
        try:
            await ctx.progress(1)
            await trio.sleep(seconds)
        except trio.Cancelled:
            trail("cancelled")
            raise
        return "slept"

    @server.tool(name="name-with-dash")
    async def dashed() -> str:
        return "dashed"

    for number in range(5):
        server.add_resource(f"wire://{number}", zebra, name=f"r{number}", description="r")

    @server.prompt
    async def hello() -> str:
        return "hello"

    return server


# -- what every request says of itself


@pytest.mark.parametrize(
    ("own", "code"),
    [
        (..., -32602),
        ({}, -32602),
        ({VERSION: DATE}, -32602),
        ({CAPABILITIES: {}}, -32602),
        ({VERSION: DATE, CAPABILITIES: []}, -32602),
        ({VERSION: 20260728, CAPABILITIES: {}}, -32602),
        ({VERSION: DATE, CAPABILITIES: {}, LOG_LEVEL: "loud"}, -32602),
    ],
    ids=str,
)
async def test_a_request_whose_metadata_is_incomplete_is_refused(
    own: Any, code: int, autojump_clock: MockClock
) -> None:
    async with posting(make_server()) as poster:
        reply = await poster.post("tools/list", {"_meta": own})
        assert (reply.status, reply.error["code"], reply.last["id"]) == (400, code, 1)


async def test_the_client_info_is_optional(autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        assert (await poster.post("tools/list", {"_meta": {VERSION: DATE, CAPABILITIES: {}}})).status == 200


@pytest.mark.parametrize("date", ["v999.0.0", "1900-01-01", *OLDER])
async def test_an_unsupported_version_is_refused_with_the_supported_ones(date: str, autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        reply = await poster.post("tools/list", {"_meta": {**meta(), VERSION: date}}, mcp_protocol_version=date)
        assert (reply.status, reply.error["code"]) == (400, -32022)
        assert reply.error["data"] == {"supported": [*reversed(ERAS)], "requested": date}


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "unknown/method"],
)
async def test_a_method_that_does_not_exist_is_not_found(method: str, autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        reply = await poster.post(method)
        assert (reply.status, reply.error["code"]) == (404, -32601)


async def test_a_server_without_prompts_has_no_list_of_them(autojump_clock: MockClock) -> None:
    async with posting(Server("bare")) as poster:
        assert (await poster.post("prompts/list")).status == 404
        assert "prompts" not in (await poster.post("server/discover")).result["capabilities"]


# -- headers: rows H15 to H20 of the catalogue of bad input


def sentinel(text: bytes) -> str:
    return f"=?base64?{b64encode(text).decode()}?="


@pytest.mark.parametrize(
    "headers",
    [
        {"mcp_protocol_version": None},
        {"mcp_protocol_version": OLDER[-1]},
        {"mcp_protocol_version": "v999.0.0"},
        {"mcp_method": None},
        {"mcp_method": "tools/list"},
        {"mcp_method": "TOOLS/CALL"},
        {"mcp_method": sentinel(b"tools/call")},
        {"mcp_name": None},
        {"mcp_name": "region"},
        {"mcp_name": "Zebra"},
        {"mcp_name": "=?base64?emVicmE?="},
        {"mcp_name": "=?base64?emVi!cmE=?="},
        {"mcp_name": sentinel(b"zebra\xff")},
        {"mcp_name": sentinel(b"region")},
        {"mcp_name": "=?BASE64?emVicmE=?="},
    ],
    ids=str,
)
async def test_a_header_that_differs_from_the_body_is_refused(headers: Any, autojump_clock: MockClock) -> None:
    """V36: what routes by the header and what runs by the body must see the same."""
    async with posting(make_server()) as poster:
        reply = await poster.post("tools/call", {"name": "zebra", "arguments": {}}, **headers)
        assert (reply.status, reply.error["code"], reply.last["id"]) == (400, -32020, 1)


@pytest.mark.parametrize("name", ["mcp-method", "mcp-name", "mcp-protocol-version"])
async def test_a_header_that_comes_twice_is_refused(name: str, autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        composed, body = poster.compose("tools/call", {"name": "zebra", "arguments": {}})
        value = composed.fields[name.encode()]
        doubled = type(composed)(method="POST", path="/mcp", headers=[*composed.headers, (name.encode(), value)])
        reply = await plain(poster.endpoint, doubled, body)
        assert (reply.status, json.loads(reply.body)["error"]["code"]) in ((400, -32020), (400, -32022))


@pytest.mark.parametrize("name", ["zebra", "  zebra ", "\tzebra", sentinel(b"zebra")])
async def test_blanks_around_a_value_and_the_coded_form_are_understood(name: str, autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        assert (await poster.post("tools/call", {"name": "zebra", "arguments": {}}, mcp_name=name)).text == "z"


REGION = {"name": "region"}


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"region": None}, {}),
        ({"region": "eu"}, {"mcp_param_region": "eu"}),
        ({"region": "eu"}, {"mcp_param_region": sentinel(b"eu")}),
        ({"region": "gr\u00fcn"}, {"mcp_param_region": sentinel("gr\u00fcn".encode())}),
        ({"region": "=?base64?x"}, {"mcp_param_region": "=?base64?x"}),
        ({"region": ""}, {"mcp_param_region": ""}),
        ({"level": 42}, {"mcp_param_level": "42"}),
        ({"level": 42}, {"mcp_param_level": "42.0"}),
        ({"level": -7}, {"mcp_param_level": "-7"}),
        ({"sure": True}, {"mcp_param_sure": "true"}),
        ({"sure": False}, {"mcp_param_sure": "false"}),
    ],
    ids=str,
)
async def test_an_argument_that_is_repeated_in_its_header_is_taken(
    arguments: Any, headers: Any, autojump_clock: MockClock
) -> None:
    async with posting(make_server()) as poster:
        reply = await poster.post("tools/call", {**REGION, "arguments": arguments}, **headers)
        assert reply.status == 200, reply


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {"mcp_param_region": "us"}),
        ({"region": "eu"}, {"mcp_param_region": "EU"}),
        ({}, {"mcp_param_region": "eu"}),
        ({"region": None}, {"mcp_param_region": "null"}),
        ({"region": "Hello"}, {"mcp_param_region": "=?base64?SGVsbG8?="}),
        ({"region": "Hello"}, {"mcp_param_region": "=?base64?SGVs!!!bG8=?="}),
        ({"region": "gr\u00fcn"}, {"mcp_param_region": "gr\u00fcn"}),
        ({"level": 42}, {"mcp_param_level": "43"}),
        ({"level": 42}, {"mcp_param_level": "42.5"}),
        ({"level": 42}, {"mcp_param_level": "0x2a"}),
        ({"level": 1}, {"mcp_param_level": "true"}),
        ({"sure": True}, {"mcp_param_sure": "True"}),
        ({"sure": True}, {"mcp_param_sure": "1"}),
    ],
    ids=str,
)
async def test_an_argument_that_its_header_does_not_repeat_is_refused(
    arguments: Any, headers: Any, autojump_clock: MockClock
) -> None:
    async with posting(make_server()) as poster:
        reply = await poster.post("tools/call", {**REGION, "arguments": arguments}, **headers)
        assert (reply.status, reply.error["code"]) == (400, -32020)


async def test_header_arguments_are_not_checked_on_a_pipe(autojump_clock: MockClock) -> None:
    async with open_server(make_server()) as join, join(opened=False) as talk:
        result = await ask(talk, "tools/call", name="region", arguments={"region": "eu"})
        assert result["content"][0]["text"] == "eu 0 False"


async def test_headers_of_sessions_are_ignored(autojump_clock: MockClock) -> None:
    """H20"""
    async with posting(make_server()) as poster:
        reply = await poster.post("tools/list", mcp_session_id="made-up", last_event_id="7")
        assert reply.status == 200
        assert b"mcp-session-id" not in reply.headers
        for method in ("GET", "DELETE"):
            refused = await plain(poster.endpoint, head(method, mcp_protocol_version=DATE))
            assert (refused.status, dict(refused.headers)[b"allow"]) == (405, b"POST")


async def test_a_response_or_a_batch_is_refused(autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        for body in (b'{"jsonrpc":"2.0","id":1,"result":{}}', b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]'):
            reply = await plain(poster.endpoint, head(mcp_protocol_version=DATE), body)
            assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, -32600)
        received = await plain(
            poster.endpoint, head(mcp_protocol_version=DATE), b'{"jsonrpc":"2.0","method":"notifications/cancelled"}'
        )
        assert (received.status, received.body) == (202, b"")


# -- results


async def test_every_result_says_its_type_and_who_made_it(autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        for method, params in {
            "server/discover": {},
            "tools/list": {},
            "prompts/list": {},
            "resources/list": {},
            "resources/templates/list": {},
            "resources/read": {"uri": "wire://1"},
            "prompts/get": {"name": "hello"},
            "tools/call": {"name": "zebra"},
        }.items():
            result = (await poster.post(method, params)).result
            assert result["resultType"] == "complete", method
            assert result["_meta"][SERVER_INFO] == {"name": "wire", "version": "3"}, method
            cached = method not in ("prompts/get", "tools/call")
            assert ("ttlMs" in result and "cacheScope" in result) is cached, method


async def test_a_result_that_a_handler_keeps_stays_as_it_is(autojump_clock: MockClock) -> None:
    """A handler may answer with the same object every time: nothing of one date gets into another's answers."""
    server, kept = make_server(), {"weather": "fine", "_meta": {"mine": 1}}

    async def weather(ctx: Context, params: Any) -> dict[str, Any]:
        return kept

    server.route("x/weather", weather)
    async with posting(server) as poster:
        alone = (await poster.post("x/weather")).result
        assert alone["resultType"] == "complete"
        assert set(alone["_meta"]) == {"mine", SERVER_INFO}
        client = await Client.open(poster.endpoint)
        assert result_of(await client.post(request(1, "x/weather"))) == {"weather": "fine", "_meta": {"mine": 1}}
    assert kept == {"weather": "fine", "_meta": {"mine": 1}}


async def test_discovery_opens_no_session(autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        reply = await poster.post("server/discover")
        assert reply.result["supportedVersions"] == [*reversed(ERAS)]
        assert reply.result["instructions"] == "Be kind."
        assert set(reply.result["capabilities"]) == {"logging", "prompts", "resources", "tools"}
        supervisor = poster.endpoint.runtime.supervisor
        assert (len(supervisor.sessions), len(supervisor.exchanges)) == (0, 0)


async def test_lists_come_in_the_order_of_declaration_every_time(autojump_clock: MockClock) -> None:
    names = ["zebra", "region", "slow", "name-with-dash"]
    for _ in range(3):
        async with posting(make_server()) as poster:
            for _ in range(2):
                listed = (await poster.post("tools/list")).result["tools"]
                assert [tool["name"] for tool in listed] == names


@pytest.mark.parametrize("scope", ["public", "private"])
async def test_all_pages_of_a_list_have_one_scope(scope: Any, autojump_clock: MockClock) -> None:
    async with posting(make_server(page_size=2, cache={"resources": Cache(ttl=1.5, scope=scope)})) as poster:
        hints, cursor = [], None
        while True:
            page = (await poster.post("resources/list", {} if cursor is None else {"cursor": cursor})).result
            hints.append((page["ttlMs"], page["cacheScope"]))
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        assert hints == [(1500, scope)] * 3
        tools = (await poster.post("tools/list")).result
        assert (tools["ttlMs"], tools["cacheScope"]) == (0, "private")


async def test_a_list_that_differs_between_callers_is_private_on_every_page(autojump_clock: MockClock) -> None:
    server = make_server(page_size=2, cache=Cache(ttl=60, scope="public"))

    @server.tool(visible=lambda ctx: ctx.principal == "me")
    async def mine() -> str:
        return "mine"

    async with posting(server) as poster:
        page = (await poster.post("tools/list")).result
        assert (page["ttlMs"], page["cacheScope"]) == (60_000, "private")


async def test_an_unknown_resource_is_an_invalid_parameter(autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        reply = await poster.post("resources/read", {"uri": "wire://none"})
        assert (reply.status, reply.error["code"], reply.error["data"]) == (200, -32602, {"uri": "wire://none"})


async def test_log_messages_are_sent_only_to_requests_that_set_a_level(autojump_clock: MockClock) -> None:
    server = Server("logs")

    @server.tool
    async def speak(ctx: Context) -> str:
        await ctx.debug("d")
        await ctx.warning("w")
        return "said"

    async with posting(server) as poster:
        assert len((await poster.call("speak")).frames) == 1
        spoken = {"name": "speak", "_meta": meta(**{LOG_LEVEL: "info"})}
        frames = (await poster.post("tools/call", spoken)).frames
        assert [frame["params"]["data"] for frame in frames[:-1]] == ["w"]


# -- cancelling


async def test_a_disconnect_cancels(autojump_clock: MockClock) -> None:
    trail = Trail()
    async with posting(make_server(trail)) as poster:
        stream = await poster.stream("tools/call", {"name": "slow", "_meta": meta(progressToken=1)})
        assert (await stream.frame())["method"] == "notifications/progress"
        stream.hang_up()
        await wait_all_tasks_blocked()
        assert trail.done == ["begun", "cancelled"]
        assert poster.endpoint.calls == 0


@pytest.mark.parametrize("config", [HttpConfig(), HttpConfig(json_only=True)], ids=["streams", "json_only"])
async def test_a_disconnect_before_anything_was_sent_cancels(config: HttpConfig, autojump_clock: MockClock) -> None:
    """Through the ASGI application, which notices the disconnect."""
    from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp

    trail = Trail()
    async with posting(make_server(trail), config) as poster:
        composed, body = poster.compose("tools/call", {"name": "slow"})
        sent: list[Any] = []

        async def receive() -> Any:
            if composed.target is None:
                composed.target = b"read"
                return {"type": "http.request", "body": body, "more_body": False}
            await trio.sleep(1)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": composed.headers, "http_version": "1.1"}
        await AsgiApp(poster.endpoint)(scope, receive, send)
        await wait_all_tasks_blocked()
        assert trail.done == ["begun", "cancelled"]
        assert trio.current_time() < 2
        assert poster.endpoint.calls == 0
        assert all(not message.get("body") for message in sent)


async def test_on_a_pipe_a_cancel_is_a_notification_and_nothing_follows_it(autojump_clock: MockClock) -> None:
    trail = Trail()
    async with open_server(make_server(trail)) as join, join(opened=False) as talk:
        number = await talk.begin("tools/call", _meta=meta(progressToken=1), name="slow", arguments={})
        await wait_all_tasks_blocked()
        assert len(talk.raw) == 1
        await talk.notify("notifications/cancelled", requestId=number)
        await trio.sleep(2000)
        assert len(talk.raw) == 1
        assert trail.done == ["begun", "cancelled"]
        assert (await ask(talk, "tools/call", name="zebra"))["content"][0]["text"] == "z"


# -- stateful and stateless clients, and servers for one kind only


async def test_stateful_and_stateless_clients_share_one_endpoint(autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        old = await Client.open(poster.endpoint)
        received: list[str] = []

        async def stateful() -> None:
            reply = await old.stream(request(1, "tools/call", name="slow", arguments={"seconds": 2}))
            received.append(json.loads((await reply.rest())[-1].data)["result"]["content"][0]["text"])

        async def stateless() -> None:
            received.append((await poster.call("slow", {"seconds": 2})).text)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stateful)
            nursery.start_soon(stateless)
        assert received == ["slept", "slept"]
        assert "resultType" not in result_of(await old.post(request(2, "tools/list")))
        assert "resultType" in (await poster.post("tools/list")).result


async def test_stateful_and_stateless_requests_share_one_pipe(autojump_clock: MockClock) -> None:
    async with open_server(make_server()) as join, join() as talk:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.text, "slow")
            nursery.start_soon(lambda: ask(talk, "tools/call", name="slow", arguments={"seconds": 2}))
            await wait_all_tasks_blocked()
            assert "resultType" in await ask(talk, "tools/list")
            assert "resultType" not in await talk.request("tools/list")
            assert await talk.request("ping") == {}
            with pytest.raises(Refused) as caught:
                await ask(talk, "ping")
            assert caught.value.code == -32601
            nursery.cancel_scope.cancel()


async def test_a_stateless_only_server_refuses_initialize_with_its_versions(autojump_clock: MockClock) -> None:
    server = make_server(protocols=[DATE])
    expected = {"supported": [DATE], "requested": "2025-11-25"}
    async with posting(server) as poster:
        reply = await plain(poster.endpoint, head(), initialize())
        error = json.loads(reply.body)["error"]
        assert (reply.status, error["code"], error["data"]) == (400, -32022, expected)
        assert DATE in error["message"]
        assert not poster.endpoint.runtime.supervisor.sessions
        for method in ("GET", "DELETE"):
            assert (await plain(poster.endpoint, head(method, mcp_session_id="x"))).status == 405
        assert (await poster.post("tools/list", mcp_session_id="x")).status == 200
        reply = await plain(poster.endpoint, head(), request(1, "tools/list"))
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, -32602)
    async with open_server(server) as join, join(opened=False) as talk:
        with pytest.raises(Refused) as caught:
            await talk.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={})
        assert (caught.value.code, caught.value.data) == (-32022, expected)
        assert "tools" in await ask(talk, "tools/list")


async def test_a_stateful_only_server_refuses_discover_with_its_versions(autojump_clock: MockClock) -> None:
    server = make_server(protocols=OLDER[-2:])
    expected = {"supported": OLDER[:-3:-1], "requested": DATE}
    async with posting(server) as poster:
        reply = await poster.post("server/discover")
        assert (reply.status, reply.error["code"], reply.error["data"]) == (400, -32022, expected)
    async with open_server(server) as join, join(opened=False) as talk:
        with pytest.raises(Refused) as caught:
            await ask(talk, "server/discover")
        assert (caught.value.code, caught.value.data) == (-32022, expected)


# -- the session function


async def test_the_session_function_is_run_around_every_request(autojump_clock: MockClock) -> None:
    server, trail = make_server(), Trail()

    @server.session
    async def around(session: SessionHandle) -> AsyncIterator[str]:
        info = session.client_info
        trail(
            f"{session.protocol_version} {info.name if info else '-'} {session.client_capabilities.roots is not None}"
        )
        yield "state"
        trail("left")

    @server.tool
    async def state(ctx: Context) -> str:
        return str(ctx.state)

    async with posting(server) as poster:
        assert (await poster.call("state")).text == "state"
        assert trail.done == [f"{DATE} kit True", "left"]
        await poster.post("tools/list")
        assert len(trail.done) == 4
    async with open_server(server) as join, join(opened=False) as talk:
        await ask(talk, "tools/list")
        assert len(trail.done) == 6


async def test_the_session_function_may_refuse_any_request(autojump_clock: MockClock) -> None:
    server = make_server()

    @server.session
    async def refuse(session: SessionHandle) -> AsyncIterator[None]:
        raise SessionRefused("not you")
        yield

    async with posting(server) as poster:
        for method, params in {"tools/list": {}, "server/discover": {}, "tools/call": {"name": "zebra"}}.items():
            assert (await poster.post(method, params)).error == {"code": -32600, "message": "not you"}


async def test_the_session_function_may_offer_less(autojump_clock: MockClock) -> None:
    from attrs import evolve

    server = make_server()

    @server.session
    async def less(session: SessionHandle) -> AsyncIterator[None]:
        session.capabilities = evolve(session.capabilities, prompts=None)
        yield

    async with posting(server) as poster:
        assert "prompts" not in (await poster.post("server/discover")).result["capabilities"]
        reply = await poster.post("prompts/list")
        assert (reply.status, reply.error["code"]) == (404, -32601)
        assert (await poster.post("tools/list")).status == 200


async def test_two_clients_are_never_mixed_up_although_their_ids_are_the_same(autojump_clock: MockClock) -> None:
    server = Server("echo")

    @server.tool
    async def echo(word: str, seconds: float) -> str:
        await trio.sleep(seconds)
        return word

    async with posting(server) as poster:
        received: dict[str, str] = {}

        async def one(number: int) -> None:
            reply = await Poster(poster.endpoint).call("echo", {"word": str(number), "seconds": number % 7})
            assert reply.last["id"] == 1
            received[str(number)] = reply.text

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(one, number)
        assert all(key == value for key, value in received.items())
        assert len(received) == 200


async def test_a_stream_whose_reader_left_keeps_nothing(autojump_clock: MockClock) -> None:
    server = Server("pouring")

    @server.tool
    async def pour(ctx: Context) -> str:
        for _ in range(100):
            await ctx.info("x" * 64 * 1024)
        return "poured"

    async with posting(server) as poster:
        reader = await poster.stream("tools/call", {"name": "pour", "_meta": meta(**{LOG_LEVEL: "debug"})})
        await trio.sleep(1)
        reader.reply.events.detach("disconnected")
        assert await reader.reply.events.next() is None


async def test_a_forwarded_request_gets_json_if_the_store_has_no_room_for_a_stream(autojump_clock: MockClock) -> None:
    store = MemoryStore(StoreLimits(streams=1))
    async with posting(make_server(), HttpConfig(sse_only=True), store) as poster:
        store.begin(StreamKey("another", "1"), owner="")
        composed, body = poster.compose("tools/call", {"name": "zebra", "arguments": {}})
        composed.remote = lambda retry: None
        reply = await exchange(poster.endpoint, composed, body)
        assert isinstance(reply, Plain)
        assert json.loads(reply.body)["result"]["content"][0]["text"] == "z"
