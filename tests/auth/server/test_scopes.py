"""Scopes over HTTP, stateful and stateless: the entries a caller sees and may use, and the refusals it gets."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import trio

import mcptrio
from mcptrio import Context, Overloaded, Server
from mcptrio.auth.server import ClientCertificates, Principal, StaticTokens
from mcptrio.auth.server.errors import CredentialsRefused
from mcptrio.auth.server.principal import require_principal
from mcptrio.errors import DeclarationError
from mcptrio.transports.bearer.authorizer import Authorizer
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain, Stream
from mcptrio.transports.websocket.server import serve_websocket
from tests.stateless.kit import meta
from tests.transports.app_for_tests import Reader, exchange, head, initialize, notification, request

from .callers import DATES, STATELESS, STATIC, TOKENS, Caller, make_server, open_protected

both_dates = pytest.mark.parametrize("date", DATES)


@both_dates
async def test_lists_hold_what_the_caller_may_use(date: str) -> None:
    expected = {
        "ada": ({"whoami", "order", "refund"}, {"orders://all"}, {"orders://{number}/invoice"}, {"complaint"}),
        "bob": ({"whoami", "order"}, {"orders://all"}, set(), set()),
        "eve": ({"whoami"}, set(), set(), set()),
    }
    async with open_protected() as endpoint:
        for name, wanted in [*expected.items(), *expected.items()]:  # twice: what was kept for one is not another's
            caller = await Caller.open(endpoint, date, name)
            tools = (await caller.ask("tools/list")).result
            resources = (await caller.ask("resources/list")).result["resources"]
            templates = (await caller.ask("resources/templates/list")).result["resourceTemplates"]
            prompts = (await caller.ask("prompts/list")).result["prompts"]
            found = (
                {tool["name"] for tool in tools["tools"]},
                {resource["uri"] for resource in resources},
                {template["uriTemplate"] for template in templates},
                {prompt["name"] for prompt in prompts},
            )
            assert found == wanted
            assert tools.get("cacheScope", "private") == "private"


@both_dates
async def test_a_list_that_differs_only_by_scopes_is_kept_for_each_set_of_them(date: str) -> None:
    server = Server("s")
    server.add_tool(lambda: "x", name="a", scopes=["orders:write"])
    server.add_tool(lambda: "x", name="b", scopes=["orders:read"])
    async with open_protected(server) as endpoint:
        for name, wanted in [("ada", ["a", "b"]), ("bob", ["b"]), ("eve", []), ("ada", ["a", "b"])]:
            caller = await Caller.open(endpoint, date, name)
            page = (await caller.ask("tools/list")).result
            assert [tool["name"] for tool in page["tools"]] == wanted
            assert page.get("cacheScope", "private") == "private"


REQUESTS: list[tuple[str, dict[str, Any], str]] = [
    ("tools/call", {"name": "refund", "arguments": {}}, "orders:read orders:write"),
    ("prompts/get", {"name": "complaint", "arguments": {"order": "7"}}, "orders:write"),
    ("resources/read", {"uri": "orders://7/invoice"}, "orders:write"),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "orders://{number}/invoice"},
            "argument": {"name": "number", "value": ""},
        },
        "orders:write",
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "complaint"}, "argument": {"name": "order", "value": ""}},
        "orders:write",
    ),
]


@both_dates
@pytest.mark.parametrize(("method", "params", "scopes"), REQUESTS)
async def test_the_refusal_of_a_call_names_all_missing_scopes(
    date: str, method: str, params: dict[str, Any], scopes: str
) -> None:
    async with open_protected() as endpoint:
        bob = await Caller.open(endpoint, date, "bob")
        answer = await bob.ask(method, **params)
        assert (answer.status, answer.streamed) == (403, False)
        assert 'error="insufficient_scope"' in answer.challenge
        assert f'scope="{scopes}"' in answer.challenge
        assert answer.frames[-1]["id"] == bob.last_id
        assert answer.error["data"] == {"error": "insufficient_scope", "scopes": scopes.split()}
        assert endpoint.calls == 0


async def test_subscribing_is_allowed_like_reading() -> None:
    async with open_protected() as endpoint:
        eve, bob = [await Caller.open(endpoint, DATES[0], name) for name in ("eve", "bob")]
        assert (await eve.ask("resources/subscribe", uri="orders://all")).status == 403
        assert (await bob.ask("resources/subscribe", uri="orders://all")).result == {}


async def test_a_listener_gets_only_changes_of_resources_that_it_may_read() -> None:
    async with open_protected() as endpoint:
        bob = await Caller.open(endpoint, STATELESS, "bob")
        uris = ["orders://all", "orders://7/invoice"]
        params = {"notifications": {"resourceSubscriptions": uris}, "_meta": meta()}
        listening = bob.head(mcp_protocol_version=STATELESS, mcp_method="subscriptions/listen")
        reply = await exchange(endpoint, listening, request(1, "subscriptions/listen", **params))
        assert isinstance(reply, Stream)
        first = await Reader(reply).frame()
        assert first["params"]["notifications"] == {"resourceSubscriptions": ["orders://all"]}
        reply.events.detach("done")


@both_dates
async def test_an_entry_that_a_caller_may_not_see_is_unknown_to_it(date: str) -> None:
    async with open_protected() as endpoint:
        bob, ada = [await Caller.open(endpoint, date, name) for name in ("bob", "ada")]
        hidden, missing = await bob.call("hidden"), await bob.call("never-was")
        assert (hidden.status, hidden.error["code"]) == (missing.status, missing.error["code"])
        seen = await ada.call("hidden")
        assert (seen.status, seen.error["data"]["scopes"]) == (403, ["root"])
        assert 'scope="root"' in seen.challenge


@both_dates
async def test_handlers_see_who_calls_and_never_the_token(date: str) -> None:
    async with open_protected() as endpoint:
        ada = await Caller.open(endpoint, date, "ada")
        assert (await ada.call("whoami")).text == "ada orders:read orders:write False"


async def test_in_a_session_the_scopes_are_those_of_each_request() -> None:
    """A token that was renewed with less, in the same session of the same principal."""
    much, little = "much" * 8, "little" * 8
    auth = StaticTokens({much: Principal(subject="ada", scopes="orders:read"), little: Principal(subject="ada")})
    async with open_protected(auth=auth) as endpoint:
        ada = await Caller.open(endpoint, DATES[0], much)
        assert (await ada.call("order", number=7)).text == "order 7"
        ada.token = little
        assert (await ada.call("order", number=7)).status == 403
        assert (await ada.call("whoami")).text == "ada  False"


async def test_scopes_are_checked_again_when_a_parked_call_goes_on() -> None:
    much, little = "much" * 8, "little" * 8
    allowed = Principal(subject="ada", scopes="orders:read orders:write")
    auth = StaticTokens({much: allowed, little: Principal(subject="ada", scopes="orders:read")})
    async with open_protected(auth=auth) as endpoint:
        ada = await Caller.open(endpoint, STATELESS, much)
        asked = (await ada.call("refund")).result
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"ok": True}}}
        again = {"name": "refund", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers}
        ada.token = little
        assert (await ada.ask("tools/call", **again)).status == 403
        ada.token = much
        assert (await ada.ask("tools/call", **again)).text == "refunded True by ada"


async def test_a_batch_needs_the_scopes_of_all_its_members() -> None:
    async with open_protected() as endpoint:
        bob = await Caller.open(endpoint, "2025-03-26", "bob")
        calls = [json.loads(request(n, "tools/call", name=t, arguments={})) for n, t in enumerate(["whoami", "refund"])]
        answer = await bob.send(bob.head(), json.dumps(calls).encode())
        assert (answer.status, 'scope="orders:read orders:write"' in answer.challenge) == (403, True)


# -- other ways in


async def test_with_auth_none_every_tool_is_open() -> None:
    async with open_protected(auth=None) as endpoint:
        anonymous = await Caller.open(endpoint, DATES[0], None)
        assert (await anonymous.call("order", number=7)).text == "order 7"


def test_scopes_without_authentication_are_refused_unless_auth_is_none() -> None:
    server = make_server()
    with pytest.raises(DeclarationError, match=r"orders:read.*auth=None"):
        server.asgi()
    assert server.asgi(auth=None)
    assert server.asgi(auth=STATIC)
    with pytest.raises(DeclarationError, match="client_ca"):
        trio.run(lambda: server.serve_http(auth=ClientCertificates({}), port=0))
    with pytest.raises(DeclarationError, match="auth="):
        server.asgi(auth="token")  # type: ignore[arg-type]


async def test_a_tool_added_later_with_scopes_is_refused_without_an_auth_setting() -> None:
    server = Server("s")
    app = server.asgi()
    async with app.open() as endpoint:  # type: ignore[attr-defined]
        server.add_tool(lambda: "x", name="late", scopes=["root"])
        anonymous = await Caller.open(endpoint, DATES[0], None)
        assert (await anonymous.call("late")).status == 403


async def test_an_in_memory_client_has_every_scope() -> None:
    server = make_server()
    async with mcptrio.connect(server) as client:
        result = await client.call_tool("order", {"number": 7})
        assert "order 7" in str(result)


async def test_an_authenticator_of_ones_own_may_grant_scopes_too() -> None:
    async def who(head: HttpRequest) -> Any:
        name = head.text(b"authorization")
        return Plain(401) if name is None else Principal(subject="ada", scopes="orders:read")

    async with make_server()._app.make_runtime().open() as runtime:
        endpoint = Endpoint(runtime, authenticator=who)
        ada = await Caller.open(endpoint, DATES[0], "ada")
        assert (await ada.call("order", number=7)).text == "order 7"
        refused = await ada.call("refund")
        assert (refused.status, refused.challenge) == (
            403,
            'Bearer error="insufficient_scope", scope="orders:read orders:write"',
        )


class Anyone:
    """The authenticator returned neither a principal nor a value that identifies a caller."""


@pytest.mark.defect("S5", "S14")
@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages", "/metrics"])
@pytest.mark.parametrize(
    "found", [None, False, True, "ada", {"subject": "ada"}, Anyone()], ids=lambda value: type(value).__name__
)
async def test_an_auth_function_that_returns_no_principal_lets_no_caller_in(
    found: object, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def who(head: HttpRequest) -> Any:
        return found

    async with make_server()._app.make_runtime().open() as runtime:
        endpoint = Endpoint(runtime, HttpConfig(legacy_sse=True), authenticator=who)
        request = head("POST", path)
        refusal = await endpoint.authenticate(request)
    assert refusal is not None
    assert refusal.status == 401
    assert request.principal is None
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert f"returned {type(found).__name__}" in record.getMessage()


@pytest.mark.defect("S5")
@pytest.mark.parametrize("wrong", [{"subject": 42}, {"subject": None}, {"subject": "ada", "expires": "soon"}])
async def test_an_auth_function_that_makes_no_valid_principal_lets_no_caller_in(
    wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def who(head: HttpRequest) -> Principal:
        return Principal(**wrong)

    async with make_server()._app.make_runtime().open() as runtime:
        endpoint = Endpoint(runtime, HttpConfig(), authenticator=who)
        request = head("POST", "/mcp")
        refusal = await endpoint.authenticate(request)
    assert refusal is not None
    assert (refusal.status, request.principal) == (401, None)
    assert b"Principal" not in refusal.body
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "the auth function raised DeclarationError" in record.getMessage()
    if wrong["subject"] == 42:
        assert "got an int; write subject=str(...)" in record.getMessage()


@pytest.mark.defect("S5")
@pytest.mark.parametrize("ours", [True, False], ids=["static tokens", "own function"])
@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages", "/metrics"])
async def test_a_principal_whose_credentials_have_expired_is_refused(ours: bool, path: str) -> None:
    ada = Principal(subject="ada", expires=time.time() - 1)

    async def who(head: HttpRequest) -> Principal:
        return ada

    authenticator = Authorizer(StaticTokens({"s" * 20: ada})) if ours else who
    async with make_server()._app.make_runtime().open() as runtime:
        endpoint = Endpoint(runtime, HttpConfig(legacy_sse=True), authenticator=authenticator)
        request = head("POST", path, authorization=f"Bearer {'s' * 20}")
        refusal = await endpoint.authenticate(request)
    assert refusal is not None
    assert (refusal.status, request.principal) == (401, None)
    assert b"the credentials have expired" in refusal.body


@pytest.mark.defect("S14")
def test_only_a_principal_with_a_key_identifies_a_caller() -> None:
    ada = Principal(subject="ada")
    assert require_principal(ada) is ada
    object.__setattr__(ada, "key", "")
    for value in (ada, None, "", 0, object(), Principal):
        with pytest.raises(CredentialsRefused, match="could not be identified"):
            require_principal(value)


@pytest.mark.parametrize("scope", ["", "two words", 'quo"te', "ümlaut", "new\nline"])
def test_an_invalid_scope_cannot_be_declared(scope: str) -> None:
    with pytest.raises(DeclarationError, match="is not a scope"):
        Server("s").add_tool(lambda: "x", name="x", scopes=[scope])


@pytest.mark.parametrize("date", DATES)
@pytest.mark.parametrize(("rate", "at_once", "wait"), [(2, 2, 1), (1, 1, 1), (0.5, 1, 2), (0.3, 1, 4), (0.01, 1, 100)])
async def test_a_rate_limit_of_a_tool_counts_per_principal(
    rate: float, at_once: int, wait: int, date: str, autojump_clock: Any
) -> None:
    """Above the rate the status is 429; the header and the error say when the next call is due, rounded up."""
    server = Server("s")

    @server.tool(rate=rate)
    async def often(ctx: Context) -> str:
        return ctx.principal.subject  # type: ignore[no-any-return]

    async with open_protected(server) as endpoint:
        ada, bob = [await Caller.open(endpoint, date, name) for name in ("ada", "bob")]
        assert [(await ada.call("often")).status for _ in range(at_once + 1)] == [200] * at_once + [429]
        refused = await ada.call("often")
        assert refused.error["data"] == {"retryAfter": wait, "limit": "rate"}
        assert (b"retry-after", b"%d" % wait) in refused.headers
        assert (await bob.call("often")).text == "bob"
        await trio.sleep(wait)
        assert (await ada.call("often")).text == "ada"


@pytest.mark.parametrize("date", DATES)
async def test_a_handler_can_set_retry_after(date: str) -> None:
    """503 where the server has too much to do, with the handler's own seconds in header and error."""
    server = Server("s")

    @server.resource("busy://one")
    async def busy() -> str:
        raise Overloaded("the kitchen is full", retry_after=17)

    async with open_protected(server) as endpoint:
        ada = await Caller.open(endpoint, date, "ada")
        refused = await ada.ask("resources/read", uri="busy://one")
        assert (refused.status, refused.error["data"]) == (503, {"retryAfter": 17})
        assert (b"retry-after", b"17") in refused.headers


