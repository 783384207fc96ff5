"""The cache keeps results exactly as long as the server said, and not past a notified change."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import connect
from mcptrio.client.cache import ResultCache
from mcptrio.transports.http_client import AuthRequest, AuthResponse
from tests.client.kit import BOTH, STATELESS, Wire, scripted
from tests.transports.scripted_http import URL, Answer, Asked, Web, result, stateless

PAGE = {"tools": [], "ttlMs": 1000}


def kept(cache: ResultCache, method: str, params: dict[str, Any], result: dict[str, Any], now: float = 0.0) -> None:
    key = cache.key(method, params)
    assert key is not None
    cache.put(key, result, now, cache.changes)


def found(cache: ResultCache, method: str, params: dict[str, Any], now: float = 0.0) -> Any:
    key = cache.key(method, params)
    assert key is not None
    return cache.get(key, now)


def test_a_result_is_fresh_for_its_time_and_stale_after() -> None:
    cache = ResultCache()
    kept(cache, "tools/list", {}, PAGE)
    assert found(cache, "tools/list", {}, 0.999) == PAGE
    assert found(cache, "tools/list", {}, 1.0) is None


@pytest.mark.parametrize("ttl", [0, -5, None, "1000", 10.5, True])
def test_a_result_without_a_ttl_is_not_cached(ttl: Any) -> None:
    cache = ResultCache()
    kept(cache, "tools/list", {}, {"tools": [], "ttlMs": ttl})
    assert found(cache, "tools/list", {}) is None


def test_other_parameters_are_another_request_but_meta_is_not() -> None:
    cache = ResultCache()
    kept(cache, "resources/read", {"uri": "a", "_meta": {"x": 1}}, PAGE)
    assert found(cache, "resources/read", {"_meta": {}, "uri": "a"}) == PAGE
    assert found(cache, "resources/read", {"uri": "b"}) is None


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "x"}),
        ("prompts/get", {"name": "x"}),
        ("resources/read", {"uri": "a", "inputResponses": {}}),
        ("resources/read", {"uri": "a", "requestState": "s"}),
    ],
)
def test_a_request_that_must_not_be_cached_has_no_key(method: str, params: dict[str, Any]) -> None:
    assert ResultCache().key(method, params) is None


@pytest.mark.parametrize(
    ("notification", "params", "gone"),
    [
        ("notifications/tools/list_changed", {}, {"tools/list"}),
        ("notifications/prompts/list_changed", {}, {"prompts/list"}),
        ("notifications/resources/list_changed", {}, {"resources/list", "resources/templates/list"}),
        ("notifications/resources/updated", {"uri": "a://b"}, {"resources/read"}),
        ("notifications/resources/updated", {"uri": "a://b/c"}, {"resources/read"}),
        ("notifications/resources/updated", {"uri": "z://b"}, set()),
        ("notifications/message", {}, set()),
    ],
)
def test_a_notification_invalidates_the_results_that_it_is_about(
    notification: str, params: dict[str, Any], gone: set[str]
) -> None:
    cache = ResultCache()
    requests: dict[str, dict[str, Any]] = {
        "tools/list": {},
        "prompts/list": {},
        "resources/list": {},
        "resources/templates/list": {},
        "resources/read": {"uri": "a://b"},
    }
    for method, asked in requests.items():
        kept(cache, method, asked, PAGE)
    cache.on_notification(notification, params)
    assert {method for method, asked in requests.items() if found(cache, method, asked) is None} == gone


def test_a_result_that_was_requested_before_a_change_is_not_cached() -> None:
    """The answer may have been written before the change."""
    cache = ResultCache()
    key = cache.key("tools/list", {})
    assert key is not None
    before = cache.changes
    cache.on_notification("notifications/tools/list_changed", {})
    cache.put(key, PAGE, 0.0, before)
    assert cache.get(key, 0.0) is None


def test_the_cache_is_bounded_and_forgets_what_was_used_least() -> None:
    cache = ResultCache(2)
    for uri in "abc":
        kept(cache, "resources/read", {"uri": uri}, PAGE)
        found(cache, "resources/read", {"uri": "a"})
    assert [uri for uri in "abc" if found(cache, "resources/read", {"uri": uri})] == ["a", "c"]


async def test_a_client_asks_again_only_when_it_has_to(autojump_clock: MockClock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        while True:
            request = await wire.take("tools/list")
            await wire.answer(request, tools=[], resultType="complete", ttlMs=10_000, cacheScope="private")
            if len(wire.received) == 3:
                await wire.say(method="notifications/tools/list_changed", params={})

    server = scripted(serve)
    async with connect(server, protocol=BOTH[1]) as client:

        async def asked() -> int:
            before = len(server.wires[0].received)
            await client.list_tools()
            await trio.testing.wait_all_tasks_blocked()
            return len(server.wires[0].received) - before

        assert await asked() == 1
        assert await asked() == 0
        await trio.sleep(11)
        assert await asked() == 1  # stale; then a notification says that something changed
        assert await asked() == 1
        assert await asked() == 0
        await client.list_tools(cached=False)
        assert len(server.wires[0].received) == 5


@pytest.mark.defect("E12")
async def test_signing_in_again_makes_everything_stale(autojump_clock: MockClock) -> None:
    """With more scopes a server may list more."""

    class StepUp:
        token = "narrow"

        async def authorize(self, request: AuthRequest) -> dict[str, str]:
            return {"Authorization": self.token}

        async def on_response(self, response: AuthResponse) -> bool:
            if response.status != 403:
                return False
            self.token = "wide"
            return True

    def handle(asked: Asked) -> Answer:
        wide = asked.headers["authorization"] == "wide"
        if asked.rpc == "tools/call":
            return Answer(200, result(asked, content=[])) if wide else Answer(403)
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in (["a", "b"] if wide else ["a"])]
        return Answer(200, result(asked, tools=tools, ttlMs=3_600_000, cacheScope="private"))

    web = Web(stateless(STATELESS[-1], handle))
    async with connect(URL, http_client=web.client(), auth=StepUp()) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a"]
        assert [tool.name for tool in await client.list_tools()] == ["a"]
        await client.call_tool("a")
        assert [tool.name for tool in await client.list_tools()] == ["a", "b"]
    assert len(web.of("tools/list")) == 2
