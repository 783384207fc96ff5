"""Requests that a WebSocket carried to this worker, and that another worker has to answer.

A socket stays with its worker, so such a request cannot be routed like those over HTTP. It becomes one: a POST with the
caller of the socket.
"""

from __future__ import annotations

from mcptrio._eras.stateless import NAMED_BY, declared_date
from mcptrio._peer.effects import Start
from mcptrio._wire.jsonrpc import Error, Request, decode, encode
from mcptrio._wire.sse import SseReader
from mcptrio.errors import MCPError, Overloaded

from .message import HttpRequest, Plain, Stream
from .remote import Cluster


async def forward_call(cluster: Cluster, path: str, worker: str, start: Start) -> None:
    """Have another worker answer a stateless request that a handler of this one has got.

    Raises:
        MCPError: the error that it answered with.
        Overloaded: it has left, or the request was forwarded once already (R5).
    """
    came = start.head
    reply = None
    if start.request_id is not None and not (isinstance(came, HttpRequest) and came.remote is not None):
        frame = Request(start.request_id, start.method, start.params)
        head = HttpRequest(
            method="POST", path=path, headers=_headers(frame), client=None if came is None else came.client
        )
        if came is not None:
            if came.principal is not None:
                head.set_principal(came.principal)
            head.scopes = came.scopes
        reply = await cluster.forward_to(worker, head, encode(frame), frame)
    if reply is None:
        raise Overloaded("another worker continues this work; repeat the request", retry_after=1, limit="forward")
    answer = decode(await _last_message(reply))
    if isinstance(answer, Error):
        raise MCPError(answer.code, answer.message, answer.data)


def _headers(frame: Request) -> list[tuple[bytes, bytes]]:
    """Return the headers that repeat the body of a stateless request."""
    named = frame.params.get(NAMED_BY.get(frame.method, ""))
    fields = {
        "mcp-protocol-version": declared_date(frame.params),
        "mcp-method": frame.method,
        "mcp-name": named if isinstance(named, str) else None,
    }
    return [(name.encode(), value.encode()) for name, value in fields.items() if value is not None]


async def _last_message(reply: Plain | Stream) -> bytes:
    """Return the answer to a request; if it took long, it is the last event of a stream."""
    if isinstance(reply, Plain):
        return reply.body
    reader, last = SseReader(), b""
    try:
        while (piece := await reply.events.next()) is not None:
            for event in reader.feed(piece):
                last = event.data or last
    finally:
        reply.events.detach("done")
    return last
