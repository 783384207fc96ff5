"""The deprecated HTTP+SSE pair: one connection is one session."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio.auth.server import Principal
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import HttpRequest

from .app_for_tests import (
    Client,
    Reader,
    error_of,
    exchange,
    head,
    initialize,
    notification,
    open_endpoint,
    plain,
    request,
    stage_of,
    stream,
)

LEGACY = HttpConfig(legacy_sse=True)


class OldClient:
    def __init__(self, endpoint: Endpoint, reader: Reader, uri: str) -> None:
        self.endpoint, self.reader = endpoint, reader
        self.path, _, query = uri.partition("?")
        self.query = query.encode()

    @classmethod
    async def open(cls, endpoint: Endpoint, root: str = "", **changes: Any) -> OldClient:
        reader = await stream(endpoint, head("GET", "/sse", root=root, **changes))
        event = await reader.event()
        assert event is not None
        assert event.event == "endpoint"
        return cls(endpoint, reader, event.data.decode())

    async def post(self, body: bytes, **changes: Any) -> Any:
        return await plain(self.endpoint, head("POST", self.path, query=self.query, accept="*/*", **changes), body)


async def test_a_session_over_legacy_sse(autojump_clock: MockClock) -> None:
    async with open_endpoint(LEGACY) as endpoint:
        client = await OldClient.open(endpoint)
        assert client.path == "/messages"
        reply = await client.post(initialize("2024-11-05"))
        assert (reply.status, reply.body) == (202, b"")
        event = await client.reader.event()
        assert event is not None
        assert (event.event, event.id) == ("message", "")
        assert json.loads(event.data)["result"]["protocolVersion"] == "2024-11-05"
        await client.post(notification("notifications/initialized"))
        await client.post(request(1, "count", to=2, every=1))
        await wait_all_tasks_blocked()
        await client.post(request(2, "echo", say="between"))
        frames = [await client.reader.frame() for _ in range(4)]
        assert [frame.get("id") for frame in frames] == [None, 2, None, 1]
        assert await client.reader.chunk() == b":\n\n"


async def test_the_session_ends_with_its_connection(autojump_clock: MockClock) -> None:
    async with open_endpoint(LEGACY) as endpoint:
        client = await OldClient.open(endpoint)
        await client.post(initialize("2024-11-05"))
        await client.post(request(1, "sleep", seconds=100, name="x"))
        await wait_all_tasks_blocked()
        client.reader.hang_up()
        await wait_all_tasks_blocked()
        assert stage_of(endpoint).ended == ["x"]
        assert (await client.post(request(2, "ping"))).status == 404
        await trio.sleep(1)
        assert not endpoint.runtime.supervisor.sessions


async def test_bad_requests_of_legacy_sse_are_refused() -> None:
    async with open_endpoint(LEGACY) as endpoint:
        client = await OldClient.open(endpoint)
        assert (await client.post(b"{")).status == 400
        assert (await client.post(request(1, "ping"), content_type="text/plain")).status == 415
        assert (await client.post(request(1, "ping"), host="evil.example")).status == 421
        assert (await client.post(request(1, "ping"), origin="http://evil.example")).status == 403
        assert (await client.post(request(1, "ping"), content_length=10**8)).status == 413
        assert (await plain(endpoint, head("GET", "/sse", host="evil.example"))).status == 421
        assert (await plain(endpoint, head("GET", "/sse", accept="text/html"))).status == 406
        for method, path, allow in (("POST", "/sse", b"GET"), ("GET", "/messages", b"POST")):
            refusal = await plain(endpoint, head(method, path))
            assert (refusal.status, dict(refusal.headers)[b"allow"]) == (405, allow)
        for query, status in ((b"", 400), (b"session_id=unknown", 404), (b"session_id=a&session_id=b", 400)):
            reply = await plain(endpoint, head("POST", "/messages", query=query), request(1, "ping"))
            assert reply.status == status


async def test_the_two_transports_do_not_reach_each_others_sessions() -> None:
    async with open_endpoint(LEGACY) as endpoint:
        old = await OldClient.open(endpoint)
        await old.post(initialize("2024-11-05"))
        new = await Client.open(endpoint)
        theirs = old.query.decode().removeprefix("session_id=")
        assert (await new.post(request(1, "ping"), mcp_session_id=theirs)).status == 404
        ours = head("POST", "/messages", query=f"session_id={new.session_id}".encode())
        assert (await plain(endpoint, ours, request(1, "ping"))).status == 404


async def test_legacy_sse_is_off_by_default_and_works_under_a_path() -> None:
    async with open_endpoint() as endpoint:
        assert (await plain(endpoint, head("GET", "/sse"))).status == 404
    async with open_endpoint(LEGACY) as endpoint:
        client = await OldClient.open(endpoint, root="/api")
        assert client.path == "/api/messages"


async def test_a_stream_that_is_never_initialized_is_ended(autojump_clock: MockClock) -> None:
    async with open_endpoint(LEGACY) as endpoint:
        client = await OldClient.open(endpoint)
        before = trio.current_time()
        while await client.reader.chunk() is not None:
            pass
        assert trio.current_time() - before == pytest.approx(75)
        await trio.sleep(1)
        assert not endpoint.runtime.supervisor.sessions


async def test_a_drain_ends_the_stream_and_refuses_new_ones(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    async with open_endpoint(LEGACY) as endpoint:
        client = await OldClient.open(endpoint)
        nursery.start_soon(endpoint.runtime.drain, 1)
        await wait_all_tasks_blocked()
        assert await client.reader.event() is None
        refusal = await exchange(endpoint, head("GET", "/sse"))
        assert (refusal.status, error_of(refusal)["code"]) == (503, -32603)  # type: ignore[arg-type]


@pytest.mark.defect("E15")
async def test_a_stream_ends_with_the_token_that_opened_it(autojump_clock: MockClock) -> None:
    async def authenticate(head: HttpRequest) -> Principal:
        return Principal(subject="ada", expires=time.time() + 20)

    async with open_endpoint(LEGACY, authenticator=authenticate) as endpoint:
        client = await OldClient.open(endpoint)
        await client.post(initialize("2024-11-05"))
        began = trio.current_time()
        with trio.fail_after(60):
            frames = [json.loads(event.data) for event in await client.reader.rest()]
        assert [frame["id"] for frame in frames] == [0]
        assert 19 < trio.current_time() - began <= 20
        assert (await client.post(request(2, "ping"))).status == 404
