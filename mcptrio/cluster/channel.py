"""One connection between two workers: frames in both directions, and the greeting that proves who the peer is."""

from __future__ import annotations

import hmac
import os
from hashlib import sha256
from typing import Final

import trio
from msgspec import Struct

from mcptrio._actors.future import Waiter
from mcptrio.cluster.frames import (
    MAX_ANSWER,
    PROTOCOL,
    Forward,
    Forwarded,
    FrameReader,
    Hello,
    LinkError,
    LinkFrame,
    Proof,
    pack_frame,
)
from mcptrio.errors import Overloaded

MAX_UNSENT: Final = 16 * 2**20
STALLED: Final = 10.0
"""Seconds that an answer waits for a peer that does not read."""
CHUNK: Final = 64 * 1024
_WITH_BODY: Final = (Forward, Forwarded)
BROKEN: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, LinkError)


class LinkIdentity(Struct, frozen=True):
    """The name of a worker, and the key by which the workers of a cluster know each other."""

    worker: str
    cluster: str
    key: bytes
    max_request: int
    """Bytes of a frame with a request."""

    @classmethod
    def derive(cls, worker: str, cluster: str, secret: bytes, max_request: int) -> LinkIdentity:
        """Derive the key from the secret of the store."""
        return cls(worker, cluster, hmac.digest(secret, b"mcptrio cluster link", sha256), max_request)


class FrameChannel:
    """Frames over a stream. One task runs `write`, another one calls `receive`.

    The side that dialled sends requests and receives answers. Before the greeting only short frames are received.
    """

    def __init__(self, stream: trio.abc.Stream, identity: LinkIdentity, *, dialled: bool) -> None:
        self._stream = stream
        self._identity = identity
        self._dialled = dialled
        self._max_sent = identity.max_request if dialled else MAX_ANSWER
        self._reader = FrameReader()
        self._unsent = bytearray()
        self._writer = Waiter()
        self._room = trio.lowlevel.ParkingLot()

    def send_nowait(self, frame: LinkFrame) -> bool:
        """Queue a frame; return False if too much waits already for another request or answer.

        Raises:
            Overloaded: the frame is larger than the peer accepts.
        """
        data = pack_frame(frame)
        if len(data) > self._max_sent:
            text = f"{len(data)} bytes do not fit into one frame between two workers; at most {self._max_sent} do"
            raise Overloaded(text, retry_after=1, limit="forward")
        # The other kinds are short, and each belongs to a request that was sent: without them the peer waits for ever.
        if isinstance(frame, _WITH_BODY) and self._unsent and len(self._unsent) + len(data) > MAX_UNSENT:
            return False
        self._unsent += data
        self._writer.wake()
        return True

    async def send(self, frame: LinkFrame) -> None:
        """Queue a frame, and wait for room first if too much waits already.

        Raises:
            Overloaded: the frame is larger than the peer accepts.
            LinkError: the peer does not read.
        """
        with trio.move_on_after(STALLED) as waiting:
            while not self.send_nowait(frame):
                await self._room.park()
        if waiting.cancelled_caught:
            raise LinkError(f"the peer has not read anything for {STALLED:g} s")

    async def write(self) -> None:
        """Send what is queued, until cancelled.

        Raises:
            OSError, trio.BrokenResourceError: the connection is lost.
        """
        while True:
            if self._unsent:
                data, self._unsent = self._unsent, bytearray()
                self._room.unpark_all()
                await self._stream.send_all(data)
            else:
                await self._writer.park()

    async def receive(self) -> LinkFrame | None:
        """Wait for a frame; None at the end.

        Raises:
            OSError, trio.BrokenResourceError: the connection is lost.
            LinkError: the peer sent something that is no frame.
        """
        while (frame := self._reader.next_frame()) is None:
            data = await self._stream.receive_some(CHUNK)
            if not data:
                return None
            self._reader.feed(bytes(data))
        return frame

    async def greet(self, expected: str | None = None) -> str:
        """Exchange greetings and proofs, before any other frame; return the id of the peer.

        Raises:
            OSError, trio.BrokenResourceError: the connection is lost.
            LinkError: the peer is no worker of this cluster, or not the expected one.
        """
        identity, dialled = self._identity, self._dialled
        own = Hello(identity.worker, identity.cluster, PROTOCOL, os.urandom(32))
        await self._stream.send_all(pack_frame(own))
        other = await self.receive()
        if not isinstance(other, Hello):
            raise LinkError("the peer did not greet")
        if (other.protocol, other.cluster) != (PROTOCOL, identity.cluster) or len(other.nonce) != 32:
            raise LinkError("the peer belongs to another cluster, or speaks another version of this protocol")
        own_proof = pack_frame(Proof(_prove(identity.key, own, other, dialled=dialled)))
        if dialled:
            await self._stream.send_all(own_proof)
        proof = await self.receive()
        wanted = _prove(identity.key, other, own, dialled=not dialled)
        if not isinstance(proof, Proof) or not hmac.compare_digest(proof.mac, wanted):
            raise LinkError("the peer does not know the secret of this cluster")
        if not dialled:
            # Last, after everything that has a deadline: the peer sends requests when it has this, and a request that
            # was sent on a link that is then refused counts as one that may have run.
            await self._stream.send_all(own_proof)
        if expected is not None and other.worker != expected:
            raise LinkError(f"worker {expected} is gone: {other.worker} answers at its address")
        self._reader.max_frame = MAX_ANSWER if dialled else identity.max_request
        return other.worker


def _prove(key: bytes, own: Hello, other: Hello, *, dialled: bool) -> bytes:
    """Return the proof of the worker that said `own`. It names the side, so that a proof cannot be sent back."""
    side = b"dialled" if dialled else b"accepted"
    parts = (side, own.worker.encode(), own.nonce, other.worker.encode(), other.nonce)
    return hmac.digest(key, b"".join(b"%d:%b" % (len(part), part) for part in parts), sha256)
