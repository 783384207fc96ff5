"""A call: one running handler and its time limit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.journal import Journal
from mcptrio._actors.places import Place, ThreadPlace, give_back, take_again
from mcptrio._peer.effects import Start
from mcptrio._peer.era import Role
from mcptrio._peer.ledger import memory_to_gather
from mcptrio._peer.messages import Cause, Failed, Outcome
from mcptrio._struct import Entity
from mcptrio._wire.sized import size_of
from mcptrio.errors import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcptrio._actors.service import Actor

_NO_ROOM = Failed(
    INTERNAL_ERROR,
    "the call has run, but its answer was dropped: the answers of its batch take too much memory "
    "(Limits.max_call_memory); send large calls alone",
    {"mayHaveRun": True},
)


class Call(Entity):
    """One running handler."""

    start: Start
    session: Actor
    scope: trio.CancelScope
    began: float
    hard: float
    """When it is cancelled whatever it reports."""
    soft: float
    """Seconds that it may go without progress."""
    name: str = ""
    """The name of its task."""
    ticket: str | None = None
    """The state that the journal came in, if another process may have used it already."""
    refused: bool = False
    """Whether that state was used before, so that the end of this call says nothing about it."""
    _journal: Journal | None = None
    stopped: Cause | None = None
    stopped_at: float = 0.0
    asking: int = 0
    """Asks that wait for the peer. The deadline is paused meanwhile."""
    paused_at: float = 0.0
    asked: float = 0.0
    """Seconds for which it has waited for the peer."""
    queued: float = 0.0
    """Seconds for which it has waited for a place."""
    serial: int = field(default_factory=count(1).__next__)
    """Its number in this process, for telemetry."""
    entry: str | None = None
    """The declared URI or template of the resource that it reads, for telemetry."""
    notified: float = 0.0
    """Notifications that count against the burst; it shrinks as time passes."""
    notified_at: float = 0.0
    held_back: dict[str, Any] | None = None
    """Parameters of the latest progress, without its token, if it exceeded the rate."""
    state: Any = None
    """The value of the user's session function for this request, if it is stateless."""
    offers: Any = None
    """The capabilities that the server offers to this request, if it is stateless."""
    places: list[Place | ThreadPlace] = field(default_factory=list)
    """Slots of limiters, in the order in which they were taken. They are given back while the call is asking."""
    background: set[trio.CancelScope] | None = None
    """The background tasks that end with this request, if it is stateless."""
    memory: int = 0
    """Bytes that count for it now; a parked call counts in another table."""
    first: int = 0
    """Bytes of its first request."""
    kept: int = 0
    """Bytes that its handler keeps also while it serves a retry: the first request, and all answers of the client."""
    over: bool = False
    ends_session: str | None = None
    """Why the session ends after this call."""

    @property
    def journal(self) -> Journal:
        if self._journal is None:
            self._journal = Journal()
        return self._journal

    def use(self, journal: Journal) -> None:
        """Replay the call with the journal of an earlier run."""
        self._journal, self.ticket = journal, journal.ticket or None

    def end_tasks(self) -> None:
        """Cancel the background tasks of a request that is over."""
        for scope in tuple(self.background or ()):
            scope.cancel()

    # -- its memory

    def charge(self, *, retry: bool = False) -> None:
        """Count the memory of its request. The transport has made sure that there is room for it."""
        size = size_of(self.start.params)
        self.keep(self.kept + size)
        if not retry:
            self.first = self.kept = size
        else:  # it has the arguments of the first request, and further answers
            self.kept += max(0, size - self.first)

    def keep(self, size: int) -> None:
        """Count bytes that it keeps until it ends."""
        if size:
            self.memory += size
            self.session.runtime.call_memory.take_anyway(self.session.owner, size)

    def release(self) -> None:
        """Give its memory back."""
        if self.memory:
            self.session.runtime.call_memory.give_back(self.session.owner, self.memory)
            self.memory = 0

    # -- its time limit

    def limit(self, timeout: float) -> None:
        """Set the timeout of this call, counted from now."""
        self.soft = timeout
        self.hard = max(self.hard, trio.current_time() + timeout)
        self._start_clock()

    def extend(self) -> None:
        """Restart the soft timeout after progress; the hard one stays."""
        # Moving a Trio deadline costs as much as the rest of a progress call, so it may be early by a hundredth.
        if trio.current_time() + 0.99 * self.soft > self.scope.deadline:
            self._start_clock()

    def _start_clock(self) -> None:
        if not self.asking:
            self.scope.deadline = min(trio.current_time() + self.soft, self.hard)

    def pause(self) -> None:
        """Stop the clock and give back the places while the call waits for the user."""
        if not self.asking:
            give_back(self.places)
            self.paused_at = trio.current_time()
            self.scope.deadline = float("inf")
        self.asking += 1

    def resume(self) -> None:
        """Start the clock again."""
        self.asking -= 1
        if not self.asking:
            paused = trio.current_time() - self.paused_at
            self.asked += paused
            if self.stopped is None:
                self.hard += paused
                self._start_clock()

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Stop the clock and give back the places of the call while a task of it waits for the user.

        Raises:
            Overloaded: the task is being cancelled, may catch that, and its place is not free.
        """
        self.pause()
        timeout: float | None = self.session.service.limits.busy_timeout
        try:
            yield
            timeout = None
        except Exception:
            timeout = None
            raise
        finally:
            self.resume()
            if self.places and not self.asking and not self.scope.cancel_called:
                await take_again(self.places, timeout=timeout)

    def with_token(self, progress: dict[str, Any]) -> dict[str, Any]:
        """Add the token of the present request, which is another one after each round of questions."""
        return {"progressToken": self.start.progress_token, **progress}

    def may_notify(self) -> bool:
        """Count a progress or log message; return False if it exceeds the burst and the rate."""
        limits, now = self.session.service.limits, trio.current_time()
        self.notified = max(0.0, self.notified - (now - self.notified_at) * limits.notify_rate) + 1
        self.notified_at = now
        if self.notified > limits.notify_burst:
            self.notified -= 1
            return False
        return True


def fitting(session: Actor, number: int, outcome: Outcome) -> Outcome:
    """Return an outcome, or an error if it has to wait for the rest of its batch and there is no memory for it."""
    entry = session.peer.ledger.calls.get(number)
    if entry is None or entry.group is None or isinstance(outcome, Failed) or session.service.role is not Role.SERVER:
        return outcome
    if session.runtime.call_memory.has_room(session.owner, memory_to_gather(outcome.result)):
        return outcome
    if hub := session.service.telemetry:
        hub.emit(telemetry.LimitHit(name="max_call_memory", session=session.id))
    return _NO_ROOM
