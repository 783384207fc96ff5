"""Every public setting is checked where it is set: a wrong type or number is refused with a text that names it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import trio

from mcptrio import Cache, DeclarationError, HttpConfig, Limits, Reconnect, Server, connect
from mcptrio._wire.jsonrpc import JsonLimits
from mcptrio.auth import ClientCredentials, EnterpriseManaged, OAuth, WorkloadIdentity
from mcptrio.auth.server import BearerAuth, ClientCertificates, Introspection, Principal, StaticTokens
from mcptrio.client import ClientConfig
from mcptrio.client.options import ClientOptions
from mcptrio.cluster.config import ClusterConfig
from mcptrio.extensions.apps import Ui
from mcptrio.extensions.tasks import Tasks
from mcptrio.server.features.tool_declaration import ToolDefaults
from mcptrio.server.options import RunOptions
from mcptrio.stores import MemoryStore, StoreLimits
from mcptrio.stores.redis import RedisStore
from mcptrio.stores.sqlite import SqliteStore
from mcptrio.transports.http_client import HttpClientConfig
from mcptrio.transports.http_server.options import HttpOptions
from mcptrio.types import Implementation
from tests.auth.server import kit

ISSUER = "https://login.example.org"
server = Server("settings")


class Wrong:
    """A value of no setting's type."""


def parameters(fn: Callable[..., Any], *more: type) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = [name for name, each in inspect.signature(fn).parameters.items() if each.kind in kinds]
    return [*named, *(name for each in more for name in each.__annotations__)]


def filled(make: Callable[..., Any], **needed: Any) -> Callable[..., Any]:
    return lambda **given: make(**{**needed, **given})


CLASSES: list[tuple[str, Callable[..., Any], type]] = [
    ("HttpConfig", HttpConfig, HttpConfig),
    ("ClientConfig", filled(ClientConfig, info=Implementation(name="host", version="1")), ClientConfig),
    ("HttpClientConfig", HttpClientConfig, HttpClientConfig),
    ("Reconnect", Reconnect, Reconnect),
    ("Limits", Limits, Limits),
    ("JsonLimits", JsonLimits, JsonLimits),
    ("StoreLimits", StoreLimits, StoreLimits),
    ("ClusterConfig", ClusterConfig, ClusterConfig),
    ("BearerAuth", kit.settings, BearerAuth),
    (
        "Introspection",
        filled(Introspection, url=f"{ISSUER}/i", client_id="api", client_secret="secret"),
        Introspection,
    ),
    ("Tasks", Tasks, Tasks),
    ("Cache", Cache, Cache),
]
OTHERS: list[tuple[str, Callable[..., Any], Iterable[str]]] = [
    ("Server", filled(Server, name="x"), parameters(Server, ToolDefaults)),
    ("asgi", server.asgi, parameters(server.asgi, HttpOptions)),
    ("connect", lambda **given: connect("http://127.0.0.1:1/mcp", **given), get_type_hints(ClientOptions)),
    ("MemoryStore", MemoryStore, ["limits"]),
    ("SqliteStore", filled(SqliteStore, path="unused.db"), parameters(SqliteStore)),
    ("RedisStore", filled(RedisStore.from_url, url="redis://127.0.0.1"), parameters(RedisStore.from_url)),
    ("StaticTokens", filled(StaticTokens, tokens={"a" * 32: "ada"}), ["tokens", "required_scopes"]),
    ("ClientCertificates", filled(ClientCertificates, principals={}), ["principals", "required_scopes"]),
    ("Principal", filled(Principal, subject="ada"), ["subject", "client_id", "issuer", "scopes"]),
    ("Ui", filled(Ui, uri="ui://page"), parameters(Ui)),
    ("OAuth", OAuth, {*parameters(OAuth)} - {"private_key", "client_secret"} | {"dpop", "verify", "trusted_hosts"}),
    (
        "ClientCredentials",
        filled(ClientCredentials, client_id="api", client_secret="secret", issuer=ISSUER),
        ["client_id", "client_secret", "private_key", "issuer", "scopes"],
    ),
    (
        "WorkloadIdentity",
        filled(WorkloadIdentity, client_id="api", assertion="jwt"),
        ["client_id", "assertion", "issuer", "scopes"],
    ),
    (
        "EnterpriseManaged",
        filled(EnterpriseManaged, client_id="api", idp_client_id="a", idp_issuer=ISSUER, id_token="jwt"),
        parameters(EnterpriseManaged),
    ),
]


