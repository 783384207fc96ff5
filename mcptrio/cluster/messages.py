"""Requests of the endpoint as frames, and the responses for requests that no worker could answer."""

from __future__ import annotations

import logging

import msgspec

from mcptrio._wire.jsonrpc import Batch, Frame
from mcptrio.auth.server.principal import Principal, PrincipalRecord
from mcptrio.cluster.frames import Forward
from mcptrio.errors import MCPTrioError, Overloaded
from mcptrio.transports.http_server.endpoint.calls import may_have_run
from mcptrio.transports.http_server.endpoint.message import (
    SECRET_HEADERS,
    HttpRequest,
    Plain,
    id_of,
    overloaded,
    refuse,
    refuse_overloaded,
)

logger = logging.getLogger("mcptrio.cluster")


class CallerNotPortable(MCPTrioError):
    """The claims of a caller have no JSON form, so that another worker cannot know the caller."""


def make_forward(head: HttpRequest, body: bytes, session: str, *, may_claim: bool) -> Forward:
    """Build the frame of a request.

    Raises:
        CallerNotPortable: the claims of its caller have no JSON form.
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
        head.set_principal(msgspec.json.decode(request.caller, type=PrincipalRecord).principal)
    head.scopes = None if request.scopes is None else frozenset(request.scopes)
    return head


def _caller(principal: Principal) -> bytes:
    try:
        return msgspec.json.encode(PrincipalRecord.of(principal))
    except TypeError as error:
        text = f"a request cannot be forwarded: the claims of its principal have no JSON form: {error}"
        raise CallerNotPortable(text) from None


def not_forwarded(error: Overloaded | CallerNotPortable, frame: Frame | Batch | None) -> Plain:
    """Build the response to a request that could not be sent to another worker."""
    if isinstance(error, Overloaded):
        return refuse_overloaded(error, id_of(frame))
    logger.error("%s", error)  # not for the client: it names a class of this program
    return refuse(401, "the credentials cannot be used here", request_id=id_of(frame))


def unanswered(frame: Frame | Batch | None) -> Plain:
    """Build the response to a request whose worker died after it was sent: it is never sent again (R5)."""
    return unavailable(frame) if frame is None else may_have_run(frame)


def unavailable(frame: Frame | Batch | None) -> Plain:
    """Build the response to a request whose worker cannot be reached."""
    return overloaded("the worker of this session cannot be reached", 1, request_id=id_of(frame), limit="forward")
