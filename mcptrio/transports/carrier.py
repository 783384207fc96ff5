"""What carries a client's frames: the roles that every client-side transport fills, and the ways it fails.

A *carrier* knows where the server is; opening it gives a *line*, which takes frames and never waits. What comes in is
handed to a *receiver*. A frame that could not be delivered, or whose answer cannot come any more, is reported as the
answer to its request, so that the caller, and nobody else, sees a typed error.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from mcptrio._peer.era import Era
from mcptrio._wire.jsonrpc import Batch, ErrorResponse, Frame, RequestId, Response
from mcptrio.errors import INTERNAL_ERROR, LinkClosed


class NotDelivered(LinkClosed):
    """The request did not reach the server: repeating it is always safe."""


class SessionGone(NotDelivered):
    """The server no longer knows the session; a new one has to be opened."""


class Receiver(Protocol):
    """Where a carrier hands what it receives."""

    async def deliver(self, frame: Frame | Batch) -> None:
        """Something that the server sent.

        Raises:
            LinkClosed: nobody wants it any more.
        """
        ...

    def deliver_nowait(self, answer: Response) -> bool:
        """A result that the server sent, if it can be taken without waiting. What it does not take is delivered."""
        ...

    def lost(self, reason: str) -> None:
        """Nothing can be sent or received on this line any more."""
        ...

    def headers_for(self, method: str, params: Mapping[str, Any]) -> Mapping[str, str]:
        """What a request says in headers beside its body, where the transport has headers."""
        ...


class Line(Protocol):
    """An open way to the server."""

    full: bool
    """The server does not keep up with what is sent: who wants to ask more waits for `room` first."""

    def post(self, data: bytes) -> None:
        """Send an encoded frame, some time soon."""
        ...

    async def room(self) -> None:
        """Wait until another frame may be posted without overfilling the line."""
        ...

    def speak(self, era: Era) -> None:
        """What both sides speak from now on."""
        ...

    async def confirmed(self) -> None:
        """Wait until the server has `notifications/initialized`."""
        ...


class Carrier(Protocol):
    """Knows how to reach a server."""

    @property
    def name(self) -> str:
        """The kind of transport: `stdio`, `http`, ..."""
        ...

    def open(self, receiver: Receiver) -> AbstractAsyncContextManager[Line]:
        """A line to the server; leaving says goodbye as the transport wants it, in bounded time."""
        ...


def failure(request_id: RequestId, error: Exception) -> ErrorResponse:
    """An answer that this side gives in place of the server: its data is the exception to raise to the caller."""
    return ErrorResponse(request_id, INTERNAL_ERROR, str(error), error)
