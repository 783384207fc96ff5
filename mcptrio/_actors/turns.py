"""Turns of the event loop, shared between the owners of requests.

All requests of a process share one event loop. In each turn it resumes every task that can run, so a client with 200
connections would get 200 pieces of work in a turn, and every other client one. So each owner (the key of a principal,
else the address of a client) begins two requests in a turn; its further requests wait, in order, for the next turns.
With one, the turns themselves would cost an owner of many requests more of the processor's time. An owner that has the
server for itself does not wait. A notification of a handler takes a turn as a request does, and so does a piece of
16 KiB or more that a connection reads.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import trio

from mcptrio._actors.future import Waiter

if TYPE_CHECKING:
    from mcptrio._actors.supervisor import Supervisor

_PER_TURN: Final = 2
"""Requests that an owner begins in one turn."""


class Turns(trio.abc.Instrument):
    """The requests that began in this turn, and those that wait for the next ones.

    Owns: the task that resumes waiting requests; it runs only while any waits.   Borrows: the supervisor's nursery.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.only_owner: str | None = None
        """The only owner so far. Engines do not call `take` for it."""
        self._counting = False
        self._begun: dict[str, int] = {}
        """How many requests each owner began in this turn."""
        self._waiting: dict[str, dict[Waiter, None]] = {}
        """The requests of each owner that wait, in order. They are bounded by the connections."""
        self._resuming = False

    async def take(self, owner: str) -> None:
        """Wait until the owner may begin a request; does not yield if that is now."""
        if owner != self.only_owner and not self._begin(owner):
            await self._wait(owner)

    def _begin(self, owner: str) -> bool:
        if not self._counting:
            if self.only_owner is None:
                self.only_owner = owner
                return True
            self.only_owner, self._counting = None, True
            trio.lowlevel.add_instrument(self)
        begun = self._begun.get(owner, 0)
        if begun == _PER_TURN or owner in self._waiting:
            return False
        self._begun[owner] = begun + 1
        return True

    def after_io_wait(self, timeout: float) -> None:
        """Begin a turn; Trio calls this once in each."""
        self._begun.clear()

    async def _wait(self, owner: str) -> None:
        if not self._resuming:
            try:
                self._supervisor.nursery.start_soon(self._resume)
            except RuntimeError:  # the supervisor's last task has ended; its connections may still be closing
                return
            self._resuming = True
        waiter = Waiter()
        self._waiting.setdefault(owner, {})[waiter] = None
        try:
            await waiter.park()
        except BaseException:
            self._waiting.get(owner, {}).pop(waiter, None)
            raise

    @trio.lowlevel.enable_ki_protection
    async def _resume(self) -> None:
        """Resume the first requests of each owner in each turn, until none waits."""
        try:
            while self._waiting:
                self._resume_some()
                await trio.lowlevel.checkpoint()
        finally:
            self._resuming = False
            while self._waiting:  # the server ends: the requests find that out by themselves
                self._resume_some()

    def _resume_some(self) -> None:
        for owner, waiting in list(self._waiting.items()):
            if not waiting:
                del self._waiting[owner]  # only now: a request that came in the turn of the last one has waited too
            for waiter in list(islice(waiting, _PER_TURN)):
                del waiting[waiter]
                waiter.wake()

    def close(self) -> None:
        """Count no more turns."""
        if self._counting:
            self._counting, self.only_owner = False, None
            trio.lowlevel.remove_instrument(self)
