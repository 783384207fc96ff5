"""Fair shares of what is shared: no owner of entries in a bounded table can lock the other owners out.

The owner of an entry is the key of a principal, else the address of a client. While a table has room, one owner may use
all of it. When it is full, there are two policies:

- *Places* (calls, bodies, threads, listeners, running tasks) are waited for. A place that becomes free goes to the
  waiting owners in turn. An owner that holds a quarter of the places gets no further one while another owner waits.
  What an owner holds cannot be taken back, and a place may be held for minutes. So as soon as the server has a second
  owner, the last quarter of it is kept for owners that hold less than a quarter, and no owner can hold all of it.
- *Stored entries* (parked calls, tasks, marks, sessions, events) make room: the owner that has most loses its oldest
  entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from heapq import heappop, heappush

import trio
from msgspec import field

from mcptrio._actors.future import Waiter
from mcptrio._struct import Entity


def owner_of(address: tuple[str, int] | None) -> str:
    """Return the owner of what a client without a principal uses. No principal has such a key."""
    return f"\0{address[0]}" if address else "\0"


class Owners(Entity):
    """Whether a server has several owners of places. The tables of a server share it: an owner that asks one of them
    for the first time must not find that another has taken all of it."""

    several: bool = False
    """Set it from the start where places are held for hours."""
    _first: str | None = None

    def see(self, owner: str) -> None:
        if owner != self._first and not self.several:
            self.several = self._first is not None
            self._first = owner


class Shares(Entity):
    """The entries of one bounded table, counted by owner."""

    size: int
    """Entries, or units such as bytes, that the table has room for."""
    max_waiting: int = 1024
    """Requests that may wait for a place; beyond it the owner with the longest queue loses its last one."""
    owners: Owners = field(default_factory=Owners)
    used: int = 0
    waiting: int = 0
    held: dict[str, int] = field(default_factory=dict)
    """By owner; owners that hold nothing are not in it."""
    reserved: dict[str, int] = field(default_factory=dict)
    """By owner, units that are in use and never given back one by one: calls of sessions with their own connection."""
    _queues: dict[str, deque[_WaitingRequest]] = field(default_factory=dict)
    """The waiting requests of each owner; the order of the owners is the order of their turns."""
    _entries: dict[str, dict[Hashable, None]] = field(default_factory=dict)
    """The stored entries of each owner, oldest first."""
    _owners: dict[Hashable, tuple[str, int]] = field(default_factory=dict)
    """The owner and the amount of each stored entry."""
    _stored: dict[str, int] = field(default_factory=dict)
    """The amount of the stored entries of each owner."""
    _largest: list[tuple[int, str]] = field(default_factory=list)
    """A heap of owners by the amount of their stored entries; outdated items are skipped."""

    def __len__(self) -> int:
        """Return the number of stored entries."""
        return len(self._owners)

    # -- places

    def take(self, owner: str, amount: int = 1) -> bool:
        """Take a place without waiting; return False if there is none."""
        if not self.has_room(owner, amount):
            return False
        self.take_anyway(owner, amount)
        return True

    def has_room(self, owner: str, amount: int = 1) -> bool:
        """Return whether `take` would get a place: there is room, and no waiting owner has the turn before this one."""
        self.owners.see(owner)
        return self._fits(owner, amount) and (not self._queues or self._goes_first(owner))

    async def wait(self, owner: str, amount: int = 1, *, timeout: float) -> bool:
        """Take a place, waiting up to `timeout` seconds for it; return whether there was one."""
        if self.take(owner, amount):
            return True
        if self.waiting >= self.max_waiting and not self._drop_last(owner):
            return False
        place = _WaitingRequest(amount)
        self._queues.setdefault(owner, deque()).append(place)
        self.waiting += 1
        self.admit()
        try:
            if not place.granted:
                with trio.move_on_after(timeout):
                    await place.waiter.park()
        except BaseException:
            self._forget(owner, place)
            if place.granted:  # at the same moment: it goes to the next owner
                self.give_back(owner, amount)
            raise
        self._forget(owner, place)
        return place.granted

    def take_anyway(self, owner: str, amount: int) -> None:
        """Take places for something that is there already, whether there is room or not; see `has_room`."""
        self.used += amount
        self.held[owner] = self.held.get(owner, 0) + amount

    def give_back(self, owner: str, amount: int = 1) -> None:
        """Give a place back; it goes to the owner whose turn it is."""
        self.used -= amount
        left = self.held[owner] - amount
        if left:
            self.held[owner] = left
        else:
            del self.held[owner]
        if self._queues:
            self.admit()

    def admit(self) -> None:
        """Give free places to waiting requests, one owner after the other."""
        while (owner := self._next_owner()) is not None:
            queue = self._queues.pop(owner)
            place = queue.popleft()
            if queue:
                self._queues[owner] = queue  # behind the others
            self.waiting -= 1
            place.granted = True
            self.take_anyway(owner, place.amount)
            place.waiter.wake()

    def claimed(self, owner: str) -> int:
        """Return what an owner holds and waits for."""
        return self.held.get(owner, 0) + sum(place.amount for place in self._queues.get(owner, ()))

    def _next_owner(self) -> str | None:
        """Return the owner whose turn it is, if its request fits.

        Owners that hold less than a quarter come first. One of them whose request does not fit lets the others of them
        pass, because a large request could otherwise lock them out.
        """
        if not self._queues or self._taken >= self.size:
            return None
        small = False
        for owner, queue in self._queues.items():
            if self._is_small(owner):
                small = True
                if self._fits(owner, queue[0].amount):
                    return owner
        first = next(iter(self._queues))
        return None if small or not self._fits(first, self._queues[first][0].amount) else first

    def _goes_first(self, owner: str) -> bool:
        """Return whether an owner may pass the waiting ones: it holds less than a quarter, and none of them is it."""
        return self._is_small(owner) and owner not in self._queues

    def _is_small(self, owner: str) -> bool:
        return (self.held.get(owner, 0) + self.reserved.get(owner, 0)) * 4 < self.size

    def _fits(self, owner: str, amount: int) -> bool:
        if self.owners.several and not self._is_small(owner):
            amount += self.size // 4
        return self._taken + amount <= self.size or not self._taken  # one larger than the table is let in alone

    @property
    def _taken(self) -> int:
        return self.used + sum(self.reserved.values()) if self.reserved else self.used

    def _drop_last(self, owner: str) -> bool:
        """Refuse the last waiting request of the longest queue; return False if that is the owner's own."""
        longest = max(self._queues, key=lambda name: len(self._queues[name]))
        if len(self._queues[longest]) <= len(self._queues.get(owner, ())):
            return False
        last = self._queues[longest][-1]
        self._forget(longest, last)
        last.waiter.wake()
        return True

    def _forget(self, owner: str, place: _WaitingRequest) -> None:
        queue = self._queues.get(owner)
        if queue is None or place not in queue:
            return
        queue.remove(place)
        self.waiting -= 1
        if not queue:
            del self._queues[owner]
        self.admit()  # it may have been larger than the free room

    # -- stored entries

    def add(self, owner: str, entry: Hashable, amount: int = 1) -> Hashable | None:
        """Count a stored entry; return the entry that had to make room for it, or None."""
        gone = None
        if self._owners and len(self._owners) >= self.size:
            gone = self.first_to_go(owner, amount)
            self.remove(gone)
        self._entries.setdefault(owner, {})[entry] = None
        self._owners[entry] = owner, amount
        self._count(owner, amount)
        return gone

    def remove(self, entry: Hashable) -> None:
        """Forget a stored entry; unknown ones are ignored."""
        if entry not in self._owners:
            return
        owner, amount = self._owners.pop(entry)
        del self._entries[owner][entry]
        self._count(owner, -amount)

    def resize(self, entry: Hashable, change: int) -> None:
        """Change the amount of a stored entry."""
        owner, amount = self._owners[entry]
        self._owners[entry] = owner, amount + change
        self._count(owner, change)

    def _count(self, owner: str, amount: int) -> None:
        if not self._entries[owner]:
            del self._entries[owner], self._stored[owner]
            return
        self._stored[owner] = self._stored.get(owner, 0) + amount
        heappush(self._largest, (-self._stored[owner], owner))
        if len(self._largest) > 4 * len(self._stored) + 64:
            self._largest = sorted((-stored, name) for name, stored in self._stored.items())

    def stored(self, owner: str) -> int:
        """Return the amount of the stored entries of an owner."""
        return self._stored.get(owner, 0)

    def first_to_go(self, owner: str, amount: int = 1) -> Hashable:
        """Return the entry that makes room for a new one: the oldest of the owner that would have most."""
        largest = self.largest()
        stored = self.stored(owner)
        return self.oldest(owner if stored and stored + amount > self.stored(largest) else largest)

    def oldest(self, owner: str) -> Hashable:
        """Return the oldest stored entry of an owner that has any."""
        return next(iter(self._entries[owner]))

    def of_owner(self, owner: str) -> Iterable[Hashable]:
        """Return the stored entries of an owner, oldest first."""
        return self._entries.get(owner, ())

    def largest_first(self) -> list[str]:
        """Return the owners of stored entries, the one that has most first."""
        return sorted(self._stored, key=self._stored.__getitem__, reverse=True)

    def largest(self) -> str:
        """Return the owner that has most stored; an empty text if there are no entries."""
        while self._largest:
            stored, owner = self._largest[0]
            if self._stored.get(owner) == -stored:
                return owner
            heappop(self._largest)
        return ""


class _WaitingRequest(Entity):
    """A request that waits for a place."""

    amount: int
    granted: bool = False
    waiter: Waiter = field(default_factory=Waiter)
