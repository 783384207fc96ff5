"""Room for large bodies: how much of them is in memory at once.

Theory of operation. A message becomes several times its size on the way to its answer: the bytes as they come, the same
in one piece, the objects they stand for, a result, its text. So it is not enough to bound each body. Whoever has sent
more than `SMALL` bytes needs room for the whole before more is read, and keeps it until the answer is written or a
stream has begun. The others wait in line; what they send waits in the kernel, and at last in their own.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import trio
from attrs import define, field

from .message import Head

SMALL: Final = 64 * 1024


@define(eq=False, repr=False)
class _Turn:
    size: int
    woken: trio.Event = field(factory=trio.Event)
    admitted: bool = False


@define(eq=False, repr=False)
class Bodies:
    """The large bodies of one endpoint. `room` is for all of them together, `largest` for one of unknown size."""

    room: int
    largest: int
    patience: float
    used: int = 0
    _line: deque[_Turn] = field(factory=deque)

    async def enter(self, head: Head) -> bool:
        """Wait for room for the body of a request. Whoever asked has to `leave`, whatever the answer was."""
        declared = head.fields.get(b"content-length")
        size = self.largest if declared is None else int(declared)
        if not self._line and self._fits(size):
            self.used += size
            head.room = size
            return True
        turn = _Turn(size)
        self._line.append(turn)
        try:
            with trio.move_on_after(self.patience):
                await turn.woken.wait()
        finally:
            if turn.admitted:
                head.room = size
            else:
                self._line.remove(turn)
                self._admit()  # it may have been the one that was too large for what is free
        return turn.admitted

    def leave(self, head: Head) -> None:
        """Give the room of a request back, if it has any."""
        if head.room:
            self.used -= head.room
            head.room = 0
            self._admit()

    def _fits(self, size: int) -> bool:
        return self.used + size <= self.room or not self.used  # one that is larger than the room has it alone

    def _admit(self) -> None:
        while self._line and self._fits(self._line[0].size):
            turn = self._line.popleft()
            self.used += turn.size
            turn.admitted = True
            turn.woken.set()
