"""CORS at the endpoint: which pages may read responses, and the answer to a preflight."""

from __future__ import annotations

from typing import Any

import pytest

from mcptrio.auth.server import Principal
from mcptrio.errors import DeclarationError
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain, refuse

from .app_for_tests import head, open_endpoint, plain

PAGE = "https://app.example.org"
NAMED = HttpConfig(allowed_origins=(PAGE, "http://dev.example.org:*"), legacy_sse=True)
# Request headers of each revision, by name as browsers write them.
HEADERS = {
    "2024-11-05": "content-type",
    "2025-03-26": "content-type, mcp-session-id, last-event-id",
    "2025-06-18": "authorization, content-type, mcp-protocol-version, mcp-session-id, last-event-id",
    "2025-11-25": "authorization, content-type, dpop, mcp-protocol-version, mcp-session-id, last-event-id",
    "2026-07-28": "authorization, content-type, mcp-method, mcp-name, mcp-param-region, mcp-protocol-version",
}


def preflight(path: str = "/mcp", *, origin: str = PAGE, method: str = "POST", **more: Any) -> HttpRequest:
    return head("OPTIONS", path, origin=origin, access_control_request_method=method, **more)


def ask(endpoint: Endpoint, request: HttpRequest) -> tuple[int, dict[bytes, bytes]]:
    """Status and headers as they are sent."""
    reply = endpoint.refuse_early(request)
    headers = dict(request.cors)
    if reply is not None:
        assert not {name for name, _ in reply.headers} & headers.keys(), "no header is sent twice"
        headers |= dict(reply.headers)
    return (200 if reply is None else reply.status), headers


def granted(headers: dict[bytes, bytes]) -> bytes | None:
    return headers.get(b"access-control-allow-origin")


@pytest.mark.parametrize("date", HEADERS)
async def test_a_preflight_allows_the_headers_of_every_revision(date: str) -> None:
    async with open_endpoint(NAMED) as endpoint:
        status, headers = ask(endpoint, preflight(access_control_request_headers=HEADERS[date]))
        assert status == 200
        assert granted(headers) == PAGE.encode()
        assert headers[b"access-control-allow-headers"].decode() == HEADERS[date]
        assert headers[b"access-control-allow-methods"] == b"GET, POST, DELETE"
        assert b"access-control-allow-credentials" not in headers
        assert headers[b"vary"].startswith(b"Origin, Access-Control-Request-Method")


async def test_only_headers_that_are_known_or_named_are_allowed() -> None:
    asked = "Content-Type, x-api-key,x-http-method-override , *, cookie, mcp-param-, mcp-param-a b"
    async with open_endpoint(NAMED) as endpoint:
        _, headers = ask(endpoint, preflight(access_control_request_headers=asked))
        assert headers[b"access-control-allow-headers"] == b"content-type"
    async with open_endpoint(HttpConfig(allowed_origins=(PAGE,), allowed_headers=("X-Api-Key",))) as endpoint:
        _, headers = ask(endpoint, preflight(access_control_request_headers=asked))
        assert headers[b"access-control-allow-headers"] == b"content-type, x-api-key"
        _, headers = ask(endpoint, preflight())
        assert b"access-control-allow-headers" not in headers


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://app.example.org",
        "https://app.example.org:8443",
        "https://app.example.org.evil.example",
        "https://dev.example.org",
        "null",
        "https://app.example.org, https://evil.example",
        "*",
    ],
)
async def test_no_other_page_can_read_anything(origin: str) -> None:
    async with open_endpoint(NAMED) as endpoint:
        for path in ("/mcp", "/sse", "/messages", "/metrics", "/nothing"):
            for method in ("POST", "GET", "DELETE", "OPTIONS"):
                asked = {"access_control_request_method": "POST"} if method == "OPTIONS" else {}
                status, headers = ask(endpoint, head(method, path, origin=origin, **asked))
                assert status == 403
                assert not [name for name in headers if name.startswith(b"access-control")]
                assert headers.get(b"vary", b"Origin") == b"Origin"


@pytest.mark.parametrize("origin", ["http://localhost:6274", "http://127.0.0.1:8000", "http://localhost:8000"])
async def test_pages_of_this_machine_may_call_but_get_no_cors_headers(origin: str) -> None:
    """They pass the check of Origin, but allowed_origins does not name them."""
    async with open_endpoint() as endpoint:
        assert ask(endpoint, head(origin=origin)) == (200, {})
        status, headers = ask(endpoint, preflight(origin=origin))
        assert (status, granted(headers)) == (405, None)


