"""A session keeps nothing of the requests that it has answered: each may have megabytes of parameters."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from mcptrio import SessionHandle
from mcptrio.errors import INVALID_PARAMS
from tests.stateless.kit import endpoint_of, meta, posting
from tests.transports.app_for_tests import Client, error_of, head, notification, plain, request

from .test_durable_sessions import make_server

MANY = 23_456
MARK: dict[str, Any] = {"x": [0] * MANY}
REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ping", {}),
    ("logging/setLevel", {"level": "debug"}),
    ("tools/list", {}),
    ("tools/call", {"name": "who", "arguments": {}}),
    ("resources/read", {"uri": "notes://a"}),
    ("resources/subscribe", {"uri": "notes://a"}),
    ("resources/subscribe", {"uri": "notes://b"}),
    ("resources/unsubscribe", {"uri": "notes://a"}),
)


def kept() -> int:
    """Count the marks that are still in memory, besides the one of this module."""
    gc.collect()
    return sum(type(thing) is list and len(thing) == MANY and thing is not MARK["x"] for thing in gc.get_objects())


@pytest.mark.defect("S7")
async def test_a_session_keeps_no_parameters_of_answered_requests() -> None:
    async with endpoint_of(make_server()) as endpoint:
        client = await Client.open(endpoint)
        for number, (method, params) in enumerate(REQUESTS):
            reply = await client.post(request(number, method, **params, _meta=MARK))
            assert (b"-32602" in reply.body) is (method == "resources/subscribe")
            await wait_all_tasks_blocked()
            assert (method, kept()) == (method, 0)
        for method in ("notifications/cancelled", "notifications/roots/list_changed"):
            assert (await client.post(notification(method, requestId=99, **MARK))).status == 202
            await wait_all_tasks_blocked()
            assert (method, kept()) == (method, 0)


@pytest.mark.defect("S7")
@pytest.mark.parametrize("function", [False, True], ids=["", "with a session function"])
@pytest.mark.parametrize("where", ["capabilities", "clientInfo"])
async def test_a_client_that_declares_too_much_gets_no_session(where: str, function: bool) -> None:
    server = make_server()
    if function:

        @server.session
        async def session(handle: SessionHandle) -> Any:
            yield 1

    params: dict[str, Any] = {"capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    params[where] |= {"experimental": {"x": MARK}, "title": "x" * 40_000}
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", **params}}
    ).encode()
    async with endpoint_of(server) as endpoint:
        reply = await plain(endpoint, head(), body)
        assert error_of(reply)["code"] == INVALID_PARAMS
        await wait_all_tasks_blocked()
        assert list(endpoint.runtime.supervisor.sessions) == []
        assert kept() == 0


@pytest.mark.defect("S7")
@pytest.mark.parametrize(("many", "accepted"), [(100, True), (2000, False)])
async def test_many_small_objects_are_not_kept_although_they_are_short(many: int, accepted: bool) -> None:
    """Each takes three bytes of JSON and a hundred of memory."""
    objects = {"x": {"y": [{}] * many}}
    async with endpoint_of(make_server()) as endpoint:
        params = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "c", "version": "1"}}
        reply = await plain(
            endpoint, head(), request(1, "initialize", capabilities={"experimental": objects}, **params)
        )
        assert (b'"result"' in reply.body) is accepted
        client = await Client.open(endpoint)
        reply = await client.post(request(1, "resources/subscribe", uri="notes://a", _meta=objects))
        assert (b'"result"' in reply.body) is accepted


@pytest.mark.defect("S7")
@pytest.mark.parametrize(("length", "icons"), [(1_000, 1), (40_000, None)])
async def test_a_session_leaves_out_large_icons_of_its_client(length: int, icons: int | None) -> None:
    """A client may send pictures as `data:` URIs: it gets its session all the same."""
    info = {"name": "c", "version": "1", "icons": [{"src": "data:image/png;base64," + "A" * length}]}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    async with endpoint_of(make_server()) as endpoint:
        reply = await plain(endpoint, head(), request(1, "initialize", **params))
        assert reply.status == 200
        (session,) = endpoint.runtime.supervisor.sessions.values()
        client = SessionHandle(session).client_info
        assert client is not None
        assert (client.name, client.icons and len(client.icons)) == ("c", icons)


@pytest.mark.defect("S7")
@pytest.mark.parametrize("params", [{"_meta": meta(**MARK)}, {"notifications": MARK}], ids=["meta", "filter"])
async def test_a_listen_request_that_holds_too_much_gets_no_stream(params: dict[str, Any]) -> None:
    async with posting(make_server()) as poster:
        reply = await poster.post("subscriptions/listen", {"notifications": {}, **params})
        assert reply.error["code"] == INVALID_PARAMS
