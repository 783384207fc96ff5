"""What the machine wants done. The session performs each one at once and never waits for it."""

from __future__ import annotations

from typing import Any

import msgspec

from mcptrio._peer.era import Era
from mcptrio._peer.messages import Cause
from mcptrio._wire.jsonrpc import ErrorResponse, Notification, Request, Response


class Send(msgspec.Struct, frozen=True):
    """Put a frame on a link (None: the session's own).

    `final` closes the exchange that the link stands for; `status` is the hint for a transport that has statuses.
    """

    frame: Request | Notification | Response | ErrorResponse | tuple[Response | ErrorResponse, ...]
    link: Any
    final: bool = False
    status: int = 200


class Start(msgspec.Struct, frozen=True):
    """Run a handler. `request_id` is None for a notification: nothing is answered."""

    call: int
    request_id: int | str | None
    method: str
    params: dict[str, Any]
    era: Era
    link: Any
    context: Any
    progress_token: int | str | None
    capabilities: dict[str, Any] | None = None
    """What the client declared in this very request; None where it did so once for the session."""


class AskInResult(msgspec.Struct, frozen=True):
    """Answer a request with the questions of its handler, which stays parked until the request is repeated."""

    start: Start
    questions: dict[str, Any]


class Gather(msgspec.Struct, frozen=True):
    """Say `Gathered` in a moment: questions are left over from a round that was not answered whole."""

    call: int
    reply: Any


class Attach(msgspec.Struct, frozen=True):
    """A parked call serves another request from now on."""

    call: int
    start: Start


class Stop(msgspec.Struct, frozen=True):
    """Cancel a handler; whatever it still reports is ignored."""

    call: int
    cause: Cause


class Settle(msgspec.Struct, frozen=True):
    """Give a waiting caller its answer: a result, or an exception to raise."""

    reply: Any
    result: Any = None
    error: Exception | None = None


class Progressed(msgspec.Struct, frozen=True):
    """The peer reported progress on something that this side asked for."""

    reply: Any
    params: dict[str, Any]


class End(msgspec.Struct, frozen=True):
    """Nothing more will be sent on this link."""

    link: Any


class Ignored(msgspec.Struct, frozen=True):
    """Something was dropped on purpose; it is only counted."""

    what: str


class Close(msgspec.Struct, frozen=True):
    """End the session."""

    cause: Cause


Effect = Send | Start | AskInResult | Gather | Attach | Stop | Settle | Progressed | End | Ignored | Close
