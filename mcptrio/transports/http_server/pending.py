"""What a POST is before it is known how it is answered: the part that both lives share.

A link is posted to by a session and waited for by a shell. It begins undecided; an answer that comes first is plain
JSON, anything else, or time, turns it into a stream.
"""

from __future__ import annotations

import enum

import trio

from mcptrio._struct import Entity

from .message import Head


class Phase(enum.Enum):
    """What became of a POST."""

    PENDING = enum.auto()
    ANSWERED = enum.auto()
    """With JSON."""
    STREAMING = enum.auto()
    OVER = enum.auto()
    """Nothing more will come: cancelled, or nobody waits."""


class Pending(Entity, kw_only=True):
    """The link of one POST, as far as one task waits to know what becomes of it."""

    head: Head
    shared: bool = False
    phase: Phase = Phase.PENDING
    answer: bytes = b""
    status: int = 200
    _waiter: trio.lowlevel.Task | None = None

    @property
    def undecided(self) -> bool:
        return self.phase is Phase.PENDING

    def _settle(self, phase: Phase) -> None:
        self.phase = phase
        if self._waiter is not None:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            trio.lowlevel.reschedule(self._waiter)
            self._waiter = None

    async def _wait(self) -> None:
        self._waiter = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abandon)

    def _abandon(self, _: object) -> trio.lowlevel.Abort:
        self._waiter = None
        return trio.lowlevel.Abort.SUCCEEDED
