"""Requests of the endpoint as frames, and the responses for requests that no worker could answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from mcptrio._wire.jsonrpc import Batch, Error, Frame, Request, encode
from mcptrio.auth.server.principal import Principal
from mcptrio.cluster.frames import Caller, Forward
from mcptrio.errors import INTERNAL_ERROR, Overloaded
from mcptrio.transports.http_server.endpoint.message import JSON, SECRET_HEADERS, HttpRequest, Plain, overloaded

MAY_HAVE_RUN: Final = "the worker that ran this call died; it may have been done"


def make_forward(head: HttpRequest, body: bytes, session: str, *, may_claim: bool) -> Forward:
    """Build the frame of a request.

    Raises:
        Overloaded: the claims of its caller have no JSON form, so that another worker cannot know the caller.
    """
    return Forward(
        id=0,
        session=session,
        method=head.method,
        path=head.path,
        query=head.query,
        headers=[(name, value) for name, value in head.headers if name not in SECRET_HEADERS],
        body=body,
        scheme=head.scheme,
        client=head.client,
        caller=None if head.principal is None else _caller(head.principal),
        scopes=None if head.scopes is None else sorted(head.scopes),
        may_claim=may_claim,
    )


def forwarded_head(request: Forward) -> HttpRequest:
    """Build the head of a request that another worker has checked."""
    head = HttpRequest(
        method=request.method,
        path=request.path,
        headers=[(bytes(name), bytes(value)) for name, value in request.headers],
        query=request.query,
        scheme=request.scheme,
        client=request.client,
    )
    if request.caller is not None:
        head.set_principal(_principal(request.caller))
    head.scopes = None if request.scopes is None else frozenset(request.scopes)
    return head


def _caller(principal: Principal) -> Caller:
    try:
        claims = msgspec.json.encode(principal.claims)
    except TypeError as error:
        raise Overloaded(f"the claims of the principal have no JSON form: {error}", retry_after=1) from None
    return Caller(
        principal.subject,
        principal.client_id,
        principal.issuer,
        sorted(principal.scopes),
        claims,
        principal.expires,
    )


def _principal(caller: Caller) -> Principal:
    return Principal(
        subject=caller.subject,
        client_id=caller.client_id,
        issuer=caller.issuer,
        scopes=caller.scopes,
        claims=msgspec.json.decode(caller.claims),
        expires=caller.expires,
    )


def _ids(frame: Frame | Batch | None) -> Iterable[int | str]:
    members = frame if isinstance(frame, tuple) else (frame,)
    return [member.id for member in members if isinstance(member, Request)]


def error_may_have_run(id: int | str) -> bytes:
    return encode(Error(id, INTERNAL_ERROR, MAY_HAVE_RUN, {"mayHaveRun": True}))


def may_have_run(frame: Frame | Batch | None) -> Plain:
    """Build the response to a request whose worker died: it is not run again, because it may have been done."""
    if frame is None:
        return unavailable(frame)
    errors = [error_may_have_run(id) for id in _ids(frame)]
    if not errors:
        return Plain(202)  # as for a call that no longer exists
    return Plain(200, JSON, b"[" + b",".join(errors) + b"]" if isinstance(frame, tuple) else errors[0])


def unavailable(frame: Frame | Batch | None) -> Plain:
    """Build the response to a request whose worker cannot be reached."""
    id = frame.id if isinstance(frame, Request) else None
    return overloaded("the worker of this session cannot be reached", 1, request_id=id, limit="forward")
