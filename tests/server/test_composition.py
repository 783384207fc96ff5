"""Putting servers together: include, middleware, routes of one's own, events."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from attrs import evolve, frozen

from mcptrio import Context, MCPError, Server, telemetry
from mcptrio.errors import INVALID_PARAMS, METHOD_NOT_FOUND, DeclarationError
from mcptrio.types import CallToolParams, ListToolsResult, Tool
from tests.server.talk import open_server, refusal, talking


def crm() -> Server:
    server = Server("crm")

    @server.tool
    async def find(name: str) -> str:
        return f"found {name}"

    @server.prompt
    async def letter(tone: Literal["calm", "cold"]) -> str:
        return tone

    @server.resource("crm://all")
    async def everybody() -> str:
        return "all"

    @server.resource("crm://{name}")
    async def one(name: str) -> str:
        return name

    @one.complete("name")
    async def names(prefix: str) -> list[str]:
        return ["ada"]

    return server


# -- include


async def test_an_included_server_is_there_under_its_prefix() -> None:
    server = Server("all")
    server.include(crm(), prefix="crm_")
    server.include(crm_without_resources(), prefix="other.")
    async with talking(server) as talk:
        assert [tool["name"] for tool in (await talk.request("tools/list"))["tools"]] == ["crm_find", "other.find"]
        assert await talk.text("crm_find", name="Ada") == "found Ada"
        got = await talk.request("prompts/get", name="crm_letter", arguments={"tone": "cold"})
        assert got["messages"][0]["content"]["text"] == "cold"
        (listed,) = (await talk.request("resources/list"))["resources"]
        assert (listed["uri"], listed["name"]) == ("crm://all", "crm_everybody")
        assert (await talk.request("resources/read", uri="crm://ada"))["contents"][0]["text"] == "ada"
        ref, argument = {"type": "ref/resource", "uri": "crm://{name}"}, {"name": "name", "value": ""}
        found = await talk.request("completion/complete", ref=ref, argument=argument)
        assert found["completion"]["values"] == ["ada"]
        ref, argument = {"type": "ref/prompt", "name": "crm_letter"}, {"name": "tone", "value": "ca"}
        found = await talk.request("completion/complete", ref=ref, argument=argument)
        assert found["completion"]["values"] == ["calm"]


def crm_without_resources() -> Server:
    server = Server("other")

    @server.tool
    async def find() -> str:
        return "other"

    return server


def test_an_include_that_clashes_takes_nothing_over() -> None:
    server = Server("all")

    @server.prompt
    async def letter() -> str:
        return ""

    with pytest.raises(DeclarationError, match="there is a prompt 'letter' already; give one of the two another name"):
        server.include(crm())
    assert len(server._app.tools.registry) == 0
    with pytest.raises(DeclarationError, match="'c r m find' is not a valid tool name"):
        server.include(crm(), prefix="c r m ")
    server.include(crm(), prefix="crm_")
    with pytest.raises(DeclarationError, match="there is a resource 'crm://all' already"):
        server.include(crm(), prefix="again_")


# -- middleware


async def test_middleware_runs_in_the_order_it_was_added_around_every_request() -> None:
    server = crm()
    seen: list[str] = []

    def noting(name: str) -> Any:
        async def middleware(ctx: Context, request: Any, call_next: Any) -> Any:
            seen.append(f"{name} before {request.method}")
            ctx.data.setdefault("path", []).append(name)
            result = await call_next(ctx, request)
            seen.append(f"{name} after {request.method}")
            return result

        return middleware

    server.use(noting("outer"))
    server.use(noting("inner"))

    @server.tool
    async def path(ctx: Context) -> list[str]:
        return list(ctx.data["path"])

    async with talking(server) as talk:
        assert seen[:4] == [
            "outer before initialize",
            "inner before initialize",
            "inner after initialize",
            "outer after initialize",
        ]
        assert (await talk.call("path"))["structuredContent"] == {"result": ["outer", "inner"]}
        await talk.request("ping")
        assert (await talk.request("tools/list"))["tools"]
    assert "inner after ping" in seen


async def test_middleware_may_answer_refuse_or_change_a_request() -> None:
    server = crm()

    @server.use
    async def gate(ctx: Context, request: Any, call_next: Any) -> Any:
        if request.method == "ping":
            return {"pong": True}
        if request.method == "tools/list":
            raise MCPError(-32050, "not today")
        if isinstance(request.params, CallToolParams):
            request = evolve(request, params=evolve(request.params, arguments={"name": "changed"}))
        return await call_next(ctx, request)

    async with talking(server) as talk:
        assert await talk.request("ping") == {"pong": True}
        assert (await refusal(talk, "tools/list")).code == -32050
        assert await talk.text("find", name="Ada") == "found changed"


async def test_an_exception_of_middleware_says_nothing_to_the_client() -> None:
    server = crm()

    @server.use
    async def broken(ctx: Context, request: Any, call_next: Any) -> Any:
        if request.method == "tools/list":
            raise ValueError("canary")
        return await call_next(ctx, request)

    async with talking(server) as talk:
        assert (await refusal(talk, "tools/list")).message == "internal error"
        assert not any(b"canary" in frame for frame in talk.raw)


# -- routes


@frozen(kw_only=True)
class EchoParams:
    some_text: str
    times: int = 1


async def test_a_method_of_ones_own_gets_typed_parameters() -> None:
    server = crm()

    @server.route("acme/echo", params=EchoParams)
    async def echo(ctx: Context, params: EchoParams) -> dict[str, Any]:
        return {"said": params.some_text * params.times, "method": ctx.method}

    @server.route("acme/raw")
    async def raw(ctx: Context, params: dict[str, Any]) -> Any:
        return params

    @server.route("notifications/acme")
    async def noted(ctx: Context, params: dict[str, Any]) -> None:
        notes.append(params)

    notes: list[Any] = []
    async with talking(server) as talk:
        assert await talk.request("acme/echo", someText="ab", times=2) == {"said": "abab", "method": "acme/echo"}
        error = await refusal(talk, "acme/echo", times=2)
        assert (error.code, "someText" in error.message) == (INVALID_PARAMS, True)
        assert await talk.request("acme/raw", x=[1]) == {"x": [1]}
        assert (await refusal(talk, "acme/none")).code == METHOD_NOT_FOUND
        await talk.notify("notifications/acme", y=1)
        await talk.settled()
        assert notes == [{"y": 1}]


async def test_a_built_in_row_can_be_replaced_and_is_then_declared() -> None:
    server = Server("dynamic")

    async def list_tools(ctx: Context, params: Any) -> ListToolsResult:
        assert ctx.client_info is not None
        return ListToolsResult(tools=[Tool(name=f"for_{ctx.client_info.name}", input_schema={"type": "object"})])

    server.route("tools/list", list_tools)
    async with talking(server) as talk:
        assert talk.opening["capabilities"]["tools"] == {"listChanged": True}
        assert [tool["name"] for tool in (await talk.request("tools/list"))["tools"]] == ["for_talk"]
    with pytest.raises(DeclarationError, match="before serving begins"):
        server.route("acme/late", list_tools)
    with pytest.raises(DeclarationError, match="middleware must be added before serving begins"):
        server.use(_middleware)


async def _middleware(ctx: Any, request: Any, call_next: Any) -> Any: ...


async def test_a_method_of_the_protocol_that_a_client_serves_is_not_found() -> None:
    async with talking(crm()) as talk:
        for method in ("roots/list", "sampling/createMessage", "elicitation/create"):
            assert (await refusal(talk, method)).code == METHOD_NOT_FOUND


# -- events


async def test_listeners_hear_of_sessions_and_calls_and_cannot_break_them() -> None:
    server = crm()
    events: list[Any] = []
    server.on_event(events.append)

    @server.on_event
    def broken(event: Any) -> None:
        raise ValueError("a listener's own trouble")

    async with open_server(server) as join, join() as talk:
        await talk.text("find", name="Ada")
    kinds = [type(event) for event in events]
    assert kinds[0] is telemetry.SessionOpened
    assert kinds[-1] is telemetry.SessionClosed
    ended = [event for event in events if isinstance(event, telemetry.CallEnded)]
    assert [(event.method, event.outcome) for event in ended] == [("initialize", "ok"), ("tools/call", "ok")]
