"""The input and output of the endpoint: a request, a whole response, a stream of events.

Engines translate between these and their own forms.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import Struct

from mcptrio._actors.shares import owner_of
from mcptrio._peer.era import Era
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Batch, Error, Frame, Request, encode
from mcptrio.errors import INTERNAL_ERROR, INVALID_REQUEST, Overloaded, RemoteProtocolError

if TYPE_CHECKING:
    from mcptrio.auth.server.principal import Principal

    from .links import HttpLink

Headers = tuple[tuple[bytes, bytes], ...]

JSON: Final[Headers] = ((b"content-type", b"application/json"),)
TEXT: Final[Headers] = ((b"content-type", b"text/plain; charset=utf-8"),)
CLOSE: Final = (b"connection", b"close")
SECRET_HEADERS: Final = frozenset({b"authorization", b"proxy-authorization", b"dpop", b"cookie"})
WHOLE_EVENTS: Final[Headers] = ((b"content-type", b"text/event-stream"),)
"""For a stream that is sent with its length, so that nothing can hold events back."""
EVENTS: Final[Headers] = (
    *WHOLE_EVENTS,
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # a proxy that buffers would hold events back
)


class HttpRequest(Entity, kw_only=True):
    """One HTTP request, from its arrival to its response; header names are lower-case bytes.

    It is dropped when it is answered or refused. Nothing that was computed for it is used for another request.
    """

    method: str
    path: str
    """Decoded, without the path that the application is mounted under."""
    headers: Sequence[tuple[bytes, bytes]]
    query: bytes = b""
    target: bytes | None = None
    """As it was sent, where the engine knows it: `path?query`, or a whole URL."""
    scheme: str = "http"
    http_version: str = "1.1"
    client: tuple[str, int] | None = None
    """The address of the peer."""
    root: str = ""
    """The path that the application is mounted under."""
    certificate: bytes | None = None
    """The client's TLS certificate (DER), if the listener requested and verified one."""
    context: Context | None = None
    """The context variables for its handler, if they are not those of the task that serves it."""
    principal: Principal | None = None
    """The authenticated caller; None if callers are not authenticated."""
    identity: str = ""
    """The key of the principal; empty for an anonymous caller."""
    owner: str = ""
    """The owner of what it uses: the key of the principal, else the address of the client."""
    refusal_reason: str = ""
    """Why its credentials were refused, for the log only."""
    scopes: frozenset[str] | None = None
    """The scopes of the sender; None where scopes are not checked."""
    date: str | None = None
    """The protocol version that its header names, as `Endpoint.refuse_early` read it."""
    era: Era | None = None
    """The revision of that date, if it is served."""
    link: HttpLink | None = None
    """The link of the session that it names, as `Endpoint.refuse_early` found it."""
    queued: float = 0.0
    """Seconds for which it waited for its places."""
    remote: Callable[[bool], None] | None = None
    """Set if another worker has forwarded it: has that worker close the stream that answers it, see `remote`."""
    at_home: bool = False
    """Whether its session was at home in this worker when it was routed. If it has left meanwhile, the request is
    routed again, see `NotHere`."""
    places: int = 0
    """Places of `max_calls` that it holds, see `Admission`."""
    body_memory: int = 0
    """Bytes that are reserved for its body, see `Admission`."""
    message_memory: int = 0
    """Bytes that are reserved for its decoded message, until a call has it."""
    fields: dict[bytes, bytes] = msgspec.field(default_factory=dict)
    """Each header once; several lines of one name are joined with a comma (RFC 9110 section 5.3)."""
    doubled: bool = False
    """Whether some header has several lines."""
    began: float = 0.0
    """When it arrived, if there is an access log."""
    cors: Headers = ()
    """Headers of its response, whatever that is: those for a page of an allowed origin, as `Guard` found it."""

    def __post_init__(self) -> None:
        self.fields = fields = dict(self.headers)
        if len(fields) != len(self.headers):
            self.doubled = True
            fields.clear()
            for name, value in self.headers:
                fields[name] = fields[name] + b", " + value if name in fields else value
        self.owner = owner_of(self.client)

    def set_principal(self, principal: Principal) -> None:
        """Note the authenticated caller."""
        self.principal, self.scopes = principal, principal.scopes
        self.identity = self.owner = principal.key

    def text(self, name: bytes) -> str | None:
        """Return the value of a header, or None."""
        value = self.fields.get(name)
        return None if value is None else value.decode("latin-1")

    def header_map(self) -> dict[str, str]:
        """Return the headers for handlers, without credentials: a token must not be passed on by accident."""
        shown = ((name, value) for name, value in self.fields.items() if name not in SECRET_HEADERS)
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in shown}

    def count(self, name: bytes) -> int:
        """Return in how many lines a header was sent."""
        return sum(1 for header, _ in self.headers if header == name)

    @property
    def may_have_body(self) -> bool:
        """Whether bytes may follow the head."""
        length = self.fields.get(b"content-length")
        if length is not None:
            return length != b"0"
        # HTTP/1.1 without a length or a transfer coding has no body; later versions end a body by themselves.
        return b"transfer-encoding" in self.fields or (
            not self.http_version.startswith("1") and self.method in ("POST", "PUT", "PATCH")
        )


