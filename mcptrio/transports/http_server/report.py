"""What the accept loop tells, as telemetry."""

from __future__ import annotations

from collections.abc import Callable

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
    RequestRefused,
    WriteTimedOut,
)


def report_to(hub: telemetry.Hub) -> Callable[[ListenerEvent], None]:
    """The `on_event` of a listener whose events go to `hub`."""

    def report(event: ListenerEvent) -> None:
        if hub:
            hub.emit(as_telemetry(event))

    return report


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
        case AcceptFailed(error=error):
            return telemetry.ConnectionEvent(kind="accept_failed", detail=str(error))
