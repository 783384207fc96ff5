"""One server per kind of settings, engine and worker, started when it is first needed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.engines import ENGINES

from . import issuers, tokens
from .pipes import PipedServers
from .process import Servers

SETTINGS: dict[str, Any] = {
    "usual": {"heartbeat": 60},
    "named": {"heartbeat": 60, "named": True},
    "pages": {"heartbeat": 60, "allowed_origins": ["https://app.example.org"]},
    "bearer": tokens.settings,
    "forgetful": {"heartbeat": 60, "store": {"stream_age": 0.2}},
    "hasty": {"header_timeout": 0.4, "body_timeout": 0.6, "write_timeout": 0.6, "heartbeat": 60},
}


@pytest.fixture(scope="session")
def servers_of_engines() -> Iterator[dict[str, Servers]]:
    with issuers.serving() as port:
        asking = {"published": partial(issuers.published, port), "introspected": partial(issuers.introspected, port)}
        started = {engine: Servers({**SETTINGS, **asking}, engine) for engine in ENGINES}
        yield started
        for each in started.values():
            each.close()


@pytest.fixture
def servers(engine: str, servers_of_engines: dict[str, Servers]) -> Servers:
    """The servers of the engine that is tried."""
    return servers_of_engines[engine]


@pytest.fixture(scope="session")
def piped_servers() -> Iterator[PipedServers]:
    started = PipedServers()
    yield started
    started.close()
