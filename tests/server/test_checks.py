"""Settings that contradict each other do not make a server; the text says how to fix it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from mcptrio import Server
from mcptrio._actors.limits import Limits
from mcptrio.auth.server import BearerAuth
from mcptrio.errors import DeclarationError
from mcptrio.stores import MemoryStore, StoreLimits
from mcptrio.stores.sqlite import SqliteStore
from mcptrio.transports.http_server.config import HttpConfig
from tests.auth.server import kit


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"call_timeout": 1000}, "raise call_timeout_hard too"),
        ({"call_timeout_hard": 30}, "raise call_timeout_hard too"),
        ({"running": 0}, "running must be positive"),
        ({"inbox": 0}, "inbox must be positive"),
        ({"waiting": -1}, "waiting must be positive"),
        ({"zombies": 0}, "zombies must be positive"),
        ({"call_timeout": 0}, "call_timeout must be positive"),
        ({"max_sessions": 0}, "max_sessions must be positive"),
        ({"idle_timeout": 0}, "idle_timeout must be positive"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(settings: dict[str, Any], hint: str) -> None:
    with pytest.raises(DeclarationError, match=hint):
        Limits(**settings)


HTTP: list[tuple[dict[str, Any], str]] = [
    ({"store": MemoryStore(StoreLimits(stream_events=255))}, r"StoreLimits\(stream_events=256\)"),
    ({"store": MemoryStore(StoreLimits(stream_bytes=1000))}, r"lower outbox_bytes"),
    ({"outbox_events": 1001}, r"store=MemoryStore\(StoreLimits\(stream_events=1001\)\)"),
    ({"config": HttpConfig(outbox_events=1001)}, "lower outbox_events"),
    ({"rate": 5, "rate_burst": 0.5}, "must be 1 or more"),
    ({"unix_mode": 660}, "must be between 0 and 0o777, got 660; write 0o660, or 432 in a variable"),
    ({"auth": kit.settings(max_token=16 * 1024)}, "raise max_header_bytes"),
    ({"auth": kit.settings(), "max_header_bytes": 8192}, "lower max_token"),
]


@pytest.mark.parametrize(("settings", "hint"), HTTP)
async def test_http_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], hint: str) -> None:
    server = Server("s")
    with pytest.raises(DeclarationError, match=hint):
        server.asgi(**settings)
    with pytest.raises(DeclarationError, match=hint):
        await server.serve_http(port=0, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"store": MemoryStore(StoreLimits(stream_events=256))},
        {"store": MemoryStore(StoreLimits(stream_events=255)), "outbox_events": 255},
        {"rate": 5, "rate_burst": 1},
        {"rate_burst": 0.5},
        {"auth": kit.settings(max_token=16 * 1024), "max_header_bytes": 32 * 1024},
    ],
)
def test_settings_that_agree_are_taken(settings: dict[str, Any]) -> None:
    assert callable(Server("s", limits=Limits(call_timeout=900)).asgi(**settings))


def test_a_durable_store_has_room_for_every_session(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store", limits=StoreLimits(sessions=9_999))
    with pytest.raises(DeclarationError, match=r"StoreLimits\.sessions"):
        Server("s").asgi(store=store)
    assert callable(Server("s", limits=Limits(max_sessions=9_999)).asgi(store=store))


def test_keys_are_not_fresh_for_longer_than_they_are_used() -> None:
    with pytest.raises(DeclarationError, match="raise keys_max_age too"):
        BearerAuth(resource=kit.RESOURCE, issuers=[kit.ISSUER], keys_ttl=7200)


async def test_a_store_is_given_as_an_object_or_as_its_url(tmp_path: Path, nursery: trio.Nursery) -> None:
    file = tmp_path / "sessions.db"
    server = Server("s")
    await nursery.start(partial(server.serve_http, port=0, store=f"sqlite:///{file}"))
    assert file.exists()


@pytest.mark.parametrize("serve", ["serve_stdio", "serve", "serve_http", "asgi", "run"])
async def test_a_text_that_names_no_store_is_refused_with_the_forms_that_do(serve: str) -> None:
    server, links = Server("s"), (None,) if serve == "serve" else ()
    with pytest.raises(DeclarationError, match=r"is not a store: write memory, sqlite:///relative\.db"):
        if serve == "asgi":
            server.asgi(store="sqlite")
        elif serve == "run":
            await trio.to_thread.run_sync(partial(server.run, "http", store="sqlite"))
        else:
            await getattr(server, serve)(*links, store="sqlite")
