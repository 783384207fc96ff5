"""Effects: the actions that the machine requests. The session performs each one at once, without waiting."""

from __future__ import annotations

from contextvars import Context
from typing import Any

import msgspec

from mcptrio._peer.era import Era
from mcptrio._peer.link import ReplyLink, RequestHead
from mcptrio._peer.messages import Asked, Cause, ReplyFuture
from mcptrio._wire.jsonrpc import Error, Notice, Notification, Request, Response


class Send(msgspec.Struct, frozen=True):
    """Put a frame on a link (None: the session's own).

    `final` closes the exchange that the link stands for; `status` is the hint for a transport that has statuses.
    """

    frame: Request | Notification | Notice | Response | Error | tuple[Response | Error, ...]
    link: ReplyLink | None
    final: bool = False
    status: int = 200


class Start(msgspec.Struct, frozen=True):
    """Run a handler. `request_id` is None for a notification, which gets no response."""

    call: int
    request_id: int | str | None
    method: str
    params: dict[str, Any]
    era: Era
    link: ReplyLink | None
    """None for a notification."""
    context: Context | None
    progress_token: int | str | None
    capabilities: dict[str, Any] | None = None
    """The capabilities that the client declared in this request; None where the session has them."""

    @property
    def head(self) -> RequestHead | None:
        """The HTTP request that carried it; None elsewhere."""
        return None if self.link is None else self.link.head


class AskInResult(msgspec.Struct, frozen=True):
    """Answer a request with the input requests of its handler, which stays parked until the request is repeated."""

    start: Start
    questions: dict[str, Asked]


class Gather(msgspec.Struct, frozen=True):
    """Send `Gathered` after a moment: input requests are left over from a round that was only partly answered."""

    call: int
    reply: ReplyFuture


class Attach(msgspec.Struct, frozen=True):
    """Serve another request with a parked call from now on."""

    call: int
    start: Start


class Stop(msgspec.Struct, frozen=True):
    """Cancel a handler and ignore what it still reports."""

    call: int
    cause: Cause


class Settle(msgspec.Struct, frozen=True):
    """Give a waiting caller its answer: a result, or an exception to raise."""

    reply: ReplyFuture
    result: Any = None
    error: Exception | None = None
    call: int | None = None
    """The call that asked, and keeps the answer of the peer."""


class Progressed(msgspec.Struct, frozen=True):
    """Report progress of the peer on an outgoing request."""

    reply: ReplyFuture
    params: dict[str, Any]


class End(msgspec.Struct, frozen=True):
    """Close this link for further frames."""

    link: ReplyLink


class Ignored(msgspec.Struct, frozen=True):
    """Count something that was dropped on purpose."""

    what: str


class Close(msgspec.Struct, frozen=True):
    """End the session."""

    cause: Cause


Effect = Send | Start | AskInResult | Gather | Attach | Stop | Settle | Progressed | End | Ignored | Close
