"""What sits in a session's inbox: the messages that the machine is stepped with."""

from __future__ import annotations

import enum
from typing import Any, final

import msgspec

from mcptrio._peer.era import Era
from mcptrio._wire.jsonrpc import Batch, Frame, Malformed


class Cause(enum.Enum):
    """Why a call or a session was ended; stored before anything is cancelled."""

    CLIENT_CANCEL = "cancelled by the peer"
    DISCONNECT = "the peer hung up"
    TIMEOUT = "timed out"
    EXPIRED = "nobody answered in time"
    SESSION_END = "the session ended"
    IDLE = "the session was idle for too long"
    CRASH = "the session failed"
    DRAIN = "the server is shutting down"


# -- how a handler ended


class Answered(msgspec.Struct, frozen=True):
    """A handler's result, already JSON: encoded where an error in it still hurts one call only."""

    result: msgspec.Raw


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
    """The peer sent something. `link` is where an answer goes, `context` the context variables of the carrier.

    What could not be read comes as `Malformed`, in its place among the others: how it is answered depends on the date
    that those before it agreed on.
    """

    frame: Frame | Batch | Malformed
    link: Any
    context: Any = None


@final
class Finished(msgspec.Struct, frozen=True):
    """A handler is done."""

    call: int
    outcome: Outcome


class Asked(msgspec.Struct, frozen=True):
    """This side wants something of the peer: from inside a handler (`call`), or on its own account (None)."""

    call: int | None
    method: str
    params: dict[str, Any]
    reply: Any
    """A future; the machine carries it and never opens it."""
    wants_progress: bool = False
    key: str = ""
    """Names the question where questions travel in results."""
    check: Any = None
    """Raises if an answer cannot be used; it is asked for again then, where questions travel in results."""


class Gathered(msgspec.Struct, frozen=True):
    """No further question has come for a while after this one: what was asked so far may leave."""

    call: int
    reply: Any


class Resumed(msgspec.Struct, frozen=True):
    """The request of a parked call was repeated: `start` is the new one, with answers in its parameters."""

    call: int
    start: Any


class HandedOver(msgspec.Struct, frozen=True):
    """Another session answers this call's request, on its link."""

    call: int


class Expired(msgspec.Struct, frozen=True):
    """A parked call has waited long enough."""

    call: int


class GaveUp(msgspec.Struct, frozen=True):
    """Nobody waits for this reply any more."""

    reply: Any
    reason: str


class Notified(msgspec.Struct, frozen=True):
    """This side tells the peer something, about a running call or about nothing in particular."""

    call: int | None
    method: str
    params: dict[str, Any]


class Opened(msgspec.Struct, frozen=True):
    """The client side learnt what the server speaks and offers."""

    era: Era
    capabilities: dict[str, Any]


class LinkLost(msgspec.Struct, frozen=True):
    """The link of some calls is gone for good; their handlers have nobody to answer to."""

    link: Any


class Drained(msgspec.Struct, frozen=True):
    """Time is up for what still runs: answer it with an error and stop it."""

    cause: Cause


class HungUp(msgspec.Struct, frozen=True):
    """The session is over."""

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
