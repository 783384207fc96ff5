"""Streamable HTTP as a client speaks it: headers, sessions, streams, resuming, redirects, authorization."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import httpx2
import pytest
import trio
import trustme
from trio.testing import MockClock

from mcptrio import Client, ConnectionLost, MCPError, Overloaded, Reconnect, RemoteProtocolError, connect
from mcptrio.transports.http_client import AuthRequest, AuthResponse, HttpClientConfig, HttpRefused
from tests.client.kit import BOTH, STATEFUL
from tests.transports.scripted_http import URL, Answer, Asked, Handler, Web, event, refusal, result, stateful, stateless

OLD, NEW = BOTH
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}


def to(web: Web, **options: Any) -> Client:
    return connect(options.pop("url", URL), http_client=web.client(), **options)


def answer(asked: Asked) -> Answer:
    return Answer(200, result(asked, **DONE, tools=[], contents=[]))


async def call(handler: Handler, *, date: str = OLD, **options: Any) -> Any:
    """Call a tool on a server whose answer to it is `handler`'s; the connection's other parts work."""
    shell = stateful if date == OLD else stateless
    web = Web(shell(date, handler))
    options.setdefault("reconnect", Reconnect(tries=0))
    async with to(web, protocol=date, **options) as client:
        return await client.call_tool("t", {})


# -- headers and sessions


@pytest.mark.parametrize("date", [OLD, NEW])
async def test_headers_of_one_call_replace_those_of_the_connection_and_reach_no_other_request(date: str) -> None:
    web = Web((stateful if date == OLD else stateless)(date, answer))
    async with to(web, protocol=date, headers={"Authorization": "Bearer all", "X-All": "1"}) as client:
        async with trio.open_nursery() as nursery:
            for name in "abc":
                headers = {"authorization": f"Bearer {name}", "X-Name": name}
                nursery.start_soon(partial(client.call_tool, name, {}, headers=headers))
        await client.call_tool("d", {})
    for one in web.asked:
        if one.rpc == "tools/call" and (name := one.frame["params"]["name"]) != "d":
            assert (one.headers["authorization"], one.headers["x-name"]) == (f"Bearer {name}", name)
        else:
            assert (one.headers["authorization"], one.headers.get("x-name")) == ("Bearer all", None)
        assert one.headers["x-all"] == "1"


async def test_neg_a_result_for_headers_of_ones_own_is_not_cached() -> None:
    def handle(asked: Asked) -> Answer:
        contents = [{"uri": "a://b", "text": asked.headers.get("authorization", "anonymous")}]
        return Answer(200, result(asked, contents=contents, ttlMs=3_600_000, cacheScope="private"))

    async with to(Web(stateless(NEW, handle)), protocol=NEW) as client:

        async def read(**how: Any) -> Any:
            return (await client.read_resource("a://b", **how)).contents[0].text  # type: ignore[union-attr]

        assert await read(headers={"Authorization": "ada"}) == "ada"
        assert await read() == "anonymous"
        assert await read(headers={"Authorization": "eve"}) == "eve"
        assert await read() == "anonymous"


async def test_a_stateful_session_carries_its_id_and_date_and_is_deleted_at_the_end() -> None:
    web = Web(stateful(OLD, answer))
    async with to(web, protocol=OLD) as client:
        await client.call_tool("t", {})
        await trio.testing.wait_all_tasks_blocked()
    first, *others = web.asked
    assert first.rpc == "initialize"
    assert "mcp-session-id" not in first.headers
    assert "mcp-protocol-version" not in first.headers
    assert [one.headers["mcp-session-id"] for one in others] == ["s-1"] * len(others)
    assert {one.headers["mcp-protocol-version"] for one in others} == {OLD}
    assert web.asked[-1].method == "DELETE"
    for one in web.asked:
        if one.method == "POST":
            assert "application/json" in one.headers["accept"]
            assert "text/event-stream" in one.headers["accept"]
    assert web.closed == len(web.asked), "every response is closed"


async def test_the_date_without_version_headers_gets_none() -> None:
    web = Web(stateful(STATEFUL[1], answer))
    async with to(web, protocol=STATEFUL[1]) as client:
        await client.call_tool("t", {})
    assert not [one for one in web.asked if "mcp-protocol-version" in one.headers]


async def test_a_later_session_id_does_not_replace_the_first() -> None:
    def change(asked: Asked) -> Answer:
        return Answer(200, result(asked, **DONE), {"mcp-session-id": "another"})

    web = Web(stateful(OLD, change))
    async with to(web, protocol=OLD) as client:
        await client.call_tool("t", {})
        await client.call_tool("t", {})
    assert web.of("tools/call")[1].headers["mcp-session-id"] == "s-1"


@pytest.mark.parametrize("session", ["with space", "\x7f"])
async def test_a_session_id_with_odd_characters_is_refused(session: str) -> None:
    web = Web(stateful(OLD, answer, session=session))
    with pytest.raises(RemoteProtocolError):
        async with to(web, protocol=OLD):
            pass


async def test_a_stateless_request_says_in_headers_what_its_body_says() -> None:
    web = Web(stateless(NEW, answer))
    async with to(web) as client:
        await client.call_tool("naïve tool", {})
        await client.read_resource("file:///a%20b")
    assert "GET" not in [one.method for one in web.asked]
    assert {one.headers["mcp-protocol-version"] for one in web.asked} == {NEW}
    assert [one.headers["mcp-method"] for one in web.asked] == [one.rpc for one in web.asked]
    assert web.of("tools/call")[0].headers["mcp-name"] == "=?base64?bmHDr3ZlIHRvb2w=?="
    assert web.of("resources/read")[0].headers["mcp-name"] == "file:///a%20b"
    assert not [one for one in web.asked if "mcp-session-id" in one.headers]


TOOL = {
    "name": "t",
    "inputSchema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
}
BAD = {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": "array", "x-mcp-header": "A"}}}}


async def test_marked_arguments_are_mirrored_and_badly_marked_tools_left_out() -> None:
    def handle(asked: Asked) -> Answer:
        return Answer(200, result(asked, **DONE, tools=[TOOL, BAD]))

    web = Web(stateless(NEW, handle))
    async with to(web) as client:
        assert [tool.name for tool in await client.list_tools()] == ["t"]
        await client.call_tool("t", {"region": "us"})
    assert web.of("tools/call")[0].headers["mcp-param-region"] == "us"


async def test_a_header_that_was_missing_is_learnt_and_sent() -> None:
    """The tool was never listed, so the client did not know; the server says so, and the call is made again."""

    def handle(asked: Asked) -> Answer:
        if asked.rpc == "tools/list":
            return Answer(200, result(asked, tools=[TOOL]))
        if "mcp-param-region" not in asked.headers:
            return Answer(400, refusal(asked, -32020))
        return Answer(200, result(asked, **DONE))

    web = Web(stateless(NEW, handle))
    async with to(web) as client:
        assert (await client.call_tool("t", {"region": "us"})).content
    assert [one.rpc for one in web.asked[1:]] == ["tools/call", "tools/list", "tools/call"]


# -- which date


async def test_an_old_server_is_found_by_its_refusal() -> None:
    web = Web(stateful(OLD, answer))
    async with to(web) as client:
        assert client.protocol_version == OLD
    assert [one.rpc for one in web.asked][:3] == ["server/discover", "initialize", "notifications/initialized"]


async def test_a_modern_refusal_is_not_taken_for_an_old_server() -> None:
    def handle(asked: Asked) -> Answer:
        return Answer(400, refusal(asked, -32021, {"requiredCapabilities": {"sampling": {}}}))

    web = Web(handle)
    with pytest.raises(MCPError) as caught:
        async with to(web):
            pass
    assert caught.value.code == -32021
    assert [one.rpc for one in web.asked] == ["server/discover"]


async def test_the_oldest_transport_is_the_last_resort() -> None:
    events, more = trio.open_memory_channel[bytes](10)

    async def stream(first: bytes) -> Any:
        yield first
        async for data in more:
            yield data

    async def handle(asked: Asked) -> Answer:
        if asked.url == URL:
            if asked.method == "POST":
                return Answer(405, b"Method Not Allowed")
            first = b"event: endpoint\ndata: /messages?id=7\n\n"
            return Answer(200, stream(first), {"content-type": "text/event-stream"})
        assert asked.url == "http://server.test/messages?id=7"
        if "id" in asked.frame:
            values: dict[str, Any] = {"tools": []}
            if asked.rpc == "initialize":
                info = {"name": "old", "version": "1"}
                values = {"protocolVersion": STATEFUL[0], "capabilities": {"tools": {}}, "serverInfo": info}
            await events.send(event(result(asked, **values)))
        return Answer(202, b"Accepted")

    web = Web(handle)
    async with to(web) as client:
        assert client.transport == "sse"
        assert client.protocol_version == STATEFUL[0]
        assert await client.list_tools() == ()
        await events.aclose()


@pytest.mark.parametrize("endpoint", ["http://evil.test/x", "//evil.test/x", "https://server.test/x"])
async def test_the_oldest_transport_does_not_post_to_another_origin(endpoint: str) -> None:
    def handle(asked: Asked) -> Answer:
        if asked.method == "POST":
            return Answer(405, b"no")
        return Answer(200, [f"event: endpoint\ndata: {endpoint}\n\n".encode(), 5.0])

    web = Web(handle)
    with pytest.raises(RemoteProtocolError):
        async with to(web):
            pass
    assert {one.url for one in web.asked} == {URL}


# -- streams


@pytest.mark.parametrize("date", BOTH)
async def test_an_answer_may_come_as_a_stream(date: str) -> None:
    def handle(asked: Asked) -> Answer:
        token = asked.frame["params"]["_meta"]["progressToken"]
        progress = {"jsonrpc": "2.0", "method": "notifications/progress"}
        params = {"progressToken": token, "progress": 1}
        whole = event({**progress, "params": params}) + event(result(asked, **DONE))
        return Answer(200, [bytes([byte]) for byte in whole])

    assert (await call(handle, date=date)).content


async def test_a_stream_that_was_closed_is_taken_up_again_to_the_millisecond(autojump_clock: MockClock) -> None:
    calls: list[Asked] = []

    def handle(asked: Asked) -> Answer:
        calls.append(asked)
        if asked.method == "POST":
            return Answer(200, [event(None, id="e1", retry=500)])
        assert asked.headers["last-event-id"] == f"e{len(calls) - 1}"
        if len(calls) < 4:
            return Answer(200, [event(None, id=f"e{len(calls)}")])
        return Answer(200, [event(result(calls[0], **DONE), id="e9")])

    assert (await call(handle)).content
    assert [after.at - before.at for before, after in itertools.pairwise(calls)] == pytest.approx([0.5] * 3)


async def test_a_broken_stream_is_taken_up_again_without_a_gap_or_a_repeat(autojump_clock: MockClock) -> None:
    seen: list[float] = []
    calls: list[Asked] = []

    def progress(number: int) -> bytes:
        params = {"progressToken": calls[0].frame["params"]["_meta"]["progressToken"], "progress": number}
        return event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}, id=str(number))

    def handle(asked: Asked) -> Answer:
        calls.append(asked)
        cursor = int(asked.headers.get("last-event-id", 0))
        if cursor < 9:
            broken = progress(cursor + 3)[:20]  # an event that is cut off counts for nothing
            pieces = [progress(cursor + 1), progress(cursor + 2), broken]
            return Answer(200, [*pieces, httpx2.ReadError("reset")])
        return Answer(200, [event(result(calls[0], **DONE), id="99")])

    web = Web(stateful(OLD, handle))
    async with to(web, protocol=OLD) as client:
        await client.call_tool("t", {}, on_progress=lambda p: seen.append(p.progress))
    assert seen == list(range(1, 11))


async def test_a_stateless_stream_that_breaks_ends_the_call() -> None:
    def handle(asked: Asked) -> Answer:
        return Answer(200, [event(None, id="e1"), httpx2.ReadError("reset")])

    with pytest.raises(ConnectionLost):
        await call(handle, date=NEW)


@pytest.mark.parametrize("trouble", [httpx2.ConnectError("refused"), httpx2.ReadError("reset"), 503, 404])
async def test_a_stream_that_cannot_be_continued_is_given_up_and_the_call_not_repeated(
    trouble: Any, autojump_clock: MockClock
) -> None:
    """The call did arrive: not even an error that says "not delivered" makes it safe to repeat."""
    posts = gets = 0

    def handle(asked: Asked) -> Answer:
        nonlocal posts, gets
        if asked.method == "POST":
            posts += 1
            return Answer(200, [event(None, id="e1")])
        gets += 1
        if isinstance(trouble, Exception):
            raise trouble
        return Answer(trouble)

    with pytest.raises(ConnectionLost):
        await call(handle, timeout=600, reconnect=Reconnect(tries=8))
    assert posts == 1
    assert gets == (9 if trouble != 404 else 1)


async def test_a_stream_that_always_ends_at_once_with_a_fresh_id_ends_with_the_calls_time(
    autojump_clock: MockClock,
) -> None:
    polls = 0

    def handle(asked: Asked) -> Answer:
        nonlocal polls
        polls += 1
        return Answer(200, [event(None, id=f"e{polls}", retry=0)])

    from mcptrio import RequestTimeout

    with pytest.raises(RequestTimeout):
        await call(handle, timeout=30)
    assert polls <= 30 / 0.1 + 5, "it does not spin"


async def test_cancelling_closes_the_stream_and_says_so_only_where_it_must(autojump_clock: MockClock) -> None:
    for date, shell in ((OLD, stateful), (NEW, stateless)):
        web = Web(shell(date, lambda asked: Answer(200, [3600.0]) if "id" in asked.frame else Answer(202)))
        async with to(web, protocol=date) as client:
            with trio.move_on_after(1):
                await client.call_tool("t", {})
            await trio.testing.wait_all_tasks_blocked()
            assert len(web.of("notifications/cancelled")) == (1 if date == OLD else 0)
            assert web.closed == len(web.asked)


async def test_notifications_of_the_server_arrive_on_its_own_stream() -> None:
    heard: list[str] = []
    received = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

    def with_stream(asked: Asked) -> Any:
        if asked.method == "GET":
            return Answer(200, [event(received, id="g1"), 3600.0])
        return stateful(OLD, answer)(asked)

    web = Web(with_stream)
    async with to(web, protocol=OLD, on_notification=lambda method, _: heard.append(method)) as client:
        await client.call_tool("t", {})
        await trio.testing.wait_all_tasks_blocked()
    assert heard == ["notifications/tools/list_changed"]


async def test_a_server_request_on_the_stream_of_a_call_is_answered() -> None:
    answered = trio.Event()

    async def stream(asked: Asked) -> Any:
        yield event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
        await answered.wait()
        yield event(result(asked, **DONE))

    def handle(asked: Asked) -> Answer:
        if asked.rpc == "tools/call":
            return Answer(200, stream(asked), {"content-type": "text/event-stream"})
        assert asked.frame["result"] == {"roots": [{"uri": "file:///a"}]}
        answered.set()
        return Answer(202)

    assert (await call(handle, roots=["file:///a"])).content


@pytest.mark.defect("S6")
async def test_an_answer_that_the_server_does_not_accept_is_replaced_by_an_error(autojump_clock: MockClock) -> None:
    answers: list[Any] = []
    answered = trio.Event()

    async def stream(asked: Asked) -> Any:
        yield event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
        await answered.wait()
        yield event(result(asked, **DONE))

    def handle(asked: Asked) -> Answer:
        if asked.rpc == "tools/call":
            return Answer(200, stream(asked), {"content-type": "text/event-stream"})
        answers.append(asked.frame)
        if "result" in asked.frame:
            return Answer(503, b"calls keep too many large messages", {"retry-after": "1"})
        answered.set()
        return Answer(202)

    with trio.fail_after(600):
        assert (await call(handle, roots=["file:///a"], reconnect=Reconnect())).content
    assert len(answers) > 2, "it was sent again first"
    assert (answers[-1]["id"], "did not accept" in answers[-1]["error"]["message"]) == ("q", True)


async def test_a_stateless_server_must_not_ask() -> None:
    def handle(asked: Asked) -> Answer:
        return Answer(200, [event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}), 3600.0])

    with pytest.raises(RemoteProtocolError):
        await call(handle, date=NEW, roots=["file:///a"])


# -- healing


async def test_a_forgotten_session_is_opened_again_and_the_call_repeated(autojump_clock: MockClock) -> None:
    """404 says that nothing was done: even a tool that must not be called twice may be called again."""

    def handle(asked: Asked) -> Answer:
        if asked.headers.get("mcp-session-id") == "s-1":
            return Answer(404, b"unknown session")
        return Answer(200, result(asked, **DONE))

    def shell(asked: Asked) -> Any:
        return stateful(OLD, handle, session=f"s-{len(web.of('initialize'))}")(asked)

    web = Web(shell)
    async with to(web, protocol=OLD) as client:
        assert (await client.call_tool("t", {})).content
    assert len(web.of("initialize")) == 2
    assert web.of("tools/call")[1].headers["mcp-session-id"] == "s-2"
    assert "mcp-session-id" not in web.of("initialize")[1].headers


@pytest.mark.parametrize("date", BOTH)
async def test_a_call_that_never_left_is_made_again(date: str, autojump_clock: MockClock) -> None:
    failures = 3

    def handle(asked: Asked) -> Answer:
        nonlocal failures
        if failures:
            failures -= 1
            raise httpx2.ConnectError("refused")
        return Answer(200, result(asked, **DONE))

    assert (await call(handle, date=date, reconnect=Reconnect())).content


@pytest.mark.parametrize("date", BOTH)
async def test_a_call_that_may_have_arrived_is_not_made_again(date: str, autojump_clock: MockClock) -> None:
    times = 0

    def handle(asked: Asked) -> Answer:
        nonlocal times
        times += 1
        raise httpx2.ReadError("reset")

    with pytest.raises(ConnectionLost):
        await call(handle, date=date, reconnect=Reconnect())
    assert times == 1


async def test_an_overloaded_server_says_when_to_come_back() -> None:
    with pytest.raises(Overloaded) as caught:
        await call(lambda _: Answer(503, b"later", {"retry-after": "7"}))
    assert caught.value.retry_after == 7


# -- redirects and authorization


async def test_a_redirect_within_the_origin_is_followed() -> None:
    def handle(asked: Asked) -> Any:
        if asked.url == URL:
            return Answer(307, headers={"location": "/mcp/"})
        return stateless(NEW, answer)(asked)

    web = Web(handle)
    async with to(web, headers={"X-Key": "secret"}) as client:
        await client.call_tool("t", {})
    assert web.asked[1].url == "http://server.test/mcp/"
    assert web.asked[1].body == web.asked[0].body


@pytest.mark.parametrize(
    "location", ["http://evil.test/mcp", "https://server.test/mcp", "http://server.test:81/mcp", "//evil.test/"]
)
async def test_nothing_follows_a_redirect_to_another_origin(location: str) -> None:
    web = Web(lambda _: Answer(307, headers={"location": location}))
    with pytest.raises(RemoteProtocolError):
        async with to(web, headers={"X-Key": "secret"}):
            pass
    assert {one.url for one in web.asked} == {URL}


async def test_redirects_in_a_circle_end() -> None:
    web = Web(lambda _: Answer(308, headers={"location": "/mcp"}))
    with pytest.raises(RemoteProtocolError):
        async with to(web, protocol=OLD):
            pass
    assert len(web.asked) == 6


async def test_an_html_response_is_reported_without_its_text() -> None:
    page = Answer(501, b"<!DOCTYPE HTML><title>Error</title>", {"content-type": "text/html; charset=utf-8"})
    with pytest.raises(HttpRefused, match="HTTP 501 with a web page: is it an MCP endpoint"):
        await call(lambda _: page)


class Tokens:
    """An authorization that signs in after each refusal."""

    def __init__(self, *, give_up_after: int = 3) -> None:
        self.token = 0
        self.seen: list[int] = []
        self.give_up_after = give_up_after

    async def authorize(self, request: AuthRequest) -> Mapping[str, str]:
        assert request.url.startswith("http://server.test/")
        return {"Authorization": f"Bearer {self.token}"}

    async def on_response(self, response: AuthResponse) -> bool:
        self.seen.append(response.status)
        if response.status != 401 or self.token >= self.give_up_after:
            return False
        assert response.headers["www-authenticate"] == "Bearer"
        self.token += 1
        return True


async def test_a_request_is_repeated_after_a_sign_in() -> None:
    def handle(asked: Asked) -> Any:
        if asked.headers["authorization"] != "Bearer 2":
            return Answer(401, b"", {"www-authenticate": "Bearer"})
        return stateful(OLD, answer)(asked)

    tokens = Tokens()
    web = Web(handle)
    async with to(web, protocol=OLD, auth=tokens) as client:
        await client.call_tool("t", {})
    assert tokens.seen[:3] == [401, 401, 200]


async def test_a_refusal_that_stays_is_reported() -> None:
    web = Web(lambda _: Answer(401, b"who are you?", {"www-authenticate": "Bearer"}))
    with pytest.raises(HttpRefused) as caught:
        async with to(web, auth=Tokens()):
            pass
    assert caught.value.status == 401
    assert len(web.asked) == 4


def test_the_bounds_are_checked_when_they_are_declared() -> None:
    with pytest.raises(ValueError):
        HttpClientConfig(max_reply=0)


@pytest.mark.parametrize(
    ("name", "trusted", "hint"),
    [("127.0.0.1", False, True), ("elsewhere.example", True, False)],
    ids=["unknown authority", "another name"],
)
async def test_an_untrusted_certificate_names_the_setting_only_if_it_helps(
    name: str, trusted: bool, hint: bool, nursery: trio.Nursery
) -> None:
    authority, ours, theirs = trustme.CA(), ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(theirs)
    if trusted:
        authority.configure_trust(ours)

    async def accept(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.do_handshake()

    listeners = await nursery.start(partial(trio.serve_ssl_over_tcp, accept, 0, theirs, host="127.0.0.1"))
    url = f"https://127.0.0.1:{listeners[0].transport_listener.socket.getsockname()[1]}/mcp"
    with pytest.raises(ConnectionLost, match="its certificate is not trusted") as caught:
        async with connect(url, http=HttpClientConfig(verify=ours)):
            pass
    assert ("SSL_CERT_FILE or HttpClientConfig.verify" in str(caught.value)) is hint
    nursery.cancel_scope.cancel()
