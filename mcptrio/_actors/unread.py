"""The memory of messages that clients have not read, shared by the owners of their connections.

What waits for a client is counted where it waits: in the outbox of a stream or a socket, or in a write that the network
has not taken. At three quarters of the limit handlers that notify are blocked. Responses are never blocked, because
their calls have run; so when the limit is reached, the owner that has most loses the connection that has not moved for
longest. Its client may resume a stream, or repeat a call that only reads.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Protocol, cast

from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.shares import Owners, Shares
from mcptrio._struct import Entity


class Waiting(Hashable, Protocol):
    """A place where messages wait for one client."""

    @property
    def owner(self) -> str:
        """The key of its principal, else its address."""
        ...

    def cut(self) -> None:
        """Drop what waits, and end the connection. It must not wait."""
        ...


class Unread(Entity):
    """The bytes that wait for all clients together."""

    size: int
    hub: telemetry.Hub = field(default_factory=telemetry.Hub)
    owners: Owners = field(default_factory=Owners)
    room: Shares = None  # type: ignore[assignment]  # set in `__post_init__`
    """Room for notifications. Streams of a store count here what a connection of theirs has not taken."""
    used: int = 0
    _waiting: dict[Waiting, tuple[str, int]] = field(default_factory=dict)
    """The owner and the bytes of each."""
    _moved: Shares = field(default_factory=lambda: Shares(sys.maxsize))
    """These places as stored entries; the oldest one has not moved for longest."""

    def __post_init__(self) -> None:
        self.room = Shares(self.size * 3 // 4, owners=self.owners)

    def add(self, place: Waiting, amount: int) -> None:
        """Count bytes that wait from now on. If there are too many, cut a connection: `place` itself, or another."""
        if not amount:
            return
        owner, before = self._waiting.get(place, (place.owner, 0))
        if before:
            self._moved.resize(place, amount)
        else:
            self._moved.add(owner, place, amount)
        self._waiting[place] = owner, before + amount
        self._count(owner, amount)
        while self.used > self.size and len(self._waiting) > 1:  # one that is larger than the limit may wait alone
            self._cut(cast(Waiting, self._moved.oldest(self._moved.largest())))

    def take(self, place: Waiting, amount: int = 0) -> None:
        """Note that the client has read something, and that so many bytes wait no more. After a cut do nothing."""
        owner, before = self._waiting.pop(place, ("", 0))
        if not before:
            return
        self._moved.remove(place)
        self._count(owner, -amount)
        if before > amount:
            self._waiting[place] = owner, before - amount
            self._moved.add(owner, place, before - amount)  # as the newest one: it has moved

    def _cut(self, place: Waiting) -> None:
        owner, amount = self._waiting.pop(place)
        self._moved.remove(place)
        self._count(owner, -amount)
        if self.hub:
            self.hub.emit(telemetry.LimitHit(name="max_outbox_memory"))
        place.cut()

    def _count(self, owner: str, amount: int) -> None:
        self.used += amount
        if amount > 0:
            self.room.take_anyway(owner, amount)
        else:
            self.room.give_back(owner, -amount)
