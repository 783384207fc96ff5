"""One server per kind of settings and per worker, started when it is first needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from . import tokens
from .pipes import PipedServers
from .process import Servers

SETTINGS: dict[str, Any] = {
    "usual": {"heartbeat": 60},
    "named": {"heartbeat": 60, "named": True},
    "bearer": tokens.settings,
    "express": {"heartbeat": 60, "lane": "express"},
    "hasty": {"header_timeout": 0.4, "body_timeout": 0.6, "write_timeout": 0.6, "heartbeat": 60},
}


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    started = Servers(SETTINGS)
    yield started
    started.close()


@pytest.fixture(scope="session")
def piped_servers() -> Iterator[PipedServers]:
    started = PipedServers()
    yield started
    started.close()