# -- other pages of the server


@pytest.mark.parametrize(
    ("auth", "settings", "statuses"),
    [
        (STATIC, {}, {None: 401, "unknown" * 5: 401, TOKENS["eve"]: 200}),
        (STATIC, {"open_metrics": True}, {None: 200, "unknown" * 5: 200, TOKENS["eve"]: 200}),
        (STATIC, {"health": False}, {None: 404, TOKENS["eve"]: 404}),
        (None, {}, {None: 200}),
    ],
)
async def test_metrics_are_for_authenticated_callers(
    auth: StaticTokens | None, settings: dict[str, Any], statuses: dict[str | None, int]
) -> None:
    async with open_protected(auth=auth, config=HttpConfig(**settings)) as endpoint:
        endpoint.metrics = lambda: "up 1\n"
        for token, status in statuses.items():
            given = {} if token is None else {"authorization": f"Bearer {token}"}
            reply = await exchange(endpoint, head("GET", "/metrics", **given))
            assert isinstance(reply, Plain)
            assert reply.status == status
            assert (b"up 1" in reply.body) == (status == 200)
        for path in ("/livez", "/readyz"):
            reply = await exchange(endpoint, head("GET", path))
            assert reply.status == (404 if settings.get("health") is False else 200)


# -- what belongs to one is not another's


