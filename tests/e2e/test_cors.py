"""CORS on the wire: both engines send the headers with every kind of response, and to allowed pages only."""

from __future__ import annotations

import trio

from mcptrio.auth.server import Principal
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain, refuse
from tests.engines import both_engines
from tests.transports.app_for_tests import initialize, request

from .http_peer import HttpClient, Response, serving_endpoint

pytestmark = both_engines

PAGE = "https://app.example.org"
EVIL = "https://evil.example"
ORIGIN = "access-control-allow-origin"


def check(response: Response, status: int, origin: str | None = PAGE) -> None:
    assert response.status == status
    assert response.headers.get(ORIGIN) == origin
    assert response.headers["vary"].startswith("Origin")
    assert "access-control-allow-credentials" not in response.headers
    if origin is None:
        assert not [name for name in response.headers if name.startswith("access-control")]


async def test_every_response_to_an_allowed_page_can_be_read() -> None:
    config = HttpConfig(allowed_origins=(PAGE,), max_body=5000, rate=0.01, rate_burst=6, stream_after=0.02)
    async with serving_endpoint(config, max_sessions=1) as (server, _):
        client = HttpClient(server)
        asked = {"access_control_request_method": "POST", "access_control_request_headers": "content-type"}
        check(await client.send("OPTIONS", origin=PAGE, **asked), 200)
        opened = await client.send("POST", initialize(), origin=PAGE)
        check(opened, 200)
        assert "Mcp-Session-Id" in opened.headers["access-control-expose-headers"]
        client.session_id = opened.headers["mcp-session-id"]
        check(await HttpClient(server).send("POST", initialize(), origin=PAGE), 503)
        check(await client.send("POST", request(1, "echo"), origin=PAGE), 200)
        streamed = await client.send("POST", request(2, "sleep", seconds=0.1), origin=PAGE)
        check(streamed, 200)
        assert streamed.headers["content-type"] == "text/event-stream"
        assert len(await streamed.rest()) == 1
        listening = await client.send("GET", origin=PAGE)
        check(listening, 200)
        listening.reset()
        check(await client.send("POST", b" " * 5001, origin=PAGE), 413)
        check(await HttpClient(server, "unknown").send("POST", request(1, "echo"), origin=PAGE), 404)
        check(await client.send("GET", path="/nothing", origin=PAGE), 404)
        check(await client.send("PUT", origin=PAGE), 405)
        for _ in range(8):
            last = await client.send("POST", request(3, "echo"), origin=PAGE)
        check(last, 429)
        assert "Retry-After" in last.headers["access-control-expose-headers"]
        check(await client.send("DELETE", origin=PAGE), 200)


async def test_no_response_to_another_page_can_be_read() -> None:
    async with serving_endpoint(HttpConfig(allowed_origins=(PAGE,), max_body=5000)) as (server, _):
        client = await HttpClient.open(server)
        check(await client.send("OPTIONS", origin=EVIL, access_control_request_method="POST"), 403, None)
        check(await client.send("POST", request(1, "echo"), origin=EVIL), 403, None)
        check(await client.send("POST", b" " * 5001, origin=EVIL), 403, None)
        check(await client.send("GET", origin=EVIL), 403, None)
        check(await client.send("DELETE", origin=EVIL), 403, None)
        check(await client.send("POST", request(1, "echo"), origin=PAGE), 200)


async def test_with_authentication_the_challenge_can_be_read_and_a_preflight_needs_none() -> None:
    async def authenticate(head: HttpRequest) -> Principal | Plain:
        await trio.lowlevel.checkpoint()
        if head.text(b"authorization") is None:
            return refuse(401, "a token is required", headers=((b"www-authenticate", b"Bearer"),))
        if head.text(b"authorization") == "Bearer weak":
            return refuse(403, "insufficient scope")
        return Principal(subject="ada")

    config = HttpConfig(allowed_origins=(PAGE,))
    async with serving_endpoint(config, authenticator=authenticate) as (server, _):
        client = HttpClient(server)
        asked = {"access_control_request_method": "POST", "access_control_request_headers": "authorization"}
        allowed = await client.send("OPTIONS", origin=PAGE, **asked)
        check(allowed, 200)
        assert allowed.headers["access-control-allow-headers"] == "authorization"
        refused = await client.send("POST", initialize(), origin=PAGE)
        check(refused, 401)
        assert refused.headers["www-authenticate"] == "Bearer"
        assert "WWW-Authenticate" in refused.headers["access-control-expose-headers"]
        check(await client.send("POST", initialize(), origin=PAGE, authorization="Bearer weak"), 403)
        check(await client.send("POST", initialize(), origin=PAGE, authorization="Bearer good"), 200)
        check(await client.send("POST", initialize(), origin=EVIL, authorization="Bearer good"), 403, None)


async def test_a_preflight_leaves_the_connection_open_for_the_request_after_it() -> None:
    async with serving_endpoint(HttpConfig(allowed_origins=(PAGE,))) as (server, _):
        stream = await server.connect()
        host = f"Host: 127.0.0.1:{server.address.port}\r\nOrigin: {PAGE}\r\n"
        await stream.send_all(f"OPTIONS /mcp HTTP/1.1\r\n{host}Access-Control-Request-Method: POST\r\n\r\n".encode())
        answer = await stream.receive_some(65536)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"connection: close" not in answer.lower()
        body = initialize()
        await stream.send_all(
            f"POST /mcp HTTP/1.1\r\n{host}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Accept: application/json, text/event-stream\r\n\r\n".encode()
            + body
        )
        assert (await stream.receive_some(65536)).startswith(b"HTTP/1.1 200 OK\r\n")
