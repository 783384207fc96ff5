"""Sessions whose client never comes back after `initialize` do not stay for half an hour."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from mcptrio.auth.server import Principal
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Stream

from .app_for_tests import (
    app_of,
    exchange,
    head,
    initialize,
    notification,
    open_endpoint,
    plain,
    request,
)


async def open_session(endpoint: Endpoint) -> str:
    reply = await exchange(endpoint, head(), initialize())
    return dict(reply.headers)[b"mcp-session-id"].decode()


async def test_a_client_that_never_comes_back_loses_its_session_after_a_minute(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        sessions = [await open_session(endpoint) for _ in range(5)]
        await trio.sleep(59)
        assert len(endpoint.runtime.supervisor.sessions) == 5
        await trio.sleep(3)
        assert not endpoint.runtime.supervisor.sessions
        assert app_of(endpoint).counted("confirm_timeout") == 5
        reply = await plain(endpoint, head(mcp_session_id=sessions[0]), request(2, "ping"))
        assert reply.status == 404


@pytest.mark.parametrize("way", ["initialized", "request", "other notification", "listen", "wrong"])
async def test_a_session_that_is_used_once_is_kept(way: str, autojump_clock: MockClock) -> None:
    """Clients may ask before they confirm, and some never confirm."""
    async with open_endpoint() as endpoint:
        session = await open_session(endpoint)
        await trio.sleep(50)
        if way == "listen":
            reply = await exchange(endpoint, head("GET", mcp_session_id=session))
            assert isinstance(reply, Stream)
            await reply.events.next()
            reply.events.detach("gone")
        else:
            body = {
                "initialized": notification("notifications/initialized"),
                "request": request(2, "ping"),
                "other notification": notification("notifications/roots/list_changed"),
                "wrong": request(2, "no/such/method"),
            }[way]
            await exchange(endpoint, head(mcp_session_id=session), body)
        await trio.sleep(1700)
        assert session in endpoint.runtime.supervisor.sessions
        await trio.sleep(200)
        assert session not in endpoint.runtime.supervisor.sessions
        assert app_of(endpoint).counted("confirm_timeout") == 0


async def test_another_principal_cannot_confirm_a_session(autojump_clock: MockClock) -> None:
    async def who(request_head: HttpRequest) -> Principal:
        return Principal(subject=request_head.text(b"authorization"))

    async with open_endpoint(authenticator=who) as endpoint:
        reply = await exchange(endpoint, head(authorization="ann"), initialize())
        session = dict(reply.headers)[b"mcp-session-id"].decode()
        theirs = await plain(endpoint, head(mcp_session_id=session, authorization="bob"), request(2, "ping"))
        assert theirs.status == 404
        await trio.sleep(62)
        assert session not in endpoint.runtime.supervisor.sessions
