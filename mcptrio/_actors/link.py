"""A link: where a session's frames go. And the bounded outbox that links over one pipe share."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

import trio
from msgspec import field

from mcptrio._struct import Entity
from mcptrio.errors import LinkClosed

_PER_ITEM: Final = 100  # bytes that an item takes beside its own


class Link(Protocol):
    """Takes encoded frames and never waits.

    A session posts from its loop, so a stalled reader must not be able to delay a cancel. A link that cannot get rid of
    its frames hangs up; it does not push back on the loop, only on those who call `room` first.
    """

    shared: bool
    """Other requests are answered on it too (a pipe), or it stands for one request (an HTTP POST)."""

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        """Send a frame. `final` is the answer that the link was waiting for."""
        ...

    def end(self) -> None:
        """Nothing more will be posted."""
        ...

    async def room(self) -> None:
        """Wait until another notification may be posted without overfilling the link."""
        ...


class Outbox(Entity):
    """What is posted and not yet written: many producers that never wait, one consumer.

    Bounded for those who ask with `room` (progress, logs, a client's requests, and a server's reader of the same pipe).
    Answers always enter; those of a server are bounded too, since each belongs to a request that was let in.
    """

    max_items: int = 256
    max_bytes: int = 1024 * 1024
    _items: deque[bytes] = field(default_factory=deque)
    _bytes: int = 0
    _closed: bool = False
    _consumer: trio.lowlevel.Task | None = None
    _waiting_for_room: trio.lowlevel.ParkingLot | None = None

    @property
    def full(self) -> bool:
        # An item larger than the bound enters an empty queue alone.
        return len(self._items) >= self.max_items or self._bytes >= self.max_bytes

    @property
    def weight(self) -> int:
        """About how many bytes of memory all that waits takes."""
        return self._bytes + _PER_ITEM * len(self._items)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def empty(self) -> bool:
        return not self._items

    @property
    def idle(self) -> bool:
        """The consumer waits for something to do: what would be put may as well be written past it."""
        return self._consumer is not None

    def put(self, item: bytes) -> None:
        if self._closed:
            return
        self._items.append(item)
        self._bytes += len(item)
        self._wake()

    def close(self) -> None:
        """No more items; the consumer takes what is left and then sees the end."""
        self._closed = True
        self._wake()
        if self._waiting_for_room is not None:
            self._waiting_for_room.unpark_all()

    def clear(self) -> None:
        """Forget what waits."""
        self._items.clear()
        self._bytes = 0

    def _wake(self) -> None:
        if self._consumer is not None:
            trio.lowlevel.reschedule(self._consumer)
            self._consumer = None

    def _abandon(self, _: object) -> trio.lowlevel.Abort:
        self._consumer = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def take_all(self, at_most: int | None = None) -> list[bytes]:
        """Everything that waits, or what comes first of it until there are `at_most` bytes; at least one item.

        Raises:
            LinkClosed: the outbox was closed and is empty.
        """
        if not self._items and not self._closed:
            self._consumer = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abandon)
        else:
            await trio.lowlevel.checkpoint()
        if not self._items:
            raise LinkClosed("the outbox is closed")
        if at_most is None or self._bytes <= at_most:
            items = list(self._items)
            self._items.clear()
            self._bytes = 0
        else:
            items, size = [], 0
            while size < at_most:
                items.append(self._items.popleft())
                size += len(items[-1])
            self._bytes -= size
        if self._waiting_for_room is not None and not self.full:
            self._waiting_for_room.unpark_all()
        return items

    async def room(self) -> None:
        while self.full and not self._closed:
            if self._waiting_for_room is None:
                self._waiting_for_room = trio.lowlevel.ParkingLot()
            await self._waiting_for_room.park()
