"""One connection between two workers: frames in both directions, and the greeting that proves who the peer is."""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import trio
from msgspec import Struct

from mcptrio._actors.future import Waiter
from mcptrio.cluster.frames import PROTOCOL, FrameReader, Hello, LinkError, LinkFrame, Proof, pack_frame

MAX_UNSENT: Final = 16 * 2**20
CHUNK: Final = 64 * 1024
BROKEN: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, LinkError)


class LinkIdentity(Struct, frozen=True):
    """The name of a worker, and the key by which the workers of a cluster know each other."""

    worker: str
    cluster: str
    key: bytes
    max_frame: int

    @classmethod
    def derive(cls, worker: str, cluster: str, secret: bytes, max_frame: int) -> LinkIdentity:
        """Derive the key from the secret of the store."""
        return cls(worker, cluster, hmac.digest(secret, b"mcptrio cluster link", sha256), max_frame)


class FrameChannel:
    """Frames over a stream. One task runs `write`, another one calls `receive`."""

    def __init__(self, stream: trio.abc.Stream, max_frame: int) -> None:
        self._stream = stream
        self._reader = FrameReader(max_frame)
        self._read: list[LinkFrame] = []
        self._unsent = bytearray()
        self._writer = Waiter()

    def send_nowait(self, frame: LinkFrame) -> bool:
        """Queue a frame; return False if too much waits already."""
        data = pack_frame(frame)
        if self._unsent and len(self._unsent) + len(data) > MAX_UNSENT:
            return False
        self._unsent += data
        self._writer.wake()
        return True

    async def write(self) -> None:
        """Send what is queued, until cancelled.

        Raises:
            OSError, trio.BrokenResourceError: the connection is lost.
        """
        while True:
            if self._unsent:
                data, self._unsent = self._unsent, bytearray()
                await self._stream.send_all(data)
            else:
                await self._writer.park()

    async def receive(self) -> Sequence[LinkFrame] | None:
        """Wait for frames; None at the end.

        Raises:
            OSError, trio.BrokenResourceError: the connection is lost.
            LinkError: the peer sent something that is no frame.
        """
        while not self._read:
            data = await self._stream.receive_some(CHUNK)
            if not data:
                return None
            self._read = self._reader.feed(bytes(data))
        frames, self._read = self._read, []
        return frames

    async def greet(self, identity: LinkIdentity, *, dialled: bool, expected: str | None = None) -> str:
        """Exchange greetings and proofs, before any other frame; return the id of the peer.

        Raises:
            OSError, trio.BrokenResourceError: the connection is lost.
            LinkError: the peer is no worker of this cluster, or not the expected one.
        """
        own = Hello(identity.worker, identity.cluster, PROTOCOL, os.urandom(32))
        await self._stream.send_all(pack_frame(own))
        other = await self._receive_one()
        if not isinstance(other, Hello):
            raise LinkError("the peer did not greet")
        if (other.protocol, other.cluster) != (PROTOCOL, identity.cluster) or len(other.nonce) != 32:
            raise LinkError("the peer belongs to another cluster, or speaks another version of this protocol")
        await self._stream.send_all(pack_frame(Proof(_prove(identity.key, own, other, dialled=dialled))))
        proof = await self._receive_one()
        wanted = _prove(identity.key, other, own, dialled=not dialled)
        if not isinstance(proof, Proof) or not hmac.compare_digest(proof.mac, wanted):
            raise LinkError("the peer does not know the secret of this cluster")
        if expected is not None and other.worker != expected:
            raise LinkError(f"worker {expected} is gone: {other.worker} answers at its address")
        return other.worker

    async def _receive_one(self) -> LinkFrame:
        frames = await self.receive()
        if frames is None:
            raise LinkError("the peer closed the connection instead of greeting")
        self._read = [*frames[1:]]
        return frames[0]


def _prove(key: bytes, own: Hello, other: Hello, *, dialled: bool) -> bytes:
    """Return the proof of the worker that said `own`. It names the side, so that a proof cannot be sent back."""
    side = b"dialled" if dialled else b"accepted"
    parts = (side, own.worker.encode(), own.nonce, other.worker.encode(), other.nonce)
    return hmac.digest(key, b"".join(b"%d:%b" % (len(part), part) for part in parts), sha256)
