"""The endpoint on real sockets."""

from __future__ import annotations

import json

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcptrio.transports.http_server.config import HttpConfig
from tests import engines
from tests.engines import both_engines
from tests.transports.app_for_tests import initialize, request, stage_of

from .http_peer import HttpClient, serving_endpoint

pytestmark = both_engines


async def test_a_session_from_initialize_to_delete() -> None:
    async with serving_endpoint() as (server, _):
        client = await HttpClient.open(server, roots={})
        quick = await client.send("POST", request(1, "echo", say="hi"))
        assert quick.headers["content-type"] == "application/json"
        assert (await quick.json())["result"] == {"echo": "hi"}

        streamed = await client.send("POST", request(2, "count", to=3))
        assert streamed.headers["content-type"] == "text/event-stream"
        assert [json.loads(event.data).get("id") for event in await streamed.rest()] == [None, None, None, 2]

        asking = await client.send("POST", request(3, "ask"))
        event = await asking.event()
        assert event is not None
        answer = {"jsonrpc": "2.0", "id": json.loads(event.data)["id"], "result": {"roots": []}}
        assert (await client.send("POST", json.dumps(answer).encode())).status == 202
        assert json.loads((await asking.rest())[0].data)["result"] == {"answer": {"roots": []}}

        listener = await client.listen()
        assert (await client.listen()).status == 409
        gone = await client.send("DELETE")
        assert (gone.status, await gone.body()) == (200, b"")
        assert await listener.rest() == []
        assert listener.complete
        assert (await client.send("POST", request(4, "ping"))).status == 404


async def test_the_address_it_listens_on_is_allowed_and_a_foreign_one_is_not() -> None:
    async with serving_endpoint() as (server, _):
        own = f"http://127.0.0.1:{server.address.port}"
        client = HttpClient(server)
        assert (await client.send("POST", initialize(), origin=own)).status == 200
        evil = await client.send("POST", initialize(), host="evil.example", origin="http://evil.example")
        assert evil.status == 421
        if engines.current() == "hypercorn":  # it answers before it reads the body, the direct engine has read it
            assert evil.headers["connection"] == "close"
        assert (await client.send("POST", initialize(), origin="http://evil.example")).status == 403


async def test_an_early_answer_to_a_large_upload_reaches_the_client() -> None:
    """A megabyte is on its way when the head is refused: the answer is given, and the connection ends."""
    async with serving_endpoint() as (server, _):
        client = HttpClient(server, "unknown")
        reply = await client.send("POST", b"x" * 1_000_000)
        assert reply.status == 404
        assert reply.headers["connection"] == "close"


async def test_a_body_without_a_length_is_counted() -> None:
    async with serving_endpoint(HttpConfig(max_body=1000)) as (server, _):
        async with await server.connect() as stream:
            head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.address.port}\r\nContent-Type: application/json\r\n"
            await stream.send_all(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
            await stream.send_all(b"400\r\n" + b" " * 1024 + b"\r\n" + b"0\r\n\r\n")
            answer = await stream.receive_some(65536)
            assert b" 413 " in answer.split(b"\r\n")[0]


async def test_a_client_that_vanishes_leaves_its_call_running_and_everybody_else_alone() -> None:
    async with serving_endpoint() as (server, endpoint):
        client, other = await HttpClient.open(server), await HttpClient.open(server)
        stage = stage_of(endpoint)
        stage.cues.send_nowait("tell")
        reader = await client.send("POST", request(1, "follow"))
        await reader.event()
        reader.reset()
        session = endpoint.runtime.supervisor.find(client.session_id or "")
        assert session is not None
        while session.link.connections:
            await trio.sleep(0.01)
        assert session.peer.calls == 1
        assert (await (await other.send("POST", request(1, "echo", say=1))).json())["result"] == {"echo": 1}
        stage.cues.send_nowait("end")
        await wait_all_tasks_blocked(0.01)
        assert session.peer.calls == 0


@pytest.mark.parametrize("grace", [0.3])
async def test_a_shutdown_lets_calls_finish_and_ends_streams_properly(grace: float) -> None:
    async with serving_endpoint() as (server, endpoint):
        client = await HttpClient.open(server)
        stage = stage_of(endpoint)
        listener = await client.listen()
        finishing = await client.send("POST", request(1, "follow"))
        endless = await client.send("POST", request(2, "sleep", seconds=3600))

        async def finish() -> None:
            stage.cues.send_nowait("end")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                lambda: server.listener.shut_down(lambda _: endpoint.runtime.drain(grace), timeout=grace + 1)
            )
            nursery.start_soon(finish)
            assert json.loads((await finishing.rest())[0].data)["result"] == {"followed": 0}
            assert json.loads((await endless.rest())[0].data)["error"]["message"] == "the server is shutting down"
            assert await listener.rest() == []
        assert listener.raw.endswith(b"retry: 1000\n\n")
        assert (finishing.complete, endless.complete, listener.complete) == (True, True, True)


async def test_the_old_pair_of_endpoints() -> None:
    async with serving_endpoint(HttpConfig(legacy_sse=True)) as (server, _):
        client = HttpClient(server)
        events = await client.send("GET", path="/sse")
        first = await events.event()
        assert first is not None
        assert first.event == "endpoint"
        accepted = await client.send("POST", initialize("2024-11-05"), path=first.data.decode())
        assert accepted.status == 202
        answer = await events.event()
        assert answer is not None
        assert json.loads(answer.data)["result"]["protocolVersion"] == "2024-11-05"


@pytest.mark.parametrize("path", ["/mcp/", "/mcp/?x=1", "/mcp?x=1"])
async def test_a_trailing_slash_or_a_query_names_the_same_endpoint(path: str) -> None:
    body = initialize()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    async with serving_endpoint() as (server, _):
        response = await server.ask(head.encode() + body)
        assert response.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"mcp-session-id" in response
        assert b" 404 " in await server.ask(head.replace("/mcp", "/mcp//").encode() + body)


@pytest.mark.defect("U16")
@pytest.mark.parametrize(
    ("method", "path", "line"),
    [
        ("GET", "/livez", b"HTTP/1.1 200 OK\r\n"),
        ("GET", "/nothing", b"HTTP/1.1 404 Not Found\r\n"),
        ("PUT", "/mcp", b"HTTP/1.1 405 Method Not Allowed\r\n"),
        ("DELETE", "/mcp", b"HTTP/1.1 400 Bad Request\r\n"),
        ("put", "/mcp", b"HTTP/1.1 405 Method Not Allowed\r\n"),
    ],
)
async def test_every_response_has_a_reason_phrase(method: str, path: str, line: bytes) -> None:
    async with serving_endpoint() as (server, _):
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        assert (await server.ask(head.encode())).startswith(line)
