"""Fixtures of the tests with several workers: the store that they share, and deadlines for a busy machine."""

from __future__ import annotations

import pytest

from mcptrio.cluster import link_client, link_server, pages
from tests.redis_server import RedisServer, lengthen_deadlines


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.fixture(autouse=True)
def deadlines_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test about a deadline sets its own."""
    lengthen_deadlines(monkeypatch)
    monkeypatch.setattr(link_client, "DIAL_WITHIN", 10.0)
    monkeypatch.setattr(link_server, "GREET_WITHIN", 10.0)
    monkeypatch.setattr(link_server, "LEAVE_WITHIN", 30.0)
    monkeypatch.setattr(pages, "METRICS_WITHIN", 10.0)
