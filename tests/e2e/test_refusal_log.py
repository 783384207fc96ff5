"""Refused requests leave one line in the log, with the reason and the setting that decides."""

from __future__ import annotations

import json
import logging
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from mcptrio import telemetry
from mcptrio.auth.server import BearerAuth, Principal, StaticTokens
from mcptrio.auth.server.refusal import Auth
from mcptrio.telemetry.log import LogListener
from mcptrio.transports.bearer.authorizer import Authorizer
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain, refuse
from tests.engines import both_engines

from .http_peer import serving_endpoint

pytestmark = both_engines


async def authenticate(request: HttpRequest) -> Principal | Plain:
    if request.text(b"authorization") is None:
        return refuse(401, "a bearer token is required")
    return Principal(subject="ada")


def request_bytes(method: str, path: str, *lines: str, host: str = "localhost") -> bytes:
    head = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Accept: */*", "Connection: close", *lines, "", ""]
    return "\r\n".join(head).encode()


@pytest.mark.parametrize(
    ("request_head", "parts"),
    [
        (request_bytes("GET", "/mcp", "Authorization: Bearer x", host="evil"), ["421 GET /mcp: ", "allowed_hosts"]),
        (request_bytes("GET", "/mcp", "Origin: http://evil.example"), ["403 GET /mcp: ", "allowed_origins"]),
        (request_bytes("GET", "/nothing"), ["404 GET /nothing: ", "/mcp (HttpConfig.path)"]),
        (request_bytes("PUT", "/mcp"), ["405 PUT /mcp: ", "method"]),
        (request_bytes("DELETE", "/mcp", "Mcp-Session-Id: x"), ["401 DELETE /mcp: ", "token is required (auth=)"]),
        (
            request_bytes("DELETE", "/mcp", "Mcp-Session-Id: x", "Authorization: Bearer x"),
            ["404 DELETE /mcp: ", "no such session", "idle_timeout"],
        ),
    ],
    ids=["421", "403", "404", "405", "401", "404 session"],
)
async def test_a_refusal_is_reported_once_with_its_reason_and_setting(request_head: bytes, parts: list[str]) -> None:
    events: list[Any] = []
    async with serving_endpoint(HttpConfig(), authenticator=authenticate) as (server, endpoint):
        endpoint.runtime.hub.add(events.append)
        response = await server.ask(request_head)
        assert response.startswith(b"HTTP/1.1 " + parts[0][:3].encode())
        found = [
            event
            for event in events + server.events
            if isinstance(event, telemetry.ConnectionEvent) and event.kind == "request_refused"
        ]
        assert len(found) == 1
        assert found[0].client.startswith("127.0.0.1:")
        for part in parts:
            assert part in found[0].detail


def unsigned(**claims: Any) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "RS256"}, claims))
    return ".".join([*(urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "c2ln"])


@pytest.mark.parametrize(
    ("auth", "headers", "parts"),
    [
        (
            StaticTokens({"a" * 32: "ada"}),
            ["Authorization: Bearer wrong"],
            ["401", "not valid", "--token-file or StaticTokens"],
        ),
        (StaticTokens({"a" * 32: "ada"}), ["Authorization: Bearer x", "Authorization: Bearer y"], ["400", "twice"]),
        (
            BearerAuth(resource="https://example.org/mcp", issuers="https://issuer.example.org"),
            [f"Authorization: Bearer {unsigned(iss='https://other.example.org')}"],
            ["401", "https://other.example.org", "BearerAuth.issuers"],
        ),
    ],
    ids=["unknown", "twice", "another issuer"],
)
async def test_a_refused_token_is_one_line_of_the_log_also_after_a_request_without_one(
    auth: Auth, headers: list[str], parts: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mcptrio")
    authorizer = Authorizer(auth)
    events: list[Any] = []
    async with serving_endpoint(HttpConfig(), authenticator=authorizer) as (server, endpoint):
        endpoint.runtime.hub.add(events.append)
        await server.ask(request_bytes("DELETE", "/mcp", "Mcp-Session-Id: x"))
        response = await server.ask(request_bytes("DELETE", "/mcp", "Mcp-Session-Id: x", *headers))
        events += server.events
        await authorizer.close()
    log = LogListener()
    for event in events:
        log(event)
    assert response.startswith(b"HTTP/1.1 " + parts[0].encode())
    first, second = [record.getMessage() for record in caplog.records if "DELETE" in record.getMessage()]
    assert "a token is needed" in first
    for part in parts:
        assert part in second
    assert not any(part.encode() in response for part in parts if "Auth" in part or "Static" in part)


def test_reasons_that_clients_choose_are_counted_together_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    listener = LogListener(clock=lambda: 0.0)
    for number in range(1000):
        detail = f"401 POST /mcp: unknown user {number}"
        listener(telemetry.ConnectionEvent(kind="request_refused", client="10.0.0.1:5", detail=detail))
    assert len(caplog.records) <= 101


def test_a_flood_of_one_refusal_is_one_line_and_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = 0.0
    listener = LogListener(clock=lambda: now)
    unauthorized = telemetry.ConnectionEvent(
        kind="request_refused", client="10.0.0.1:5", detail="401 POST /mcp: no token"
    )
    for _ in range(100):
        listener(unauthorized)
    listener(telemetry.ConnectionEvent(kind="request_refused", client="10.0.0.2:5", detail="421 GET /mcp: Host"))
    now = 11.0
    listener(unauthorized)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert "421" in lines[1]
    assert "left_out=99" in lines[2]
    assert "client=10.0.0.1:5" in lines[2]