async def test_the_servers_own_pages_need_no_cors() -> None:
    async with open_endpoint(NAMED) as endpoint:
        assert ask(endpoint, head(origin="http://localhost:8000")) == (200, {b"vary": b"Origin"})


async def test_a_named_page_gets_the_headers_whatever_the_answer_is() -> None:
    async with open_endpoint(NAMED) as endpoint:
        for request, expected in [
            (head(origin=PAGE), 200),
            (head(origin=PAGE, content_type="text/plain"), 415),
            (head(origin=PAGE, content_length=10**9), 413),
            (head(origin=PAGE, mcp_session_id="x"), 404),
            (head("GET", origin="http://dev.example.org:3000"), 400),
            (head("PUT", origin=PAGE), 405),
            (head("GET", "/nothing", origin=PAGE), 404),
        ]:
            status, headers = ask(endpoint, request)
            assert status == expected
            assert granted(headers) == request.fields[b"origin"]
            assert headers[b"vary"] == b"Origin"
            exposed = headers[b"access-control-expose-headers"].split(b", ")
            assert {b"Mcp-Session-Id", b"MCP-Protocol-Version", b"WWW-Authenticate"} <= set(exposed)


async def test_a_wrong_host_tells_a_named_page_nothing() -> None:
    async with open_endpoint(NAMED) as endpoint:
        status, headers = ask(endpoint, head(origin=PAGE, host="evil.example"))
        assert (status, granted(headers)) == (421, None)


async def test_health_paths_get_no_cors_headers() -> None:
    async with open_endpoint(NAMED) as endpoint:
        for path in ("/livez", "/readyz", "/metrics"):
            assert granted(ask(endpoint, head("GET", path, origin=PAGE))[1]) is None
            assert ask(endpoint, preflight(path))[0] == 405


async def test_a_star_allows_every_origin_but_no_private_network_access() -> None:
    async with open_endpoint(HttpConfig(allowed_origins=("*",))) as endpoint:
        for origin in ("https://any.example", "null"):
            assert granted(ask(endpoint, head(origin=origin))[1]) == b"*"
        _, headers = ask(endpoint, preflight(access_control_request_private_network="true"))
        assert granted(headers) == b"*"
        assert b"access-control-allow-private-network" not in headers


async def test_a_named_page_may_reach_a_private_address() -> None:
    async with open_endpoint(NAMED) as endpoint:
        _, headers = ask(endpoint, preflight(access_control_request_private_network="true"))
        assert headers[b"access-control-allow-private-network"] == b"true"
        assert b"access-control-allow-private-network" not in ask(endpoint, preflight())[1]


async def test_preflights_work_for_the_legacy_sse_paths() -> None:
    async with open_endpoint(NAMED) as endpoint:
        assert ask(endpoint, preflight("/sse", method="GET"))[1][b"access-control-allow-methods"] == b"GET"
        assert ask(endpoint, preflight("/messages"))[1][b"access-control-allow-methods"] == b"POST"


async def test_a_cached_response_for_other_clients_never_reaches_a_page() -> None:
    async with open_endpoint(NAMED) as endpoint:
        assert ask(endpoint, head("GET"))[1][b"vary"] == b"Origin"
        assert b"vary" not in ask(endpoint, head("POST"))[1], "nothing caches the response to a POST"
    async with open_endpoint() as endpoint:
        assert b"vary" not in ask(endpoint, head("GET"))[1]


async def test_a_preflight_needs_no_credentials_and_the_request_after_it_does() -> None:
    async def authenticate(request: HttpRequest) -> Principal | Plain:
        if request.text(b"authorization") is None:
            return refuse(401, "a token is required", headers=((b"www-authenticate", b"Bearer"),))
        return Principal(subject="ada")

    async with open_endpoint(NAMED, authenticator=authenticate) as endpoint:
        assert ask(endpoint, preflight(access_control_request_headers="authorization"))[0] == 200
        request = head(origin=PAGE)
        assert (await plain(endpoint, request)).status == 401
        assert granted(dict(request.cors)) == PAGE.encode()


def test_the_names_of_headers_are_checked() -> None:
    for name in ("*", "X Api", "", "X-Api\r\nSet-Cookie"):
        with pytest.raises(DeclarationError, match="allowed_headers"):
            HttpConfig(allowed_headers=(name,))
    with pytest.raises(DeclarationError, match="a list of names"):
        HttpConfig(allowed_headers="X-Api-Key")
