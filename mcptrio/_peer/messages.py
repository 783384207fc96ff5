"""Messages: the items in a session's inbox, which the machine steps on."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol, final

import msgspec

from mcptrio._peer.era import Era
from mcptrio._peer.link import ReplyLink
from mcptrio._wire.jsonrpc import AnyFrame

if TYPE_CHECKING:
    from mcptrio._peer.effects import Start


class Cause(enum.Enum):
    """The reason why a call or a session ended; stored before anything is cancelled."""

    CLIENT_CANCEL = "cancelled by the peer"
    DISCONNECT = "the peer hung up"
    TIMEOUT = "timed out"
    EXPIRED = "no answer arrived in time"
    SESSION_END = "the session ended"
    IDLE = "the session was idle for too long"
    RESTART = "the peer initialized the session again"
    CRASH = "the session failed"
    PASSIVATED = "the session was stored and left the memory"
    MOVED = "another process is the home of the session now"
    DRAIN = "the server is shutting down"


# -- outcomes of handlers


class Answered(msgspec.Struct, frozen=True):
    """A handler's result, already encoded as JSON, so that an encoding error affects this call only."""

    result: msgspec.Raw
    is_error: bool = False
    """Whether it is the result of a tool that failed."""


class Failed(msgspec.Struct, frozen=True):
    """A handler's failure, as the peer will see it."""

    code: int
    message: str
    data: Any = None
    http_status: int = 200


Outcome = Answered | Failed


# -- messages


@final
class Received(msgspec.Struct, frozen=True):
    """A frame from the peer. `link` takes the response; `context` holds the context variables of the carrier.

    A message that could not be read arrives as `Malformed`, in order with the others, because the date that they
    negotiated decides how to answer it.
    """

    frame: AnyFrame
    link: ReplyLink
    context: Context | None = None


@final
class Finished(msgspec.Struct, frozen=True):
    """The end of a handler."""

    call: int
    outcome: Outcome


class ReplyFuture(Protocol):
    """The future of a reply to a request that this side sends. The machine only passes it on."""

    @property
    def settled(self) -> bool: ...
    def settle(self, result: Any = None, error: Exception | None = None) -> None:
        """Set the result or the error. The first one counts."""
        ...

    def progressed(self, params: Mapping[str, Any]) -> None:
        """Handle a progress notification of the peer."""
        ...

    async def wait(self) -> Any:
        """Return the result, or raise the error."""
        ...


class Asked(msgspec.Struct, frozen=True):
    """A request to the peer: from inside a handler (`call`), or from the session itself (None)."""

    call: int | None
    method: str
    params: dict[str, Any]
    reply: ReplyFuture
    wants_progress: bool = False
    key: str = ""
    """The key of the input request, where these travel in results."""
    id: str = ""
    """Identifies the input request in the journal of the call."""


class Gathered(msgspec.Struct, frozen=True):
    """A pause after an input request: those collected so far may be sent."""

    call: int
    reply: ReplyFuture


class Resumed(msgspec.Struct, frozen=True):
    """A repeated request for a parked call: `start` is the new one, with answers in its parameters."""

    call: int
    start: Start


class HandedOver(msgspec.Struct, frozen=True):
    """A call whose request another session answers, on its own link."""

    call: int


class Expired(msgspec.Struct, frozen=True):
    """The timeout of a parked call."""

    call: int


class GaveUp(msgspec.Struct, frozen=True):
    """A reply whose caller no longer waits for it."""

    reply: ReplyFuture
    reason: str


class Notified(msgspec.Struct, frozen=True):
    """A notification to the peer, about a running call or about none."""

    call: int | None
    method: str
    params: msgspec.Raw


class Opened(msgspec.Struct, frozen=True):
    """The date and the capabilities of the peer, as they were learnt elsewhere: by another request, or from a record.

    Not `ready`: the client of a stored session has not sent `notifications/initialized` yet.
    """

    era: Era
    capabilities: dict[str, Any]
    ready: bool = True


class LinkLost(msgspec.Struct, frozen=True):
    """The permanent loss of the link of some calls; their handlers cannot respond."""

    link: ReplyLink


class Drained(msgspec.Struct, frozen=True):
    """The end of the drain period: answer running calls with an error and stop them."""

    cause: Cause


class HungUp(msgspec.Struct, frozen=True):
    """The end of the session."""

    cause: Cause


Message = (
    Received
    | Finished
    | Asked
    | Gathered
    | Resumed
    | HandedOver
    | Expired
    | GaveUp
    | Notified
    | Opened
    | LinkLost
    | Drained
    | HungUp
)
