"""What goes into the exchange and what comes out: a request head, a plain answer, a stream of events.

Shells translate between these and a server's own forms; nothing here knows ASGI or sockets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from attrs import define, field
from msgspec import Struct

from mcptrio._actors.session import Session
from mcptrio._peer.era import Era
from mcptrio._wire.jsonrpc import ErrorResponse, encode
from mcptrio.errors import INTERNAL_ERROR, INVALID_REQUEST, RemoteProtocolError

if TYPE_CHECKING:
    from .exchange import Agreed

Headers = tuple[tuple[bytes, bytes], ...]

JSON: Final[Headers] = ((b"content-type", b"application/json"),)
TEXT: Final[Headers] = ((b"content-type", b"text/plain; charset=utf-8"),)
CLOSE: Final = (b"connection", b"close")
_SECRET: Final = frozenset({b"authorization", b"proxy-authorization", b"dpop", b"cookie"})
EVENTS: Final[Headers] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # a proxy that buffers would hold events back
)


@define(eq=False, repr=False, kw_only=True)
class Head:
    """The head of one HTTP request. Header names are lower-case bytes, as ASGI has them."""

    method: str
    path: str
    """Decoded, without the path that the application is mounted under."""
    headers: list[tuple[bytes, bytes]]
    query: bytes = b""
    target: bytes | None = None
    """As it was sent, where the shell knows: `path?query`, or a whole URL."""
    scheme: str = "http"
    http_version: str = "1.1"
    client: tuple[str, int] | None = None
    root: str = ""
    """The path that the application is mounted under."""
    certificate: bytes | None = None
    """The client's TLS certificate (DER), where the listener asked for one and checked it."""
    principal: Any = None
    """Who sent it, once `Endpoint.authenticate` found out."""
    scopes: frozenset[str] | None = None
    """What the sender may do; None where that does not matter."""
    room: int = 0
    """What its body was given of the room for large ones."""
    passed: bool = False
    """It was let through before: a connection whose client repeats itself asks with the same head again."""
    date: str | None = None
    """Its protocol version, once it has passed."""
    era: Era | None = None
    """What that version is here."""
    session_id: str | None = None
    """The session it names, once that was looked for."""
    session: Session | None = None
    """That session, between being found before the body was read and being asked."""
    agreed: Agreed | None = None
    """What the body of the last request said where this said the same: clients repeat themselves."""
    fields: dict[bytes, bytes] = field(init=False)
    """Each header once; several lines of one name are joined with a comma (RFC 9110 section 5.3)."""
    doubled: bool = field(init=False, default=False)
    """Some header has several lines."""

    def __attrs_post_init__(self) -> None:
        self.fields = fields = dict(self.headers)
        if len(fields) != len(self.headers):
            self.doubled = True
            fields.clear()
            for name, value in self.headers:
                fields[name] = fields[name] + b", " + value if name in fields else value

    def text(self, name: bytes) -> str | None:
        """The value of a header, or None."""
        value = self.fields.get(name)
        return None if value is None else value.decode("latin-1")

    def header_map(self) -> dict[str, str]:
        """The headers for handlers to look at, without credentials: a token must not be passed on by accident."""
        shown = ((name, value) for name, value in self.fields.items() if name not in _SECRET)
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in shown}

    def count(self, name: bytes) -> int:
        """In how many lines a header was sent."""
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


Authenticator = Callable[[Head], Awaitable[Any]]
"""Gives the principal of a request, or a `Plain` that refuses it."""


class Plain(Struct, frozen=True):
    """A whole response. Its length and its framing are the shell's."""

    status: int
    headers: Headers = ()
    body: bytes = b""


ELSEWHERE: Final = Plain(0)
"""The rest of a request is another task's, see `Loan`."""

Rest = Callable[[], Awaitable["Plain | Stream"]]


@define(eq=False, repr=False)
class Loan:
    """The task of a connection, offered to the handler of the request that it brought: a `Carrier`.

    When the handler keeps the task, `carry_on` has the rest of the request done by another one.
    """

    scope: trio.CancelScope
    carry_on: Callable[[Rest], None]
    rest: Rest | None = None
    """How to get the answer. Set before the task is offered."""
    taken: bool = False

    def pass_on(self) -> None:
        self.taken = True
        rest, self.rest = self.rest, None
        assert rest is not None
        self.carry_on(rest)


class Events(Protocol):
    """Where the bytes of a stream come from. One task asks for them."""

    @property
    def over(self) -> bool:
        """Everything was given: `next` would give None at once."""
        ...

    async def next(self) -> bytes | None:
        """The next piece, which may hold several events or only a heartbeat; None is the end."""
        ...

    def detach(self, cause: str) -> None:
        """The connection is gone or done. Always called in the end; calling it again is harmless."""
        ...


class Stream(Struct, frozen=True):
    """A response that goes on: its head, and where its bytes come from."""

    status: int
    headers: Headers
    events: Events


def refuse(
    status: int,
    message: str,
    *,
    code: int = INVALID_REQUEST,
    headers: Headers = (),
    request_id: int | str | None = None,
    data: Any = None,
) -> Plain:
    """A refusal whose body is a JSON-RPC error (basic/transports: it may be one, without an id if none is known)."""
    return Plain(status, JSON + headers, encode(ErrorResponse(request_id, code, message, data)))


def refuse_frame(error: RemoteProtocolError) -> Plain:
    """The answer to a body that is no valid message."""
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
    """Try again later: 503 where the server has too much to do, 429 where this client asks for too much."""
    headers: Headers = ((b"retry-after", b"%d" % retry_after),)
    if close:
        headers += (CLOSE,)
    data: dict[str, Any] = {"retryAfter": retry_after}
    if limit is not None:
        data["limit"] = limit
    return refuse(
        status, f"overloaded: {message}", code=INTERNAL_ERROR, headers=headers, request_id=request_id, data=data
    )