async def test_neg_session_other_principal_404() -> None:
    async with open_protected() as endpoint:
        ada = await Caller.open(endpoint, DATES[0], "ada")
        for method, body in [("POST", request(1, "ping")), ("POST", notification("x")), ("GET", b""), ("DELETE", b"")]:
            theirs = await ada.send(ada.head(method, authorization=f"Bearer {TOKENS['bob']}"), body)
            unknown = await ada.send(ada.head(method, mcp_session_id="never-was"), body)
            assert (theirs.status, theirs.headers, theirs.frames) == (404, unknown.headers, unknown.frames)
        assert (await ada.ask("ping")).result == {}


async def test_neg_replay_other_session_cursor() -> None:
    async with open_protected() as endpoint:
        ada, bob = [await Caller.open(endpoint, DATES[0], name) for name in ("ada", "bob")]
        reply = await exchange(endpoint, ada.head("GET"))
        assert isinstance(reply, Stream)
        reader = Reader(reply)
        await reader.chunk()
        cursor = reader.raw.split(b"\n")[0].removeprefix(b"id: ").decode()
        reader.hang_up()
        assert (await bob.send(bob.head("GET", last_event_id=cursor))).status == 400
        assert (await bob.send(bob.head("GET", last_event_id=cursor, mcp_session_id=ada.session))).status == 404
        mine = await exchange(endpoint, ada.head("GET", last_event_id=cursor))
        assert isinstance(mine, Stream)
        mine.events.detach("done")


