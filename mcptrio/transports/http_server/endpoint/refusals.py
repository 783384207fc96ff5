"""Reports of HTTP requests: why one was refused and which setting decides it, and the lines of an access log."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from mcptrio import telemetry

from .message import HttpRequest, Plain

_REPORTED: Final = frozenset({401, 403, 404, 405, 421})


def report_refusal(hub: telemetry.Hub, request: HttpRequest, reply: Plain) -> None:
    """Emit that a request was refused for its credentials, or with a status that a wrong setting often causes."""
    if not hub or not (request.refusal_reason or reply.status in _REPORTED):
        return
    client = "" if request.client is None else f"{request.client[0]}:{request.client[1]}"
    reason = request.refusal_reason or _reason(reply)
    detail = f"{reply.status} {request.method} {request.path[:100]}: {reason}{_setting(request, reply)}"
    hub.emit(telemetry.ConnectionEvent(kind="request_refused", client=client, detail=detail))


def report_served(hub: telemetry.Hub, request: HttpRequest, status: int, seconds: float) -> None:
    """Emit that a response was sent, for the access log."""
    client = "" if request.client is None else f"{request.client[0]}:{request.client[1]}"
    hub.emit(
        telemetry.RequestServed(
            client=client,
            method=request.method,
            path=request.path[:100],
            status=status,
            seconds=seconds,
            principal=request.identity if hub.principals and request.identity else None,
        )
    )


def _reason(reply: Plain) -> str:
    try:
        return str(msgspec.json.decode(reply.body)["error"]["message"])
    except (msgspec.DecodeError, LookupError, TypeError):  # a response that the user's own authenticator has built
        return HTTPStatus(reply.status).phrase


def _setting(request: HttpRequest, reply: Plain) -> str:
    """Return the setting that decides, where the reason does not name it already."""
    if reply.status == 401:
        return " (auth=)"
    if reply.status == 404 and b"mcp-session-id" in request.fields:
        return " (Limits.idle_timeout)"
    return ""
