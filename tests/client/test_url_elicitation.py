"""Requests that need a person to visit a page first: the error -32042."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from mcptrio import Context, MCPError, Server, UrlElicitationRequired, connect
from mcptrio.types import ElicitParams
from tests.client.kit import BOTH, Wire, scripted

OLD = BOTH[0]


def page(number: str = "e1", **more: Any) -> dict[str, Any]:
    return {"mode": "url", "elicitationId": number, "url": f"https://example.org/{number}", "message": "Sign", **more}


def refusing(*pages: dict[str, Any], times: int = 1, report_after: float | None = None) -> Any:
    """A server that refuses so many calls until pages are visited, and may notify of the visit."""

    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        for _ in range(times):
            await wire.refuse(await wire.take("tools/call"), -32042, "sign in", {"elicitations": list(pages)})
            if report_after is not None:
                await trio.sleep(report_after)
                for one in pages:
                    params = {"elicitationId": one["elicitationId"]}
                    await wire.say(method="notifications/elicitation/complete", params=params)
        await wire.answer(await wire.take("tools/call"), content=[{"type": "text", "text": "done"}])
        await wire.take()

    return scripted(serve)


def calls_of(server: Any) -> list[dict[str, Any]]:
    return [one for one in server.wires[0].received if one.get("method") == "tools/call"]


@pytest.fixture
def travel() -> Server:
    """A server of ours whose tool needs an account at a page."""
    server = Server("travel")
    signed_in: list[str] = []

    @server.tool
    async def book(city: str) -> str:
        if not signed_in:
            raise MCPError(-32042, "sign in first", {"elicitations": [page("e7")]})
        return f"{city}, {signed_in[0]}"

    @server.tool
    async def sign_in(name: str, ctx: Context) -> str:
        """Complete the sign-in as the page would."""
        signed_in.append(name)
        await ctx.elicitation_complete("e7")
        return "thank you"

    return server


async def test_a_server_of_ours_has_its_page_visited(autojump_clock: trio.abc.Clock, travel: Server) -> None:
    seen: list[ElicitParams] = []

    async def person(params: ElicitParams) -> str:
        seen.append(params)
        nursery.start_soon(visit)
        return "accept"

    async def visit() -> None:
        await trio.sleep(40)
        await client.call_tool("sign_in", {"name": "Ada"})

    async with trio.open_nursery() as nursery, connect(travel, protocol=OLD, elicit=person) as client:
        assert await client.call_tool("book", {"city": "Oslo"}, into=str, timeout=5) == "Oslo, Ada"
        assert trio.current_time() == pytest.approx(40, abs=1)
    assert [(one.mode, one.url, one.elicitation_id) for one in seen] == [("url", "https://example.org/e7", "e7")]


async def test_the_call_is_repeated_as_soon_as_the_user_confirms_the_visit(autojump_clock: trio.abc.Clock) -> None:
    async def visited(params: ElicitParams) -> None:
        await trio.sleep(20)

    server = refusing(page())
    async with connect(server, protocol=OLD, elicit=lambda _: "accept", visited=visited) as client:
        began = trio.current_time()
        assert await client.call_tool("t", {"x": 1}, into=str) == "done"
        assert trio.current_time() - began == pytest.approx(20, abs=0.1)
    first, second = calls_of(server)
    assert first["params"]["arguments"] == second["params"]["arguments"] == {"x": 1}
    assert first["id"] != second["id"]


async def test_the_server_may_complete_the_visit_before_the_user_confirms_it(autojump_clock: trio.abc.Clock) -> None:
    left: list[str] = []

    async def visited(params: ElicitParams) -> None:
        try:
            await trio.sleep_forever()
        finally:
            left.append(str(params.elicitation_id))

    server = refusing(page("a"), page("b"), report_after=10)
    async with connect(server, protocol=OLD, elicit=lambda _: "accept", visited=visited) as client:
        began = trio.current_time()
        assert await client.call_tool("t", into=str) == "done"
        assert trio.current_time() - began == pytest.approx(10, abs=0.1)
    assert sorted(left) == ["a", "b"]


async def test_a_call_is_repeated_after_the_visit_timeout_without_a_completion(autojump_clock: trio.abc.Clock) -> None:
    async with connect(refusing(page()), protocol=OLD, elicit=lambda _: "accept", visit_timeout=30) as client:
        began = trio.current_time()
        assert await client.call_tool("t", into=str, timeout=5, total_timeout=10) == "done"
        assert trio.current_time() - began == pytest.approx(30, abs=0.1)


async def test_the_completion_of_another_page_is_ignored(autojump_clock: trio.abc.Clock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        await wire.refuse(await wire.take("tools/call"), -32042, "sign in", {"elicitations": [page("a")]})
        for params in ({"elicitationId": "b"}, {}, {"elicitationId": 7}, {"elicitationId": ["a"]}):
            await wire.say(method="notifications/elicitation/complete", params=params)
        await wire.answer(await wire.take("tools/call"), content=[{"type": "text", "text": "done"}])

    async with connect(scripted(serve), protocol=OLD, elicit=lambda _: "accept", visit_timeout=30) as client:
        began = trio.current_time()
        await client.call_tool("t")
        assert trio.current_time() - began == pytest.approx(30, abs=0.1)


async def test_a_call_is_repeated_only_once_after_a_visit(autojump_clock: trio.abc.Clock) -> None:
    server = refusing(page(), times=2, report_after=1)
    async with connect(server, protocol=OLD, elicit=lambda _: "accept") as client:
        with pytest.raises(UrlElicitationRequired):
            await client.call_tool("t")
    assert len(calls_of(server)) == 2


async def test_a_failure_of_the_second_try_is_raised_as_it_is(autojump_clock: trio.abc.Clock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        await wire.refuse(await wire.take("tools/call"), -32042, "sign in", {"elicitations": [page("a")]})
        await wire.say(method="notifications/elicitation/complete", params={"elicitationId": "a"})
        await wire.refuse(await wire.take("tools/call"), -32602, "no such city")

    async with connect(scripted(serve), protocol=OLD, elicit=lambda _: "accept", visit_timeout=1) as client:
        with pytest.raises(MCPError, match="no such city"):
            await client.call_tool("t")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"elicit": lambda _: "accept", "elicit_modes": ("form",)},
        {"elicit": lambda _: "decline"},
        {"elicit": lambda _: "cancel"},
        {"elicit": lambda _: "accept", "max_rounds": 0},
    ],
    ids=["no callback", "no url mode", "declined", "cancelled", "by hand"],
)
async def test_url_pages_that_are_not_visited_are_in_the_exception(options: dict[str, Any]) -> None:
    server = refusing(page("a"), page("b"))
    async with connect(server, protocol=OLD, **options) as client:
        with pytest.raises(UrlElicitationRequired) as caught:
            await client.call_tool("t")
    assert [one.url for one in caught.value.elicitations] == ["https://example.org/a", "https://example.org/b"]
    assert caught.value.code == -32042
    assert len(calls_of(server)) == 1


@pytest.mark.parametrize(
    "data",
    [
        None,
        7,
        {},
        {"elicitations": []},
        {"elicitations": [page(mode="form", requestedSchema={"type": "object", "properties": {}})]},
        {"elicitations": [{"mode": "url", "url": "https://example.org", "message": "no id"}]},
        {"elicitations": [page()] * 17},
    ],
)
async def test_an_error_that_breaks_the_rules_is_an_ordinary_one(data: Any) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        await wire.refuse(await wire.take("tools/call"), -32042, "sign in", data)

    def person(params: ElicitParams) -> str:
        raise AssertionError("the user must not be asked")

    async with connect(scripted(serve), protocol=OLD, elicit=person) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("t")
        assert not isinstance(caught.value, UrlElicitationRequired)


async def test_a_person_who_gives_up_at_the_page_ends_the_call(autojump_clock: trio.abc.Clock) -> None:
    async def visited(params: ElicitParams) -> None:
        raise LookupError("not today")

    server = refusing(page("a"), page("b"))
    async with connect(server, protocol=OLD, elicit=lambda _: "accept", visited=visited) as client:
        with pytest.raises(LookupError, match="not today"):
            await client.call_tool("t")
    assert len(calls_of(server)) == 1


async def test_two_calls_may_wait_for_the_same_page(autojump_clock: trio.abc.Clock, travel: Server) -> None:
    done: list[str] = []

    async def call(city: str) -> None:
        done.append(await client.call_tool("book", {"city": city}, into=str))

    async with connect(travel, protocol=OLD, elicit=lambda _: "accept") as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "Oslo")
            nursery.start_soon(call, "Rome")
            await trio.sleep(10)
            await client.call_tool("sign_in", {"name": "Ada"})
        assert sorted(done) == ["Oslo, Ada", "Rome, Ada"]
        assert trio.current_time() < 12


async def test_in_the_newest_revision_the_code_means_nothing() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        await wire.refuse(await wire.take("tools/call"), -32042, "sign in", {"elicitations": [page()]})

    async with connect(scripted(serve), protocol=BOTH[1], elicit=lambda _: "accept") as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("t")
        assert not isinstance(caught.value, UrlElicitationRequired)