async def test_neg_request_state_other_principal() -> None:
    async with open_protected() as endpoint:
        ada = await Caller.open(endpoint, STATELESS, "ada")
        asked = (await ada.call("refund")).result
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"ok": True}}}
        again = {"name": "refund", "arguments": {}, "inputResponses": answers}
        mallory = await Caller.open(endpoint, STATELESS, "mallory")
        stolen = await mallory.ask("tools/call", **again, requestState=asked["requestState"])
        nonsense = await mallory.ask("tools/call", **again, requestState="nonsense")
        assert (stolen.status, stolen.error) == (nonsense.status, nonsense.error)
        assert stolen.error["code"] == -32602
        mine = await ada.ask("tools/call", **again, requestState=asked["requestState"])
        assert mine.text == "refunded True by ada"


# -- what is open for longer than a token is good


@both_dates
async def test_a_stream_that_listens_ends_with_the_token_that_opened_it(date: str, autojump_clock: Any) -> None:
    async with open_protected(auth=short_lived(60)) as endpoint:
        ada = await Caller.open(endpoint, date, "s" * 20)
        if date == STATELESS:
            listening = ada.head(mcp_protocol_version=date, mcp_method="subscriptions/listen")
            params = {"notifications": {"toolsListChanged": True}, "_meta": meta()}
            reply = await exchange(endpoint, listening, request(1, "subscriptions/listen", **params))
        else:
            reply = await exchange(endpoint, ada.head("GET"))
        assert isinstance(reply, Stream)
        began = trio.current_time()
        assert len(await Reader(reply).rest()) <= 1
        assert 55 < trio.current_time() - began <= 60
        assert endpoint.exchanges.listen_places.used == 0


