"""The endpoint's responses to requests that it does not serve: the tables of bad HTTP and of bad bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcptrio._actors.limits import Limits
from mcptrio.auth.server import Principal
from mcptrio.errors import DeclarationError
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain

from .app_for_tests import (
    Client,
    app_of,
    error_of,
    exchange,
    head,
    initialize,
    notification,
    open_endpoint,
    plain,
    request,
    result_of,
)

BOTH = "application/json, text/event-stream"

BAD_HEADS: list[tuple[str, dict[str, Any], int]] = [
    ("a page from elsewhere", {"origin": "http://evil.example"}, 403),
    ("a page from nowhere", {"origin": "null"}, 403),
    ("an origin with a tail", {"origin": "http://localhost:8000.evil.example"}, 403),
    ("an origin in disguise", {"origin": "http://localhost@evil.example"}, 403),
    ("two origins", {"origin": "http://localhost http://evil.example"}, 403),
    ("an origin that is a file", {"origin": "file://"}, 403),
    ("a foreign host", {"host": "evil.example"}, 421),
    ("a foreign host that begins like ours", {"host": "localhost.evil.example"}, 421),
    ("an address that is not ours", {"host": "10.1.2.3:8000"}, 421),
    ("a port that is no number", {"host": "localhost:8000.evil.example"}, 400),
    ("a port that is empty", {"host": "localhost:"}, 400),
    ("a port out of range", {"host": "localhost:99999"}, 400),
    ("a host with a user", {"host": "me@localhost"}, 400),
    ("an empty host", {"host": ""}, 400),
    ("no host", {"host": None}, 400),
    ("a target that names another host", {"target": b"http://evil.example/mcp"}, 400),
    ("text", {"content_type": "text/plain"}, 415),
    ("text that holds JSON", {"content_type": "text/plain; application/json"}, 415),
    ("a form", {"content_type": "multipart/form-data; boundary=x"}, 415),
    ("no content type", {"content_type": None}, 415),
    ("JSON in another charset", {"content_type": "application/json; charset=utf-16"}, 415),
    ("two content types", {"content_type": "application/json, text/plain"}, 415),
    ("gzip", {"content_encoding": "gzip"}, 415),
    ("accepts no stream", {"accept": "application/json"}, 406),
    ("accepts no JSON", {"accept": "text/event-stream"}, 406),
    ("accepts HTML", {"accept": "text/html"}, 406),
    ("accepts streams, but not really", {"accept": "application/json, text/event-stream;q=0"}, 406),
    ("too long", {"content_length": 4 * 1024 * 1024 + 1}, 413),
    ("a length that is no number", {"content_length": "+3"}, 400),
    ("two lengths", {"content_length": "3, 4"}, 400),
    ("a session id with a space", {"mcp_session_id": "a b"}, 400),
    ("an empty session id", {"mcp_session_id": ""}, 400),
    ("an unknown session", {"mcp_session_id": "unknown"}, 404),
]


@pytest.mark.parametrize(("what", "changes", "status"), BAD_HEADS, ids=[row[0] for row in BAD_HEADS])
async def test_a_bad_head_is_refused_before_the_body_is_read(what: str, changes: dict[str, Any], status: int) -> None:
    async with open_endpoint() as endpoint:
        refusal = endpoint.refuse_early(head(**changes))
        assert refusal is not None
        assert refusal.status == status
        assert dict(refusal.headers)[b"content-type"] == b"application/json"
        answer = json.loads(refusal.body)
        assert answer["jsonrpc"] == "2.0"
        assert "id" not in answer
        assert not endpoint.runtime.supervisor.sessions


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE", "HEAD", "post", "CONNECT"])
async def test_other_http_methods_get_405_with_allow(method: str) -> None:
    async with open_endpoint() as endpoint:
        refusal = await plain(endpoint, head(method))
        assert refusal.status == 405
        assert dict(refusal.headers)[b"allow"] == b"GET, POST, DELETE"


@pytest.mark.parametrize(
    ("accept", "date", "status"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", None, 400),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "2026-07-28", 405),
        ("text/html", None, 406),
    ],
)
async def test_a_browser_gets_the_same_status_and_a_sentence_for_people(
    accept: str, date: str | None, status: int
) -> None:
    async with open_endpoint() as endpoint:
        browser = await plain(endpoint, head("GET", accept=accept, mcp_protocol_version=date))
        accept = accept.replace("text/html", "text/plain")
        program = await plain(endpoint, head("GET", accept=accept, mcp_protocol_version=date))
        assert program.status == browser.status == status
        assert program.headers == browser.headers
        said = json.loads(browser.body)
        assert said.keys() == {"jsonrpc", "error"}
        assert "this is an MCP endpoint, not a web page" in said["error"]["message"]
        assert "`mcptrio inspect URL`" in said["error"]["message"]
        assert b"not a web page" not in program.body
        foreign = await plain(endpoint, head("GET", accept=accept, host="evil.example"))
        assert foreign.status == 421
        assert b"allowed_hosts" in foreign.body


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
@pytest.mark.parametrize(
    ("changes", "status"),
    [({"origin": "http://evil.example"}, 403), ({"host": "evil.example"}, 421), ({"host": None}, 400)],
)
async def test_host_and_origin_are_checked_on_every_method(method: str, changes: dict[str, Any], status: int) -> None:
    async with open_endpoint() as endpoint:
        assert (await plain(endpoint, head(method, **changes))).status == status


@pytest.mark.parametrize(
    "changes",
    [
        {"origin": "http://localhost:5173"},
        {"origin": "https://127.0.0.1"},
        {"host": "127.0.0.1:1"},
        {"host": "[::1]:8000"},
        {"host": "LOCALHOST"},
        {"accept": "*/*"},
        {"accept": None},
        {"accept": "application/*, text/*;q=0.1"},
        {"content_type": 'application/json; charset="UTF-8"'},
        {"content_encoding": "identity"},
        {"target": b"http://localhost:8000/mcp"},
        {"mcp_protocol_version": "2025-06-18"},
    ],
)
async def test_valid_variants_of_a_request_are_served(changes: dict[str, Any]) -> None:
    async with open_endpoint() as endpoint:
        assert result_of(await plain(endpoint, head(**changes), initialize()))["protocolVersion"] == "2025-11-25"


async def test_several_accept_lines_count_together() -> None:
    async with open_endpoint() as endpoint:
        one = head(accept="application/json")
        two = HttpRequest(method="POST", path="/mcp", headers=[*one.headers, (b"accept", b"text/event-stream")])
        assert endpoint.refuse_early(one) is not None
        assert endpoint.refuse_early(two) is None


async def test_a_refused_host_is_refused_again_after_a_good_one_was_seen() -> None:
    """A request that passed once is remembered; no other request may pass because of that."""
    async with open_endpoint() as endpoint:
        for _ in range(3):
            assert endpoint.refuse_early(head()) is None
            assert endpoint.refuse_early(head(origin="http://evil.example")) is not None
            assert endpoint.refuse_early(head(host="evil.example")) is not None
            twice = HttpRequest(method="POST", path="/mcp", headers=[*head().headers, (b"host", b"localhost:8000")])
            assert endpoint.refuse_early(twice) is not None
            assert endpoint.refuse_early(head(target=b"http://evil.example/mcp")) is not None


async def test_the_texts_name_the_setting_to_change() -> None:
    async with open_endpoint() as endpoint:
        assert b"HttpConfig.allowed_hosts" in (await plain(endpoint, head(host="mcp.example.org"))).body
        assert b"HttpConfig.allowed_origins" in (await plain(endpoint, head(origin="https://a.example"))).body
        assert b"HttpConfig.max_body" in (await plain(endpoint, head(content_length=10**9))).body


async def test_allowed_hosts_and_origins_are_compared_exactly() -> None:
    config = HttpConfig(
        allowed_hosts=("mcp.example.org", "other.example.org:8443"),
        allowed_origins=("https://app.example.org", "http://dev.example.org:*"),
    )
    async with open_endpoint(config) as endpoint:

        def status(**changes: Any) -> int:
            refusal = endpoint.refuse_early(head(**changes))
            return 200 if refusal is None else refusal.status

        assert status(host="mcp.example.org") == 200
        assert status(host="mcp.example.org:9") == 200
        assert status(host="other.example.org:8443") == 200
        assert status(host="other.example.org") == 421
        assert status(host="localhost") == 421
        own = "mcp.example.org"
        assert status(host=own, origin="https://app.example.org") == 200
        assert status(host=own, origin="https://app.example.org:443") == 200
        assert status(host=own, origin="http://app.example.org") == 403
        assert status(host=own, origin="https://app.example.org:8443") == 403
        assert status(host=own, origin="http://dev.example.org:1234") == 200
        assert status(host=own, origin="https://mcp.example.org") == 200, "a page of our own"
        assert status(host=own, origin="https://mcp.example.org:444") == 403
        assert status(host=own, origin="http://localhost:8000") == 403


async def test_the_bound_host_is_allowed_and_a_wildcard_bind_allows_nothing_more() -> None:
    assert "192.0.2.7" in HttpConfig(host="192.0.2.7").hosts
    assert HttpConfig(host="0.0.0.0").hosts == ("localhost", "127.0.0.1", "::1")
    async with open_endpoint(HttpConfig(host="192.0.2.7")) as endpoint:
        assert endpoint.refuse_early(head(host="192.0.2.7:8000")) is None


async def test_a_star_switches_the_check_off() -> None:
    async with open_endpoint(HttpConfig(allowed_hosts=("*",), allowed_origins=("*",))) as endpoint:
        assert endpoint.refuse_early(head(host="anything.example", origin="null")) is None


BAD_BODIES: list[tuple[str, bytes, int, int]] = [
    ("truncated", b"{", 400, -32700),
    ("empty", b"", 400, -32700),
    ("UTF-16", '{"jsonrpc":"2.0"}'.encode("utf-16"), 400, -32700),
    ("NaN", b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', 400, -32700),
    ("deep", b"[" * 100_000, 400, -32700),
    ("a key twice", b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"}', 400, -32600),
    ("a key in capitals", b'{"jsonrpc":"2.0","id":1,"Method":"ping"}', 400, -32600),
    ("a number", b"1", 400, -32600),
    ("null", b"null", 400, -32600),
    ("many values", b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"a":[' + b"1," * 200_000 + b"1]}}", 413, -32600),
    ("no batch", b"[]", 400, -32600),
    ("a fraction as id", b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 400, -32600),
    ("null as id", b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
    ("params as a list", b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 400, -32602),
    ("result and error", b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}', 400, -32600),
    ("jsonrpc 1", b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600),
]


@pytest.mark.parametrize(("what", "body", "status", "code"), BAD_BODIES, ids=[row[0] for row in BAD_BODIES])
async def test_a_bad_body_is_refused_and_the_session_goes_on(what: str, body: bytes, status: int, code: int) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        for reply in (await client.post(body), await plain(endpoint, head(), body)):
            assert reply.status == status
            assert error_of(reply)["code"] == code
            assert json.loads(reply.body).get("id", 1) == 1
        assert result_of(await client.post(request(2, "echo", say="still here")))["echo"] == "still here"
        assert len(endpoint.runtime.supervisor.sessions) == 1


async def test_an_error_inside_a_session_has_the_http_status_of_the_table() -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        unknown = await client.post(request(1, "no/such"))
        assert (unknown.status, error_of(unknown)["code"]) == (200, -32601)
        again = await client.post(initialize(request_id=2))
        assert (again.status, error_of(again)["code"]) == (400, -32600)
        batch = await client.post(b"[" + request(3, "ping") + b"]")
        assert (batch.status, error_of(batch)["code"]) == (400, -32600)
        stray = await client.post(b'{"jsonrpc":"2.0","id":99,"result":{}}')
        assert (stray.status, stray.body) == (202, b"")
        received = await client.post(notification("notifications/none"))
        assert (received.status, received.body) == (202, b"")


async def test_the_error_without_a_session_asks_for_initialize() -> None:
    async with open_endpoint() as endpoint:
        for body in (request(1, "ping"), notification("notifications/x"), b'{"jsonrpc":"2.0","id":1,"result":{}}'):
            reply = await plain(endpoint, head(), body)
            assert (reply.status, error_of(reply)["code"]) == (400, -32600)
        assert (await plain(endpoint, head("GET"))).status == 400
        assert (await plain(endpoint, head("DELETE"))).status == 400


async def test_nothing_is_created_for_an_initialize_that_is_garbage() -> None:
    async with open_endpoint() as endpoint:
        for params in ({}, {"protocolVersion": "2025-11-25"}, {"protocolVersion": 1, "capabilities": {}}):
            reply = await plain(endpoint, head(), request(1, "initialize", **params))
            assert (reply.status, error_of(reply)["code"]) == (200, -32602)
            assert b"mcp-session-id" not in dict(reply.headers)
        batch = await plain(endpoint, head(), b"[" + initialize("2025-03-26") + b"]")
        assert (batch.status, error_of(batch)["code"]) == (400, -32600)
        assert not endpoint.runtime.supervisor.sessions
        assert endpoint.calls == 0


async def test_a_refused_initialize_leaves_no_session_behind(autojump_clock: Any) -> None:
    async with open_endpoint() as endpoint:
        reply = await plain(endpoint, head(), initialize(name="refused"))
        assert error_of(reply)["message"] == "not you"
        assert b"mcp-session-id" not in dict(reply.headers)
        import trio

        await trio.sleep(1)
        assert not endpoint.runtime.supervisor.sessions


async def test_too_many_sessions_are_answered_with_503_and_when_to_come_back() -> None:
    async with open_endpoint(max_sessions=2) as endpoint:
        clients = [await Client.open(endpoint) for _ in range(2)]
        reply = await plain(endpoint, head(), initialize())
        assert (reply.status, error_of(reply)["code"]) == (503, -32603)
        assert dict(reply.headers)[b"retry-after"] == b"30"
        assert result_of(await clients[0].post(request(1, "echo", say="me")))["echo"] == "me"


async def test_unknown_paths_are_not_found() -> None:
    async with open_endpoint() as endpoint:
        for path in ("/", "/mcp/", "/mcpx", "/sse", "/messages", "/mcp/../mcp"):
            assert (await plain(endpoint, head(path=path))).status == 404


async def test_health_probes_by_address_are_answered() -> None:
    async with open_endpoint() as endpoint:
        for path in ("/livez", "/readyz"):
            reply = await plain(endpoint, head("GET", path, host="10.0.0.3:8000", accept=None))
            assert (reply.status, reply.body) == (200, b"ok\n")
        assert (await plain(endpoint, head("POST", "/livez"))).status == 405
        assert (await plain(endpoint, head("GET", "/metrics"))).status == 404
        endpoint.metrics = lambda: "up 1\n"
        assert (await plain(endpoint, head("GET", "/metrics"))).body == b"up 1\n"
        assert (await plain(endpoint, head("GET", "/metrics", host="evil.example"))).status == 421


async def test_a_header_that_names_another_supported_revision_is_tolerated_and_counted() -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint, "2025-06-18")
        reply = await client.post(request(1, "echo", say=1), mcp_protocol_version="2025-11-25")
        assert result_of(reply)["echo"] == 1
        assert app_of(endpoint).counted("version_header") == 1


@pytest.mark.parametrize("date", ["v999", "2020-01-01", "latest", "", "2025-11-25, 2025-06-18"])
async def test_an_unsupported_revision_is_refused_with_the_supported_ones(date: str) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        for reply in (
            await plain(endpoint, head(mcp_protocol_version=date), initialize()),
            await client.post(request(0, "ping"), mcp_protocol_version=date),
            await plain(endpoint, client.head("GET", mcp_protocol_version=date)),
            await plain(endpoint, client.head("DELETE", mcp_protocol_version=date)),
        ):
            assert (reply.status, error_of(reply)["code"]) == (400, -32022)
            assert "2025-11-25" in error_of(reply)["data"]["supported"]
            assert error_of(reply)["data"]["requested"] == date
        assert len(endpoint.runtime.supervisor.sessions) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"max_body": 0},
        {"heartbeat": 0},
        {"retry_ms": -1},
        {"json_only": True, "sse_only": True},
        {"path": "mcp"},
        {"path": "/livez"},
        {"legacy_sse": True, "path": "/sse"},
        {"allowed_hosts": ("http://x",)},
        {"allowed_hosts": "localhost"},
        {"allowed_origins": ("localhost",)},
    ],
)
def test_settings_are_checked_when_built(settings: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        HttpConfig(**settings)


async def test_a_congested_session_is_refused_with_retry_after(autojump_clock: Any, nursery: Any) -> None:
    limits = Limits(running=1, waiting=2, busy_timeout=0.25)
    async with open_endpoint(HttpConfig(json_only=True), limits=limits) as endpoint:
        client = await Client.open(endpoint)
        replies: list[Any] = []

        async def call(number: int) -> None:
            replies.append(await client.post(request(number, "sleep", seconds=10)))

        import trio

        for number in range(3):
            nursery.start_soon(call, number)
        await trio.testing.wait_all_tasks_blocked()
        before = trio.current_time()
        reply = await client.post(request(9, "sleep", seconds=1))
        assert (reply.status, error_of(reply)["code"]) == (503, -32603)
        assert trio.current_time() - before == pytest.approx(0.25)
        # what a running call may wait for is taken in all the same
        assert (await client.post(notification("notifications/cancelled", requestId=2))).status == 202
        await trio.sleep(40)
        assert sorted(reply.status for reply in replies) == [200, 200, 202]
        assert endpoint.calls == 0


async def test_too_many_calls_in_the_process_are_refused(autojump_clock: Any, nursery: Any) -> None:
    import trio

    limits = Limits(busy_timeout=0.25)
    async with open_endpoint(HttpConfig(json_only=True, max_calls=1), limits=limits) as endpoint:
        client, other = await Client.open(endpoint), await Client.open(endpoint)
        nursery.start_soon(client.post, request(1, "sleep", seconds=10))
        await trio.testing.wait_all_tasks_blocked()
        reply = await other.post(request(1, "echo"))
        assert reply.status == 503
        assert (await plain(endpoint, head(), initialize())).status == 503
        await trio.sleep(11)
        assert (await other.post(request(2, "echo"))).status == 200


# -- who owns a session


async def who(request_head: HttpRequest) -> Any:
    name = request_head.text(b"authorization")
    return Plain(401) if name is None else Principal(subject=name)


async def test_another_principals_session_looks_like_one_that_does_not_exist() -> None:
    async with open_endpoint(authenticator=who) as endpoint:
        client = await Client.open(endpoint, extra={"authorization": "ann"})
        stranger = await client.post(request(1, "echo"), mcp_session_id="unknown")
        bob = await client.post(request(1, "echo"), authorization="bob")
        assert (bob.status, bob.headers, bob.body) == (404, stranger.headers, stranger.body)
        for method in ("GET", "DELETE"):
            theirs = await plain(endpoint, client.head(method, authorization="bob"))
            unknown = await plain(endpoint, client.head(method, mcp_session_id="unknown"))
            assert (theirs.status, theirs.body) == (404, unknown.body)
        assert (await plain(endpoint, client.head(authorization=None), request(1, "echo"))).status == 401
        assert result_of(await client.post(request(2, "echo", say=1)))["echo"] == 1


async def test_one_principal_cannot_take_all_sessions() -> None:
    async with open_endpoint(HttpConfig(max_sessions_per_principal=2), authenticator=who) as endpoint:
        ann = [await Client.open(endpoint, extra={"authorization": "ann"}) for _ in range(2)]
        assert (await plain(endpoint, head(authorization="ann"), initialize())).status == 503
        await Client.open(endpoint, extra={"authorization": "bob"})
        assert (await exchange(endpoint, ann[0].head("DELETE"))).status == 200
        import trio

        await trio.testing.wait_all_tasks_blocked()
        await Client.open(endpoint, extra={"authorization": "ann"})
