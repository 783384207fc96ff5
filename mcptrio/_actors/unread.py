"""The memory of messages that clients have not read, shared by the owners of their connections.

What waits for a client is counted where it waits: in the outbox of a stream or a socket, or in a write that the network
has not taken. At three quarters of the limit handlers that notify are blocked. Responses are never blocked, because
their calls have run; so when the limit is reached, the owner that has most loses the connection that has not moved for
longest. Its client may resume a stream, or repeat a call that only reads.

A connection that has moved in the last `STALLED_AFTER` seconds belongs to a client that reads, and is not cut for
others. So clients that read may take more than the limit together. One owner may have `OF_ONE_OWNER` times the limit,
because the answers of a client that calls many tools at once all wait before it has read one; beyond that its newest
message goes.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Final, Protocol, cast

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.shares import Owners, Shares
from mcptrio._struct import Entity

OF_ONE_OWNER: Final = 3
"""How many times the limit one owner may have unread, as long as all of its connections move."""
COPIES: Final = 2
"""Of a message that is being written: the message itself, and the bytes of its response or frame. A large one is
written in pieces, see `GuardedStream.keeping`, and exists once."""
STALLED_AFTER: Final = 5.0
"""Seconds without progress after which a connection may be cut."""


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
    _waiting: dict[Waiting, tuple[str, int, float]] = field(default_factory=dict)
    """The owner and the bytes of each, and when it moved."""
    _moved: Shares = field(default_factory=lambda: Shares(sys.maxsize))
    """These places as stored entries; the oldest one has not moved for longest."""

    def __post_init__(self) -> None:
        self.room = Shares(self.size * 3 // 4, owners=self.owners)

    def add(self, place: Waiting, amount: int) -> None:
        """Count bytes that wait from now on. If there are too many, cut a connection: `place` itself, or another."""
        if not amount:
            return
        owner, before, moved = self._waiting.get(place) or (place.owner, 0, trio.current_time())
        if before:
            self._moved.resize(place, amount)
        else:
            self._moved.add(owner, place, amount)
        self._waiting[place] = owner, before + amount, moved
        self._count(owner, amount)
        while self.used > self.size and (cut := self._to_cut(place, owner)) is not None:
            self._cut(cut)

    def take(self, place: Waiting, amount: int = 0) -> None:
        """Note that the client has read something, and that so many bytes wait no more. After a cut do nothing."""
        owner, before, _ = self._waiting.pop(place, ("", 0, 0.0))
        if not before:
            return
        amount = min(amount, before)  # after a cut another task may have counted something
        self._moved.remove(place)
        self._count(owner, -amount)
        if before > amount:
            self._waiting[place] = owner, before - amount, trio.current_time()
            self._moved.add(owner, place, before - amount)  # as the newest one: it has moved

    def has_room(self, owner: str, amount: int) -> bool:
        """Return whether so many bytes may wait besides those that the client is reading already, if it is."""
        stored = self._moved.stored(owner)
        return not stored or stored + amount <= self._most or self._stalled(owner) is not None

    def _stalled(self, owner: str) -> Waiting | None:
        """Return the connection of an owner that has not moved for longest, if that is too long."""
        place = cast(Waiting, self._moved.oldest(owner))
        return place if trio.current_time() - self._waiting[place][2] >= STALLED_AFTER else None

    def _to_cut(self, place: Waiting, owner: str) -> Waiting | None:
        """Return the connection that is cut because something was added to `place`; None if all of them may stay."""
        if len(self._waiting) == 1:  # one that is larger than the limit may wait alone
            return None
        stalled = self._stalled(self._moved.largest())
        if stalled is not None:
            return stalled
        stored = self._moved.stored(owner)
        return place if place in self._waiting and self._most < stored != self._waiting[place][1] else None

    @property
    def _most(self) -> int:
        """The bytes that one owner may have unread."""
        return OF_ONE_OWNER * self.size

    def _cut(self, place: Waiting) -> None:
        owner, amount, _ = self._waiting.pop(place)
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
