"""A call: one handler at work for one request, with its clock; and the bounds that calls and sessions have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from msgspec import Struct

from mcptrio._actors.journal import Journal
from mcptrio._peer.effects import Start
from mcptrio._peer.messages import Cause
from mcptrio._struct import Entity

if TYPE_CHECKING:
    from mcptrio._actors.session import Session


class Limits(Struct, frozen=True, kw_only=True):
    """The bounds of one session."""

    inbox: int = 64
    running: int = 32
    """Handlers at work at the same time; more requests wait their turn."""
    waiting: int = 64
    """Requests that wait for their turn; past that the transport stops reading, or answers that it is overloaded."""
    call_timeout: float = 60.0
    """A handler that reports no progress for so long is ended."""
    call_timeout_hard: float = 900.0
    """A handler is ended after so long, whatever it reports; waiting for a person does not count."""
    ask_timeout: float = 600.0
    """How long a person or a model may take to answer."""
    ignore_cancel: float = 1.0
    """A cancelled handler that still runs after so long is a zombie."""
    zombies: int = 8
    """So many zombies end the session."""
    end_grace: float = 5.0
    """How long the session's own state may take to be torn down."""
    gather: float = 0.005
    """Questions that come within so long of each other leave together, where questions travel in results."""


class Call(Entity):
    """A handler at work."""

    start: Start
    session: Session
    scope: trio.CancelScope
    began: float
    hard: float
    """The moment at which it is ended in any case."""
    patience: float
    """How long it may go without progress."""
    _journal: Journal | None = None
    armed: bool = False
    """The time limit counts. It need not before the handler first waits, and a limit in force is not for nothing."""
    stopped: Cause | None = None
    stopped_at: float = 0.0
    asking: int = 0
    """How many asks wait for the peer; the clock stands still meanwhile."""
    paused_at: float = 0.0
    allowance: float = 500.0
    """Notifications that may still be sent in a burst; it refills over time."""
    refilled_at: float | None = None
    held_back: tuple[str, dict[str, Any]] | None = None
    state: Any = None
    """What the user's session function yielded for this request, where it has no session."""
    offers: Any = None
    """What the server offers to this request, where it has no session."""
    _once_locks: dict[str, trio.Lock] | None = None

    @property
    def journal(self) -> Journal:
        if self._journal is None:
            self._journal = Journal()
        return self._journal

    @property
    def ticket(self) -> str:
        return "" if self._journal is None else self._journal.ticket

    def once_lock(self, key: str) -> trio.Lock:
        if self._once_locks is None:
            self._once_locks = {}
        return self._once_locks.setdefault(key, trio.Lock())

    def arm(self) -> None:
        """The handler is about to wait for something: from now on it can be late."""
        self.armed = True
        if not self.asking:
            self.scope.deadline = self.began + self.patience

    def limit(self, timeout: float) -> None:
        """Give this call another time limit."""
        self.patience = timeout
        self.hard = max(self.hard, self.began + timeout)
        if self.armed:
            self.scope.deadline = self.began + timeout

    def extend(self) -> None:
        """Progress was made: the soft limit begins anew, the hard one stands."""
        if self.armed and not self.asking:
            self.scope.deadline = min(trio.current_time() + self.patience, self.hard)

    def pause(self) -> None:
        """The call waits for a person; that time is not its own."""
        if not self.asking:
            self.paused_at = trio.current_time()
            if self.armed:  # otherwise there is no deadline yet, and the scope may be another call's by now
                self.scope.deadline = float("inf")
        self.asking += 1

    def resume(self) -> None:
        self.asking -= 1
        if not self.asking and self.stopped is None:
            self.hard += trio.current_time() - self.paused_at
            self.extend()

    def may_notify(self) -> bool:
        """Whether another progress or log message fits the rate of 50 a second (after a burst of 500)."""
        now = trio.current_time()
        since = self.began if self.refilled_at is None else self.refilled_at
        self.allowance = min(500.0, self.allowance + (now - since) * 50)
        self.refilled_at = now
        if self.allowance < 1:
            return False
        self.allowance -= 1
        return True
