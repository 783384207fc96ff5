"""Memory for the large messages of one WebSocket, from the table that HTTP bodies use too.

Theory of operation. The length of a WebSocket message is unknown until its end. So when more than `SMALL` bytes of it
have arrived, the socket reserves the maximum size and reads no more until it has that. The rest must then arrive at
the rate of an HTTP body. When the message is complete, its reservation shrinks to its real size, and ends when the
session has handled the message. One socket may hold three: a message that is being handled, one that waits for that,
and one that is arriving.
"""

from __future__ import annotations

from collections import deque

import trio
from attrs import define, field

from .admission import Admission


@define(eq=False, repr=False)
class MessageMemory:
    """The reservations of one WebSocket in `Admission.body_memory`. Its creator has to `close` it."""

    _admission: Admission
    _owner: str
    closed: bool = False
    _sizes: deque[int] = field(factory=deque)
    """The reserved bytes of each message, oldest first."""
    _reserved_at: float = 0.0
    _waiting: trio.CancelScope | None = None

    @property
    def size(self) -> int:
        """The maximum size of a message, which is what it reserves."""
        return self._admission.config.websocket_max_message

    async def reserve(self) -> bool:
        """Wait for memory for a message that is arriving; return False if there is none in time, or after `close`."""
        if self.closed:
            return False
        reserved, size, table = False, self.size, self._admission.body_memory
        # Longer than a request waits: without memory the whole session ends, with all its calls.
        timeout = self._admission.config.body_timeout
        with trio.CancelScope() as scope:
            self._waiting = scope
            reserved = await table.wait(self._owner, size, timeout=timeout)
        self._waiting = None
        if reserved and scope.cancel_called:  # by `close`, at the same moment
            table.give_back(self._owner, size)
            return False
        if reserved:
            self._sizes.append(size)
            self._reserved_at = trio.current_time()
        return reserved

    def deadline(self, arrived: int) -> float:
        """Return by when more must arrive of the message that reserved last, and of which `arrived` bytes are there."""
        return self._admission.body_deadline(self._reserved_at, arrived)

    def complete(self, size: int) -> None:
        """Keep only the real size of the message that reserved last."""
        if not self.closed and size < self._sizes[-1]:
            surplus = self._sizes[-1] - size
            self._sizes[-1] = size
            self._admission.body_memory.give_back(self._owner, surplus)

    def handled(self) -> None:
        """Give the memory of the oldest message back."""
        if not self.closed:
            self._admission.body_memory.give_back(self._owner, self._sizes.popleft())

    def close(self) -> None:
        """Give everything back, and end a wait for more."""
        if self.closed:
            return
        self.closed = True
        while self._sizes:
            self._admission.body_memory.give_back(self._owner, self._sizes.popleft())
        if self._waiting is not None:
            self._waiting.cancel()
