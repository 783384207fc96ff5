"""What the accept loop tells, as telemetry and as lines of a log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from mcptrio import telemetry

from .guarded import (
    AcceptFailed,
    AppFailed,
    ConnectionEnded,
    ConnectionOpened,
    ConnectionRefused,
    GuardCaught,
    HandshakeFailed,
    ListenerEvent,
    MessageTooLarge,
    RequestRefused,
    WriteTimedOut,
)

_logger = logging.getLogger("mcptrio.http")


def report_to(hub: telemetry.Hub) -> Callable[[ListenerEvent], None]:
    """The `on_event` of a listener whose events go to `hub`."""

    def report(event: ListenerEvent) -> None:
        if hub:
            hub.emit(as_telemetry(event))
            if (name := limit_of(event)) is not None:
                hub.emit(telemetry.LimitHit(name=name))

    return report


def limit_of(event: ListenerEvent) -> str | None:
    """The bound of the listener that an event tells of."""
    match event:
        case RequestRefused(status=status):
            return _BY_STATUS.get(status)
        case WriteTimedOut():
            return "write_timeout"
        case ConnectionRefused():
            return "connections"
        case MessageTooLarge():
            return "websocket_message"
    return None


_BY_STATUS: Final = {408: "header_timeout", 413: "max_body", 414: "headers", 431: "headers"}


def as_telemetry(event: ListenerEvent) -> telemetry.Event:
    match event:
        case GuardCaught(error=error) | AppFailed(error=error):
            return telemetry.GuardCaught(layer="connection", error=error)
        case ConnectionOpened(client=client):
            return telemetry.ConnectionEvent(kind="opened", detail=client)
        case ConnectionEnded(client=client):
            return telemetry.ConnectionEvent(kind="ended", detail=client)
        case ConnectionRefused(client=client):
            return telemetry.ConnectionEvent(kind="refused", detail=client)
        case RequestRefused(client=client, status=status, reason=reason):
            return telemetry.ConnectionEvent(kind="request_refused", detail=f"{client} {status} {reason}")
        case HandshakeFailed(client=client):
            return telemetry.ConnectionEvent(kind="handshake_failed", detail=client)
        case WriteTimedOut(client=client):
            return telemetry.ConnectionEvent(kind="write_timeout", detail=client)
        case MessageTooLarge(client=client):
            return telemetry.ConnectionEvent(kind="message_too_large", detail=client)
        case AcceptFailed(error=error):
            return telemetry.ConnectionEvent(kind="accept_failed", detail=str(error))


def log_event(event: ListenerEvent) -> None:
    """One log line for what a listener tells: a warning for what is our fault, debug for what is the peer's."""
    match event:
        case GuardCaught(client=client, error=error):
            _logger.error("connection %s ended by %r", client, error, exc_info=error)
        case AppFailed(client=client, error=error):
            _logger.error("the app failed on connection %s", client, exc_info=error)
        case _:
            _logger.debug("%s", event)