def wrong_types() -> Iterator[Any]:
    for label, make, cls in CLASSES:
        yield from (pytest.param(make, name, id=f"{label}-{name}") for name in parameters(cls))
    for label, make, names in OTHERS:
        yield from (pytest.param(make, name, id=f"{label}-{name}") for name in sorted(names))


def numbers() -> Iterator[Any]:
    for label, make, cls in CLASSES:
        hints = get_type_hints(cls)
        for name in parameters(cls):
            kinds = {hints[name], *get_args(hints[name])}
            if kinds & {int, float}:
                yield pytest.param(make, name, int in kinds, id=f"{label}-{name}")


@pytest.mark.parametrize(("make", "name"), [*wrong_types()])
def test_a_value_of_the_wrong_type_is_refused_by_the_name_of_its_setting(make: Callable[..., Any], name: str) -> None:
    with pytest.raises(DeclarationError, match=name):
        make(**{name: Wrong()})


@pytest.mark.parametrize(("make", "name", "whole"), [*numbers()])
def test_a_number_that_cannot_be_meant_is_refused(make: Callable[..., Any], name: str, whole: bool) -> None:
    for value in ("5", True, math.nan, -1, *((2.5,) if whole else ())):
        with pytest.raises(DeclarationError, match=name):
            make(**{name: value})


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
@pytest.mark.parametrize("name", ["json_limits", "drain_timeout", "store", "protocols", "state_keys"])
def test_run_refuses_a_wrong_setting_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, transport: Any, name: str
) -> None:
    monkeypatch.setattr(trio, "run", lambda *_: pytest.fail("it started"))
    with pytest.raises(DeclarationError, match=name):
        server.run(transport, **{name: 5 if name != "drain_timeout" else "5"})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in RunOptions.__annotations__ if name in HttpOptions.__annotations__])
def test_run_refuses_a_wrong_http_setting_before_it_starts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(trio, "run", lambda *_: pytest.fail("it started"))
    with pytest.raises(DeclarationError, match=name):
        server.run("http", **{name: Wrong()})  # type: ignore[arg-type]


@pytest.mark.parametrize("serve", ["serve_stdio", "serve", "serve_http"])
@pytest.mark.parametrize("name", ["store", "stop", "drain_timeout", "json_limits", "auth", "cluster"])
async def test_serving_refuses_a_wrong_setting(serve: str, name: str) -> None:
    if serve != "serve_http" and name in ("auth", "cluster"):
        pytest.skip("a setting of HTTP only")
    link = (None,) if serve == "serve" else ()
    with trio.fail_after(60), pytest.raises(DeclarationError, match=name):
        await getattr(server, serve)(*link, **{name: Wrong()})


def test_the_text_says_what_is_allowed() -> None:
    with pytest.raises(DeclarationError, match=r"HttpConfig\.json_limits must be a JsonLimits, got 5$"):
        HttpConfig(json_limits=5)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"ClientConfig\.json_limits must be a JsonLimits, got 5$"):
        connect(server, json_limits=5)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"HttpConfig\.rate must be a number or None, got 'x'$"):
        HttpConfig(rate="x")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"HttpConfig\.engine must be 'hypercorn' or 'direct', got 'fast'$"):
        HttpConfig(engine="fast")  # type: ignore[arg-type]
    with pytest.raises(
        DeclarationError, match=r"headers must be a mapping from strings to strings or None, got a dict$"
    ):
        connect("http://127.0.0.1:1/mcp", headers={"X-Count": 5})  # type: ignore[dict-item]
    with pytest.raises(DeclarationError, match=r"write roots=\['/srv'\]"):
        connect(server, roots="/srv")


def test_a_text_that_may_be_a_secret_is_not_repeated() -> None:
    with pytest.raises(DeclarationError, match=r"Introspection\.client_secret must be a string, got a bytes$"):
        Introspection(url=f"{ISSUER}/i", client_id="api", client_secret=b"s3cret")  # type: ignore[arg-type]


def test_a_file_is_named_by_a_string_or_a_path() -> None:
    paths = HttpConfig(certfile=Path("a.pem"), keyfile=Path("b.pem"), client_ca=Path("c.pem"), unix_path=Path("d"))
    assert (paths.certfile, paths.keyfile, paths.client_ca, paths.unix_path) == ("a.pem", "b.pem", "c.pem", "d")
