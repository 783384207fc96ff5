"""Telemetry of calls and questions that few listeners want: their start, and that a call was parked or continues.

These functions are entered only if a listener takes the event.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

from mcptrio import telemetry
from mcptrio.errors import MCPError, RemoteProtocolError

if TYPE_CHECKING:
    from mcptrio._actors.call import Call
    from mcptrio._actors.service import Actor

LONGEST_NAME: Final = 80
"""Characters of a name or URI of a peer in telemetry and in the names of tasks."""
_serial: Final = count(1)


def call_started(session: Actor, call: Call) -> None:
    """Emit that a handler starts."""
    start, hub = call.start, session.service.telemetry
    name, entries = _name(session, start.method, start.params), session.service.router.routes[start.method].entries
    hub.emit(
        telemetry.CallStarted(
            session=session.id,
            call=call.serial,
            request_id=start.request_id,
            method=start.method,
            name=name,
            entry=name if entries is not None and name in entries else None,
            protocol=start.era.date,
            transport=session.transport,
            meta=_meta(start.params),
            principal=session.principal.key if hub.principals and session.principal is not None else None,
        )
    )


def call_parked(session: Actor, call: Call) -> None:
    """Emit that a call waits for its request to be repeated."""
    start = call.start
    session.service.telemetry.emit(
        telemetry.CallParked(
            session=session.id,
            call=call.serial,
            request_id=start.request_id,
            method=start.method,
            name=_name(session, start.method, start.params),
        )
    )


def call_resumed(session: Actor, call: Call) -> None:
    """Emit that a parked call serves another request."""
    start = call.start
    session.service.telemetry.emit(
        telemetry.CallResumed(
            session=session.id,
            call=call.serial,
            request_id=start.request_id,
            method=start.method,
            name=_name(session, start.method, start.params),
            meta=_meta(start.params),
        )
    )


def ask_sent(session: Actor, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], telemetry.AskSent]:
    """Emit that a request is sent to the peer; return its parameters with what listeners have added to `_meta`."""
    era = session.peer.era
    event = telemetry.AskSent(
        session=session.id,
        method=method,
        ask=next(_serial),
        name=_asked_name(params),
        protocol=None if era is None else era.date,
        transport=session.transport,
    )
    session.service.telemetry.emit(event)
    if event.meta:
        params = {**params, "_meta": {**_meta(params), **event.meta}}
    return params, event


def ask_ended(
    hub: telemetry.Hub, sent: telemetry.AskSent, outcome: str, seconds: float, error: Exception | None = None
) -> None:
    """Emit the end of a request to the peer; `error` is the exception that ended it, if there was one."""
    sent_by_peer = error if isinstance(error, MCPError | RemoteProtocolError) else None
    hub.emit(
        telemetry.AskEnded(
            session=sent.session,
            method=sent.method,
            outcome=outcome,
            seconds=seconds,
            ask=sent.ask,
            name=sent.name,
            code=None if sent_by_peer is None else sent_by_peer.code,
            message=None if sent_by_peer is None else sent_by_peer.message,
        )
    )


def _name(session: Actor, method: str, params: dict[str, Any]) -> str | None:
    named_by = session.service.router.routes[method].named_by
    name = None if named_by is None else params.get(named_by)
    return name[:LONGEST_NAME] if type(name) is str else None


def _asked_name(params: dict[str, Any]) -> str | None:
    """Return the tool, prompt or resource that a request of a client names."""
    name = params.get("name", params.get("uri"))
    return name[:LONGEST_NAME] if type(name) is str else None


def _meta(params: dict[str, Any]) -> dict[str, Any]:
    meta = params.get("_meta")
    return meta if type(meta) is dict else {}
