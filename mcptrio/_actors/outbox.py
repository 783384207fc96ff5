"""The bounded outbox of links that share a pipe."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import trio
from msgspec import field

from mcptrio._actors.future import Waiter
from mcptrio._actors.unread import Unread
from mcptrio._struct import Entity
from mcptrio.errors import ConnectionLost

_PER_ITEM: Final = 100  # overhead of one item in bytes
_AT_ONCE: Final = 64 * 1024
_CHANGES: Final = tuple(
    b'{"jsonrpc":"2.0","method":"notifications/%b"' % name
    for name in (b"resources/updated", b"resources/list_changed", b"tools/list_changed", b"prompts/list_changed")
)
"""The beginnings of notifications that announce a change. They are posted without waiting for room."""
_MAX_CHANGES: Final = 1100
"""Announcements that wait besides the usual items: those of all lists, and of the resources that a session may be
subscribed to. More of them differ in their metadata only."""


class Outbox(Entity):
    """Frames that are posted and not yet written: many producers that never block, one consumer.

    Bounded for producers that call `room` first (progress, logs, a client's requests, a server's reader of the same
    pipe). Responses always enter; a server's are bounded too, since each belongs to an admitted request.
    """

    max_items: int = 256
    max_bytes: int = 1024 * 1024
    unread: Unread | None = None
    """Bytes that wait for all clients; when the owner has no share left, an outbox takes one item at a time."""
    owner: str = ""
    on_cut: Callable[[], None] | None = None
    """Ends the connection that the messages wait for."""
    full: bool = False
    """Whether a bound is reached. An item larger than the bound enters an empty queue alone."""
    idle: bool = False
    """Whether the consumer waits, so that a frame may as well be written directly."""
    _items: deque[bytes] = field(default_factory=deque)
    _bytes: int = 0
    _closed: bool = False
    _consumer: Waiter = field(default_factory=Waiter)
    _waiting_for_room: trio.lowlevel.ParkingLot | None = None

    @property
    def weight(self) -> int:
        """The approximate memory that the waiting frames take, in bytes."""
        return self._bytes + _PER_ITEM * len(self._items)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def empty(self) -> bool:
        return not self._items

    def put(self, item: bytes) -> None:
        """Queue an item. Of equal announcements of a change, one waits at a time."""
        if self._closed or (item.startswith(_CHANGES) and self._is_announced(item)):
            return
        self._items.append(item)
        self._resize(len(item))
        self.idle = False
        self._consumer.wake()

    def _is_announced(self, change: bytes) -> bool:
        return change in self._items or len(self._items) >= self.max_items + _MAX_CHANGES

    def _resize(self, size: int) -> None:
        self._bytes += size
        self.full = len(self._items) >= self.max_items or self._bytes >= self.max_bytes
        if self.unread is not None and size:
            if size > 0:
                self.unread.add(self, size)
            else:
                self.unread.take(self, -size)
            self.full = self.full or (self._bytes > 0 and not self.unread.room.has_room(self.owner, 1))

    def close(self) -> None:
        """Accept no more items; the consumer takes what is left and then sees the end."""
        self._closed = True
        self._consumer.wake()
        if self._waiting_for_room is not None:
            self._waiting_for_room.unpark_all()

    def drop(self) -> None:
        """Accept no more items and forget those that wait: the consumer is gone."""
        self.close()
        self._clear()
        self.on_cut = None

    def _clear(self) -> None:
        self._items.clear()
        self._resize(-self._bytes)

    def cut(self) -> None:
        """Drop everything, and end the connection, because its client does not read."""
        on_cut = self.on_cut
        self.drop()
        if on_cut is not None:
            on_cut()

    async def take_some(self, at_most: int = _AT_ONCE) -> list[bytes]:
        """Return the first items up to `at_most` bytes, at least one. What is left stays here, where it is counted.

        Raises:
            ConnectionLost: the outbox was closed and is empty.
        """
        if not self._items and not self._closed:
            self.idle = True
            try:
                await self._consumer.park()
            finally:
                self.idle = False
        else:
            await trio.lowlevel.checkpoint()
        if not self._items:
            raise ConnectionLost("the outbox is closed")
        if self._bytes <= at_most:
            items = list(self._items)
            self._clear()
        else:
            items, size = [], 0
            while size < at_most:
                items.append(self._items.popleft())
                size += len(items[-1])
            self._resize(-size)
        if self._waiting_for_room is not None and not self.full:
            self._waiting_for_room.unpark_all()
        return items

    async def room(self) -> None:
        while self.full and not self._closed:
            if self._waiting_for_room is None:
                self._waiting_for_room = trio.lowlevel.ParkingLot()
            await self._waiting_for_room.park()
