"""Peers for single steps, links that are only names, and helpers to inspect the effects."""

from __future__ import annotations

from typing import Any

import msgspec
from attrs import frozen

from mcptrio._eras.choose import Served
from mcptrio._peer.effects import Effect, Send, Settle, Start, Stop
from mcptrio._peer.era import Role
from mcptrio._peer.machine import Peer
from mcptrio._peer.messages import Answered, Asked, Finished, Received
from mcptrio._wire.jsonrpc import Notification, Request

ROUTES = frozenset({"initialize", "ping", "tools/call", "tools/list", "sampling/createMessage", "own/method"})


@frozen(eq=False)
class NamedLink:
    name: str = "pipe"
    per_request: bool = False


PIPE = NamedLink()


def new_server(**options: Any) -> Peer:
    return Peer(role=Role.SERVER, eras=Served(), routes=ROUTES, **options)


def received(frame: Any, link: Any = PIPE) -> Received:
    return Received(frame, link, None)


def initialize(date: str = "2025-11-25", **capabilities: Any) -> Request:
    return Request("init", "initialize", {"protocolVersion": date, "capabilities": capabilities})


def raw(value: Any) -> Answered:
    return Answered(msgspec.Raw(msgspec.json.encode(value)))


def ready_server(date: str = "2025-11-25", *, offers: dict[str, Any] | None = None, **options: Any) -> Peer:
    """A server after the handshake, for a client that can do everything."""
    peer = new_server(**options)
    (start,) = peer.step(received(initialize(date, sampling={}, roots={}, elicitation={})))
    assert isinstance(start, Start)
    peer.step(Finished(start.call, raw({})))
    peer.offers = offers
    peer.step(received(Notification("notifications/initialized")))
    return peer


def call(peer: Peer, request_id: int | str, method: str = "tools/call", link: Any = PIPE) -> Start:
    """Send a request whose handler begins at once."""
    (start,) = peer.step(received(Request(request_id, method), link))
    assert isinstance(start, Start)
    return start


def asked(start: Start | None, reply: Any, method: str = "sampling/createMessage", **params: Any) -> Asked:
    return Asked(start.call if start is not None else None, method, params, reply)


def frames(effects: list[Effect]) -> list[Any]:
    return [e.frame for e in effects if isinstance(e, Send)]


def started(effects: list[Effect]) -> list[str]:
    return [e.method for e in effects if isinstance(e, Start)]


def stopped(effects: list[Effect]) -> list[int]:
    return [e.call for e in effects if isinstance(e, Stop)]


def settled(effects: list[Effect]) -> list[tuple[Any, Any, Any]]:
    return [(e.reply, e.result, e.error) for e in effects if isinstance(e, Settle)]
