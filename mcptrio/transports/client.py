"""The roles of client-side transports, and the ways in which they fail.

A *transport* knows where the server is. Opening it returns a *link*, which takes frames and never blocks. Received
frames are handed to a *receiver*. A frame that could not be delivered, or whose response cannot arrive any more, is
reported as an error response to its request, so that only its caller sees a typed error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from mcptrio._peer.era import Era
from mcptrio._wire.jsonrpc import (
    LARGE_MESSAGE,
    Batch,
    Error,
    Frame,
    JsonLimits,
    Malformed,
    RequestId,
    Response,
    decode,
)
from mcptrio.errors import INTERNAL_ERROR, ConnectionLost, RemoteProtocolError
from mcptrio.transports.decoding import decode_in_turns

_RESPONSE: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"id"\s*:\s*(\d{1,18})\s*,\s*)?"(?:result|error)"'
)
_ID_LAST: Final = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*\}\s*\Z')


class NotDelivered(ConnectionLost):
    """The request did not reach the server; repeating it is always safe."""


class SessionGone(NotDelivered):
    """The server no longer knows the session; a new one must be opened."""


class Receiver(Protocol):
    """The consumer of the frames that a transport receives."""

    @property
    def json_limits(self) -> JsonLimits:
        """The limits of a received message."""
        ...

    async def deliver(self, frame: Frame | Batch) -> None:
        """Take a frame of the server.

        Raises:
            ConnectionLost: the receiver is closed.
        """
        ...

    def deliver_nowait(self, answer: Response) -> bool:
        """Take a result if that is possible without waiting; otherwise return False, and it goes to `deliver`."""
        ...

    def lost(self, reason: str) -> None:
        """Note that nothing can be sent or received on this link any more."""
        ...

    def headers_for(self, method: str, params: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the headers that repeat parts of a request's body, for transports that have headers."""
        ...

    def headers_of(self, request_id: Any) -> Mapping[str, str]:
        """Return the headers that the caller has added to a request, for transports that have headers."""
        ...


class ClientLink(Protocol):
    """An open connection to the server."""

    full: bool
    """Whether the server does not keep up: wait for `room` before sending another request."""

    def post(self, data: bytes) -> None:
        """Queue an encoded frame for sending."""
        ...

    async def room(self) -> None:
        """Wait until another frame may be posted without overfilling the link."""
        ...

    def use_era(self, era: Era) -> None:
        """Use this era from now on."""
        ...

    async def confirmed(self) -> None:
        """Wait until the server has `notifications/initialized`."""
        ...


class ClientTransport(Protocol):
    """The way to reach one server."""

    @property
    def name(self) -> str:
        """The kind of transport: `stdio`, `http`, ..."""
        ...

    def open(self, receiver: Receiver) -> AbstractAsyncContextManager[ClientLink]:
        """Open a link to the server; leaving closes it properly, in bounded time."""
        ...


async def decode_received(receiver: Receiver, data: bytes) -> Frame | Batch:
    """Decode a message of the server.

    Raises:
        RemoteProtocolError: the bytes are no JSON-RPC, or exceed the limits of the receiver.
    """
    limits = receiver.json_limits
    return decode(data, limits) if len(data) <= LARGE_MESSAGE else await decode_in_turns(data, limits)


async def hand_over(receiver: Receiver, data: bytes) -> Frame | Batch | RemoteProtocolError:
    """Decode one message, deliver it and return it.

    A message that cannot be read fails the request whose id it has. Without an id it is skipped: its error is returned.

    Raises:
        ConnectionLost: the receiver is closed.
    """
    try:
        frame = await decode_received(receiver, data)
    except RemoteProtocolError as error:
        request_id = _id_in(data) if error.request_id is None else error.request_id
        if request_id is None:
            return error
        frame = failure(request_id, error)
    if type(frame) is not Response or not receiver.deliver_nowait(frame):
        await receiver.deliver(frame)
    return frame


def answered_ids(frame: Frame | Batch) -> list[RequestId]:
    """Return the ids of the requests that a message answers, readable or not."""
    ids = []
    for one in frame if isinstance(frame, tuple) else (frame,):
        match one:
            case Response(request_id) | Error(request_id) if request_id is not None:
                ids.append(request_id)
            case Malformed(error) if error.request_id is not None:
                ids.append(error.request_id)
    return ids


def _id_in(data: bytes) -> int | None:
    """Return the id of a response that is too large to be decoded: it stands before the result, or at the end."""
    begin = _RESPONSE.match(data[:200])
    if begin is None or begin[1] is not None:
        return None if begin is None else int(begin[1])
    end = _ID_LAST.search(data[-200:])
    return None if end is None else int(end[1])


def same_id(one: RequestId, other: RequestId | None) -> bool:
    """Return whether two ids mean the same request. Some servers echo a number as text; this side sends numbers."""
    return one == other or (other is not None and str(one) == str(other))


def failure(request_id: RequestId, error: Exception) -> Error:
    """Return an error response made by this side; its data is the exception to raise to the caller."""
    return Error(request_id, INTERNAL_ERROR, str(error), error)
