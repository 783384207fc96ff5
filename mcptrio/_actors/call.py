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
    """Messages that wait for the session's loop; past that whoever posts has to wait. It only smooths bursts, so
    there is seldom a reason to change it."""
    running: int = 32
    """Handlers at work at the same time; more requests wait their turn. Lower it to spare what the handlers work
    with."""
    waiting: int = 64
    """Requests that wait for their turn; past that the transport stops reading, or answers that it is overloaded."""
    call_timeout: float = 60.0
    """Seconds after which a handler that reports no progress is ended; a tool's own `timeout` is better where only
    one is slow."""
    call_timeout_hard: float = 900.0
    """Seconds after which a handler is ended, whatever it reports; waiting for a person does not count. Raise it
    for work of hours, or make the tool a task."""
    ask_timeout: float = 600.0
    """Seconds that a person or a model may take to answer what a handler asks."""
    ignore_cancel: float = 1.0
    """A cancelled handler that still runs after so many seconds is a zombie: it shields itself, or blocks in a
    thread."""
    zombies: int = 8
    """So many zombies end the session, since each holds something that nobody gets back."""
    end_grace: float = 5.0
    """Seconds that the session's own state may take to be torn down; raise it where a session's lifespan closes
    slow things."""
    gather: float = 0.005
    """Questions that come within so many seconds of each other leave together, where questions travel in results;
    each such turn costs the client a request."""
    notify_rate: float = 50.0
    """Progress and log messages a second that a call may send; the newest progress takes the place of what is held."""
    notify_burst: int = 500
    """How many of them it may send before the rate counts."""


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
    notified: float = 0.0
    """Notifications that count against the burst: fewer as time passes."""
    notified_at: float = 0.0
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
        """Whether another progress or log message fits the burst and the rate."""
        limits, now = self.session.service.limits, trio.current_time()
        self.notified = max(0.0, self.notified - (now - self.notified_at) * limits.notify_rate) + 1
        self.notified_at = now
        if self.notified > limits.notify_burst:
            self.notified -= 1
            return False
        return True