async def test_a_call_is_finished_although_its_token_expires_meanwhile(autojump_clock: Any) -> None:
    server = Server("s")

    @server.tool(timeout=600)
    async def slow() -> str:
        await trio.sleep(300)
        return "done"

    async with open_protected(server, short_lived(60)) as endpoint:
        ada = await Caller.open(endpoint, STATELESS, "s" * 20)
        assert (await ada.call("slow")).text == "done"


def short_lived(seconds: float) -> StaticTokens:
    return StaticTokens({"s" * 20: Principal(subject="ada", expires=time.time() + seconds)})


async def test_a_socket_asks_for_scopes_and_ends_with_its_token(autojump_clock: Any) -> None:
    auth = StaticTokens({"s" * 20: Principal(subject="bob", scopes="orders:read", expires=time.time() + 60)})
    async with open_protected(auth=auth) as endpoint, trio.open_nursery() as nursery:
        to_app, from_client = trio.open_memory_channel[dict[str, Any]](100)
        said: list[dict[str, Any]] = []

        async def hear(event: dict[str, Any]) -> None:
            said.append(event)

        headers = [(b"host", b"localhost:8000"), (b"authorization", b"Bearer " + b"s" * 20)]
        scope = {"type": "websocket", "path": "/mcp", "scheme": "ws", "headers": headers, "subprotocols": ["mcp"]}
        await to_app.send({"type": "websocket.connect"})
        nursery.start_soon(serve_websocket, endpoint, scope, from_client.receive, hear)
        for body in (initialize(), call(1, "order", number=7), call(2, "refund"), request(3, "tools/list")):
            await to_app.send({"type": "websocket.receive", "text": body.decode()})
        await trio.sleep(30)
        frames = {frame["id"]: frame for frame in (json.loads(event["text"]) for event in said if "text" in event)}
        assert frames[1]["result"]["content"][0]["text"] == "order 7"
        assert frames[2]["error"]["data"] == {"error": "insufficient_scope", "scopes": ["orders:read", "orders:write"]}
        assert {tool["name"] for tool in frames[3]["result"]["tools"]} == {"whoami", "order"}
        assert said[-1]["type"] == "websocket.send"
        await trio.sleep(31)
        assert (said[-1]["type"], said[-1]["code"]) == ("websocket.close", 1008)


def call(request_id: int, tool: str, **arguments: Any) -> bytes:
    return request(request_id, "tools/call", name=tool, arguments=arguments)