Authenticator = Callable[[HttpRequest], Awaitable[Any]]
"""Returns the `Principal` of a request, or a `Plain` that refuses it. Any other result is refused with status 401."""


class Plain(Struct, frozen=True):
    """A whole response. The engine adds its length and framing."""

    status: int
    headers: Headers = ()
    body: bytes = b""


def for_page(head: HttpRequest, reply: Plain) -> Plain:
    """Return the response with the CORS headers of its request. Engines call it if there are any."""
    return Plain(reply.status, reply.headers + head.cors, reply.body)


class Events(Protocol):
    """The source of the bytes of a stream. One task reads it."""

    @property
    def over(self) -> bool:
        """Whether `next` would return None at once."""
        ...

    async def next(self) -> bytes | None:
        """Return the next piece, which may hold several events or only a heartbeat; None is the end."""
        ...

    def detach(self, cause: str) -> None:
        """Release the stream: its connection is gone or done. Always called in the end, perhaps twice."""
        ...


class Stream(Struct, frozen=True):
    """A response that goes on: its head, and the source of its bytes."""

    status: int
    headers: Headers
    events: Events


def id_of(frame: Frame | Batch | None) -> int | str | None:
    """Return the id for an error response: only a request's id, since any other would match another request."""
    return frame.id if type(frame) is Request else None


def refuse(
    status: int,
    message: str,
    *,
    code: int = INVALID_REQUEST,
    headers: Headers = (),
    request_id: int | str | None = None,
    data: Any = None,
) -> Plain:
    """Build a refusal whose body is a JSON-RPC error (basic/transports allows one, without an id if none is known)."""
    return Plain(status, JSON + headers, encode(Error(request_id, code, message, data)))


def refuse_frame(error: RemoteProtocolError) -> Plain:
    """Build the response to a body that is no valid message."""
    return refuse(error.http_status, error.message, code=error.code, request_id=error.request_id, data=error.data)


def overloaded(
    message: str,
    retry_after: int,
    *,
    request_id: int | str | None = None,
    close: bool = False,
    status: int = 503,
    limit: str | None = None,
) -> Plain:
    """Build an `overloaded` response: 503 if the server is busy, 429 if this client sends too much."""
    headers: Headers = ((b"retry-after", b"%d" % retry_after),)
    if close:
        headers += (CLOSE,)
    data: dict[str, Any] = {"retryAfter": retry_after}
    if limit is not None:
        data["limit"] = limit
    return refuse(
        status, f"overloaded: {message}", code=INTERNAL_ERROR, headers=headers, request_id=request_id, data=data
    )


def refuse_overloaded(error: Overloaded, request_id: int | str | None = None, *, close: bool = False) -> Plain:
    """Build the response to a request that reached a limit."""
    return overloaded(
        str(error), error.retry_after, request_id=request_id, close=close, status=error.http_status, limit=error.limit
    )


def refuse_browser(head: HttpRequest, refusal: Plain) -> Plain:
    """Explain the endpoint to a person who opens it in a browser; programs get the refusal as it is."""
    if refusal.status not in (400, 405, 406) or b"text/html" not in head.fields.get(b"accept", b""):
        return refusal
    text = (
        "this is an MCP endpoint, not a web page: add its URL to an MCP client, or look at what it offers with "
        "`mcptrio inspect URL`; see https://github.com/mcptrio/mcptrio"
    )
    return Plain(refusal.status, refusal.headers, refuse(refusal.status, text).body)


def session_needed(request_id: int | str | None = None) -> Plain:
    # basic/transports: a request without the id of its session SHOULD be answered with 400
    return refuse(400, "Mcp-Session-Id is missing; only initialize comes without it", request_id=request_id)


def unknown_session(request_id: int | str | None = None) -> Plain:
    # basic/transports: a session that was ended MUST be answered with 404
    return refuse(404, "there is no such session; start a new one with initialize", request_id=request_id)
