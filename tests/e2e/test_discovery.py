"""The server card and the AI catalog: what they say, who may read them, and that they are off by default."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import httpx2
import pytest
import trio

from mcptrio import Server
from mcptrio.auth.server import Principal, StaticTokens
from mcptrio.errors import DeclarationError
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.discovery import discovery_documents, server_card
from mcptrio.types import Icon, Implementation

URL = "https://mcp.example.org/mcp"
DATES = ("2025-11-25", "2026-07-28")


def test_a_card_says_who_the_server_is_and_where() -> None:
    info = Implementation(
        name="weather", version="1.2", title="Weather", description="Forecasts.", icons=(Icon(src="https://x/i.png"),)
    )
    assert server_card(URL, info, DATES) == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json",
        "name": "org.example.mcp/weather",
        "version": "1.2",
        "title": "Weather",
        "description": "Forecasts.",
        "icons": [{"src": "https://x/i.png"}],
        "remotes": [{"type": "streamable-http", "url": URL, "supportedProtocolVersions": [*DATES]}],
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("com.example/weather", "com.example/weather"),
        ("Weather & Co.", "org.example.mcp/Weather-Co."),
        ("天気", "org.example.mcp/server"),
        ("a/b/c", "org.example.mcp/a-b-c"),
    ],
)
def test_the_name_of_a_card_has_a_namespace(name: str, expected: str) -> None:
    card = server_card(URL, Implementation(name=name, version="1"), DATES)
    assert card["name"] == expected
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", card["name"])
    assert 1 <= len(card["description"]) <= 100


def test_long_descriptions_are_cut() -> None:
    info = Implementation(name="a", version="1", description="many words\n" * 30)
    assert len(server_card(URL, info, DATES)["description"]) == 100


def test_the_catalog_leads_to_the_card() -> None:
    documents = discovery_documents(URL, "/mcp", Implementation(name="weather", version="1"), DATES)
    assert set(documents) == {"/mcp/server-card", "/.well-known/ai-catalog.json"}
    assert json.loads(documents["/.well-known/ai-catalog.json"].body) == {
        "specVersion": "1.0",
        "entries": [
            {
                "identifier": "urn:air:mcp.example.org:mcp:weather",
                "type": "application/mcp-server-card+json",
                "url": f"{URL}/server-card",
            }
        ],
    }


@pytest.mark.parametrize("value", ["mcp.example.org", "http://mcp.example.org/mcp", "ftp://x/mcp", "", "https:///mcp"])
def test_the_url_is_checked(value: str) -> None:
    with pytest.raises(DeclarationError, match="server_card"):
        HttpConfig(server_card=value)
    assert HttpConfig(server_card="http://localhost:8000/mcp").server_card


async def get(server: Server, path: str, method: str = "GET", *, headers: Any = None, **settings: Any) -> Any:
    async with trio.open_nursery() as nursery:
        (bound,) = await nursery.start(partial(server.serve_http, port=0, **settings))
        async with httpx2.AsyncClient() as http:
            reply = await http.request(method, f"http://127.0.0.1:{bound.port}{path}", headers=headers or {})
        nursery.cancel_scope.cancel()
    return reply


async def test_everyone_may_read_it_with_any_origin_and_without_a_token(engine: str) -> None:
    server = Server("weather", version="1")
    tokens = StaticTokens({"a-token-of-sixteen": Principal(subject="ada")})
    settings: dict[str, Any] = {"server_card": URL, "auth": tokens, "engine": engine}
    card = await get(server, "/mcp/server-card", headers={"Origin": "https://anywhere.example"}, **settings)
    assert card.status_code == 200
    assert card.headers["content-type"] == "application/mcp-server-card+json"
    assert card.headers["access-control-allow-origin"] == "*"
    assert card.headers["cache-control"] == "public, max-age=3600"
    assert card.json()["name"] == "org.example.mcp/weather"
    again = await get(server, "/mcp/server-card", headers={"If-None-Match": card.headers["etag"]}, **settings)
    assert (again.status_code, again.content) == (304, b"")
    assert "content-length" not in again.headers
    asked = {"Origin": "https://anywhere.example", "Access-Control-Request-Method": "GET"}
    assert (await get(server, "/mcp/server-card", "OPTIONS", headers=asked, **settings)).status_code == 200
    assert (await get(server, "/mcp/server-card", "POST", **settings)).status_code == 405
    assert (await get(server, "/.well-known/ai-catalog.json", **settings)).json()["specVersion"] == "1.0"
    wrong = await get(server, "/mcp/server-card", headers={"Host": "evil.example"}, **settings)
    assert wrong.status_code == 421


async def test_the_server_card_is_off_by_default(engine: str) -> None:
    server = Server("weather", version="1")
    for path in ("/mcp/server-card", "/.well-known/ai-catalog.json"):
        assert (await get(server, path, engine=engine)).status_code == 404
