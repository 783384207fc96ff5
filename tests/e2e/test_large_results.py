"""Results that are larger than what the store keeps of a stream: a connected client gets them all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcptrio import Context, Server
from mcptrio.stores.base import StoreLimits
from mcptrio.stores.memory import MemoryStore
from mcptrio.stores.sqlite import SqliteStore
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
from tests import engines
from tests.engines import both_engines
from tests.stateless.kit import DATE, meta
from tests.transports.app_for_tests import Ctx, Stage, request

from .http_peer import HttpClient, serving_endpoint
from .raw_peer import serving

pytestmark = [both_engines, pytest.mark.defect("E16")]

MIB = 2**20


class Large(Stage):
    """Handlers with large results."""

    async def count(self, ctx: Ctx, params: dict[str, Any]) -> dict[str, Any]:
        """Tell some numbers, then answer with a large text."""
        for number in range(params["to"]):
            await ctx.report(number)
        return {"text": "x" * params["size"]}


def make_store(kind: str, tmp_path: Path, **limits: int) -> MemoryStore | SqliteStore:
    if kind == "memory":
        return MemoryStore(StoreLimits(**limits))
    return SqliteStore(tmp_path / "events.db", limits=StoreLimits(**limits))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("to", [1, 20])
async def test_a_result_over_4_mib_after_progress_reaches_the_client(kind: str, to: int, tmp_path: Path) -> None:
    async with serving_endpoint(stage=Large(), store=make_store(kind, tmp_path)) as (server, _):
        client = await HttpClient.open(server)
        response = await client.send("POST", request(1, "count", to=to, size=5 * MIB))
        assert response.headers["content-type"] == "text/event-stream"
        frames = [json.loads(event.data) for event in await response.rest()]
        assert [frame.get("id") for frame in frames] == [None] * to + [1]
        assert len(frames[-1]["result"]["text"]) == 5 * MIB


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_client_that_reads_slowly_gets_every_event_although_the_store_keeps_few(
    kind: str, tmp_path: Path
) -> None:
    store = make_store(kind, tmp_path, stream_events=3, stream_bytes=300)
    async with serving_endpoint(HttpConfig(outbox_events=50), stage=Large(), store=store) as (server, _):
        client = await HttpClient.open(server)
        response = await client.send("POST", request(1, "count", to=200, size=1000))
        frames = [json.loads(event.data) for event in await response.rest()]
        assert [frame["params"]["progress"] for frame in frames[:-1]] == list(range(200))
        assert len(frames[-1]["result"]["text"]) == 1000


async def test_an_answer_that_the_store_has_dropped_becomes_an_error() -> None:
    """Only `StoreLimits.total_bytes` may take an unread answer away: then the call ends with an error."""
    store = MemoryStore(StoreLimits(total_bytes=1000))
    append = store.append

    def append_and_crowd(key: Any, data: bytes, **options: Any) -> int:
        number = append(key, data, **options)
        if options.get("last"):
            store._evict(store._index.find(key))  # type: ignore[arg-type]  # as a burst of other streams would
        return number

    store.append = append_and_crowd  # type: ignore[method-assign]
    async with serving_endpoint(stage=Large(), store=store) as (server, _):
        client = await HttpClient.open(server)
        response = await client.send("POST", request(1, "count", to=1, size=10))
        text = (await response.body()).decode()
        error = json.loads(text if text.startswith("{") else text.split("data: ")[-1].split("\n")[0])
        assert error["id"] == 1
        assert "dropped" in error["error"]["message"]


async def test_a_large_result_without_a_session_reaches_the_client_after_progress() -> None:
    server = Server("large", "1")

    @server.tool
    async def produce(ctx: Context, size: int) -> str:
        await ctx.progress(1, total=2)
        return "x" * size

    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "produce",
                "arguments": {"size": 5 * MIB},
                "_meta": {**meta(), "progressToken": "t"},
            },
        }
    ).encode()
    head = (
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        "Accept: application/json, text/event-stream\r\nMcp-Method: tools/call\r\nMcp-Name: produce\r\n"
        f"MCP-Protocol-Version: {DATE}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    async with server._app.make_runtime().open() as runtime:
        endpoint = Endpoint(runtime, HttpConfig())
        direct = endpoint if engines.current() == "direct" else None
        async with serving(AsgiApp(endpoint), direct=direct) as served:
            response = await served.ask(head.encode() + body)
    assert b"notifications/progress" in response
    assert response.count(b"x" * 1000) >= 5 * MIB // 1100, "in chunks"
