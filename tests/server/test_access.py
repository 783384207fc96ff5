"""`visible=`: predicates that cannot work are refused, and one that fails hides its entry."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import Context, DeclarationError, Server
from mcptrio.errors import INVALID_PARAMS
from mcptrio.server.features.resources import Resources
from tests.server.talk import refusal, talking
from tests.stateless.kit import meta


async def coroutine(ctx: Context) -> bool:
    return False


class AsyncCall:
    async def __call__(self, ctx: Context) -> bool:
        return False


async def _read() -> str:
    return "read"


DECLARE: dict[str, Any] = {
    "tool": lambda server, visible: server.add_tool(_read, visible=visible),
    "prompt": lambda server, visible: server.add_prompt(_read, visible=visible),
    "resource": lambda server, visible: server.add_resource("a://b", _read, visible=visible),
}


@pytest.mark.defect("D03")
@pytest.mark.parametrize("kind", DECLARE)
@pytest.mark.parametrize("visible", [coroutine, partial(coroutine), AsyncCall()], ids=["function", "partial", "object"])
def test_an_async_predicate_is_refused(kind: str, visible: Any) -> None:
    server = Server("hidden")
    with pytest.raises(DeclarationError, match=rf"{kind} .*: visible= must not be async"):
        DECLARE[kind](server, visible)
    assert server.capabilities().tools is None


@pytest.mark.defect("D03")
@pytest.mark.parametrize("visible", [True, "staff", int])
def test_a_predicate_is_a_function(visible: Any) -> None:
    with pytest.raises(DeclarationError, match="visible= is a function that gets the context"):
        Server("hidden").add_tool(_read, visible=visible)


@pytest.mark.defect("D03")
async def test_an_awaitable_never_counts_as_true(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("hidden")
    for declare in DECLARE.values():
        declare(server, lambda ctx: coroutine(ctx))
    async with talking(server) as talk:
        assert (await talk.request("tools/list"))["tools"] == []
        assert (await talk.request("prompts/list"))["prompts"] == []
        assert (await talk.request("resources/list"))["resources"] == []
        assert "unknown tool" in (await refusal(talk, "tools/call", name="_read")).message
        assert "unknown prompt" in (await refusal(talk, "prompts/get", name="_read")).message
        assert "not found" in (await refusal(talk, "resources/read", uri="a://b")).message
    assert "returned an awaitable" in caplog.text


@pytest.mark.defect("D03")
async def test_a_predicate_that_raises_hides_its_entry_only(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("hidden")

    def broken(ctx: Context) -> bool:
        raise RuntimeError("no database")

    server.add_tool(_read, name="hidden", visible=broken)
    server.add_tool(_read, name="shown")
    async with talking(server) as talk:
        assert [tool["name"] for tool in (await talk.request("tools/list"))["tools"]] == ["shown"]
        assert "unknown tool" in (await refusal(talk, "tools/call", name="hidden")).message
        assert await talk.text("shown") == "read"
    assert "visible= of 'hidden' failed" in caplog.text
    assert "no database" in caplog.text


def watched() -> tuple[Server, set[str]]:
    """A server with two resources, and the URIs that are visible."""
    server, shown = Server("watched"), {"a://1", "a://2"}
    for uri in sorted(shown):
        server.add_resource(uri, _read, name=uri, visible=lambda ctx, uri=uri: uri in shown)
    return server, shown


@pytest.mark.defect("D03")
async def test_a_subscription_ends_when_the_resource_is_hidden_or_removed(autojump_clock: MockClock) -> None:
    server, shown = watched()
    async with talking(server) as talk:
        for uri in ("a://1", "a://2"):
            await talk.request("resources/subscribe", uri=uri)
            server.notify_resource_updated(uri)
        await talk.settled()
        method = "notifications/resources/updated"
        assert [params["uri"] for params in talk.heard(method)] == ["a://1", "a://2"]
        shown.remove("a://1")
        server.remove_resource("a://2")
        for _ in range(2):  # the first change after it ends the subscription, also for what is shown again
            for uri in ("a://1", "a://2"):
                server.notify_resource_updated(uri)
            await talk.settled()
            shown.add("a://1")
        assert len(talk.heard(method)) == 2


@pytest.mark.defect("D03")
async def test_a_listen_request_ends_the_subscription_of_a_hidden_resource(autojump_clock: MockClock) -> None:
    server, shown = watched()
    async with talking(server) as talk:
        wanted = {"resourceSubscriptions": ["a://1", "a://2", "a://1"]}
        await talk.begin("subscriptions/listen", _meta=meta(), notifications=wanted)
        await talk.settled()
        (acknowledged,) = talk.heard("notifications/subscriptions/acknowledged")
        assert acknowledged["notifications"]["resourceSubscriptions"] == ["a://1", "a://2"]
        shown.remove("a://1")
        for _ in range(2):
            for uri in ("a://1", "a://2"):
                server.notify_resource_updated(uri)
            await talk.settled()
            shown.add("a://1")
        assert [params["uri"] for params in talk.heard("notifications/resources/updated")] == ["a://2", "a://2"]


@pytest.mark.defect("S2")
async def test_the_uris_of_one_listen_request_are_bounded_together() -> None:
    async with talking(watched()[0]) as talk:
        uris = [f"a://{number:04}" + "x" * 100 for number in range(700)]
        params = {"_meta": meta(), "notifications": {"resourceSubscriptions": uris}}
        with trio.fail_after(30):
            error = await refusal(talk, "subscriptions/listen", **params)
        assert (error.code, error.message) == (
            INVALID_PARAMS,
            "the URIs of a subscription may have 65536 characters together",
        )


@pytest.mark.defect("S2")
async def test_a_listen_request_with_many_uris_lets_other_tasks_run() -> None:
    async with talking(watched()[0]) as talk:
        uris = [f"a://{number}" for number in range(500)]
        turns = 0
        await talk.begin("subscriptions/listen", _meta=meta(), notifications={"resourceSubscriptions": uris})
        while not talk.heard("notifications/subscriptions/acknowledged"):
            await trio.lowlevel.checkpoint()
            turns += 1
        assert turns > 250


@pytest.mark.defect("S2")
def test_a_uri_is_matched_for_its_scopes_only_where_a_resource_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    async def of_x(x: str) -> str:
        return x

    matched: list[Any] = []
    monkeypatch.setattr(Resources, "_candidates", lambda self, uri: matched.append(uri) or iter(()))
    server = Server("scoped")
    server.add_resource("a://{x}", of_x)
    assert server._app.needed_scopes("resources/read", {"uri": "a://b"}) == ()
    assert matched == []
    server.add_resource("b://{x}", of_x, name="b", scopes=["b:read"])
    server._app.needed_scopes("resources/read", {"uri": "a://b"})
    assert matched == ["a://b"]
