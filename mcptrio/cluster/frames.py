"""The frames between two workers: values of one request and its response, never the contents of a stream.

A frame is a length of four bytes and a msgpack array. Frames of one connection are numbered by the worker that dialled
it; the number of a request also names the stream that answers it, as long as its client follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from mcptrio.errors import MCPTrioError

PROTOCOL: Final = 2
"""The number of this format. Workers of different formats do not talk to each other."""
OVERHEAD: Final = 64 * 1024
"""Bytes of a frame besides the head and the body of a request."""
MAX_GREETING: Final = 4096
"""Bytes of a frame before the peer has proved who it is."""
MAX_ANSWER: Final = 64 * 2**20
"""Bytes of a frame with an answer. Answers have no limit of their own in a single process."""
_LENGTH: Final = 4


class LinkError(MCPTrioError):
    """A peer sent something that is no frame, or a frame that is not allowed."""


class Hello(Struct, frozen=True, array_like=True, tag="hello"):
    """The first frame in both directions."""

    worker: str
    cluster: str
    protocol: int
    nonce: bytes


class Proof(Struct, frozen=True, array_like=True, tag="proof"):
    """The second frame in both directions: an HMAC over both greetings."""

    mac: bytes


class Forward(Struct, frozen=True, array_like=True, tag="forward"):
    """A request that has passed all checks which precede the session: Host, Origin, credentials, size."""

    id: int
    session: str
    """Empty for a stateless request."""
    method: str
    path: str
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    """Without credentials."""
    body: bytes
    scheme: str
    client: tuple[str, int] | None
    caller: bytes | None
    """The `PrincipalRecord` of an authenticated caller, as JSON."""
    scopes: Sequence[str] | None
    """The scopes of the sender; None where scopes are not checked."""
    may_claim: bool
    """The sending worker drains: the receiver may become the home of the session."""


class Forwarded(Struct, frozen=True, array_like=True, tag="plain"):
    """A whole response."""

    id: int
    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


class ForwardedStream(Struct, frozen=True, array_like=True, tag="stream"):
    """The response is a stream, to be followed from the store after the prologue."""

    id: int
    session: str
    stream: str
    after: int
    prologue: bytes
    headers: Sequence[tuple[bytes, bytes]]
    resumable: bool
    request_id: int | str | None


class NotHome(Struct, frozen=True, array_like=True, tag="not_home"):
    """The session is not here: look it up again."""

    id: int


class ClientGone(Struct, frozen=True, array_like=True, tag="gone"):
    """The client of a request has disconnected before it was answered."""

    id: int


class Detach(Struct, frozen=True, array_like=True, tag="detach"):
    """The client of a stream follows it no longer."""

    id: int
    cause: str


class CloseRemote(Struct, frozen=True, array_like=True, tag="close"):
    """Close the connection of a client that follows a stream: another one replaced it, or the handler asked for it."""

    id: int
    retry: bool


class Leaving(Struct, frozen=True, array_like=True, tag="leaving"):
    """The worker that accepted this connection leaves: send nothing more, and close when everything is answered."""


AnswerFrame: TypeAlias = Forwarded | ForwardedStream | NotHome
LinkFrame: TypeAlias = (
    Hello | Proof | Forward | Forwarded | ForwardedStream | NotHome | ClientGone | Detach | CloseRemote | Leaving
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(LinkFrame)


def pack_frame(frame: LinkFrame) -> bytes:
    """Encode a frame with its length."""
    body = _encoder.encode(frame)
    return len(body).to_bytes(_LENGTH, "big") + body


class FrameReader:
    """Cuts bytes into frames."""

    def __init__(self, max_frame: int = MAX_GREETING) -> None:
        self.max_frame = max_frame
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        self._rest += data

    def next_frame(self) -> LinkFrame | None:
        """Return the next frame; None if it is not complete yet.

        Raises:
            LinkError: a frame is too large, or no frame at all.
        """
        rest = self._rest
        if len(rest) < _LENGTH:
            return None
        size = int.from_bytes(rest[:_LENGTH], "big")
        if size > self.max_frame:
            raise LinkError(f"a frame of {size} bytes; at most {self.max_frame} are allowed")
        end = _LENGTH + size
        if len(rest) < end:
            return None
        try:
            with memoryview(rest) as view, view[_LENGTH:end] as body:
                frame: LinkFrame = _decoder.decode(body)
        except msgspec.DecodeError as error:
            raise LinkError(f"not a frame: {error}") from None
        del rest[:end]
        return frame
