"""Errors that a session receives in place of messages for which there is no room."""

from __future__ import annotations

from mcptrio._peer.machine import may_start_call
from mcptrio._wire.jsonrpc import AnyFrame, Error, Malformed, Notification, Request, Response
from mcptrio._wire.sized import memory_for
from mcptrio.errors import INTERNAL_ERROR, RemoteProtocolError


def refuse(frame: AnyFrame, why: str, retry_after: int, limit: str | None = None) -> AnyFrame:
    """Return the error to deliver in place of a message, or of each one of a batch.

    The sender of a request or a notification gets the error. A large answer is not refused to its sender, which does
    not expect that: the handler that asked gets the error.
    """
    text, data = f"overloaded: {why}", {"retryAfter": retry_after} | ({} if limit is None else {"limit": limit})
    match frame:
        case tuple():
            return tuple(refuse(member, why, retry_after, limit) for member in frame)  # type: ignore[misc]  # no batches
        case Request(request_id):
            return Malformed(RemoteProtocolError(text, code=INTERNAL_ERROR, request_id=request_id, data=data))
        case Notification() if may_start_call(frame):
            return Malformed(RemoteProtocolError(text, code=INTERNAL_ERROR, data=data))
        case Response(request_id) if memory_for(frame):
            return Error(request_id, INTERNAL_ERROR, text, data)
    return frame
