"""The supervisor: starts, finds, expires and drains sessions, and contains their crashes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.cancellation import split_cancelled
from mcptrio._actors.exchange import Exchange
from mcptrio._actors.limits import Limits
from mcptrio._actors.parking import Parking
from mcptrio._actors.places import Threads
from mcptrio._actors.router import pass_on_interrupt
from mcptrio._actors.session import Session
from mcptrio._actors.shares import Shares
from mcptrio._peer.messages import Cause, Drained
from mcptrio._struct import Entity
from mcptrio.errors import Overloaded

if TYPE_CHECKING:
    from mcptrio._actors.homes import Homes

logger = logging.getLogger("mcptrio.supervisor")

_SUSPENDED: Final = 5.0  # seconds; a check this late means that the process was suspended


class Supervisor(Entity, kw_only=True):
    """The owner of all sessions.

    Owns: the nurseries of the sessions and of stateless calls.   Borrows: the telemetry hub.
    """

    limits: Limits = field(default_factory=Limits)
    hub: telemetry.Hub = field(default_factory=telemetry.Hub)
    sessions: dict[str, Session] = field(default_factory=dict)
    exchanges: set[Exchange] = field(default_factory=set)
    """Stateless requests, which have no id."""
    parking: Parking | None = None
    homes: Homes | None = None
    """With a durable store: passivates sessions and activates them."""
    threads: Threads | None = None
    draining: bool = False
    serves_late: bool = False
    """Whether requests that arrive while it drains are served. Other workers go on, so clients must notice nothing."""
    refuses: bool = False
    """Whether requests are refused, because the process drains and no other worker goes on."""
    _shares: Shares = field(default_factory=lambda: Shares(0))
    """The sessions of each owner."""
    _nursery: trio.Nursery | None = None
    _calls: trio.Nursery | None = None
    _grace: trio.CancelScope | None = None
    _drain_began: trio.Event = field(default_factory=trio.Event)
    _changed: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    def __post_init__(self) -> None:
        self._shares.size = self.limits.max_sessions

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._look_after)
                await self._nursery.start(self._hold_calls)
                task_status.started()
            # Not reached when the server ends: that cancels this task.
            raise RuntimeError("the tasks of the sessions were cancelled by one of them, so the server cannot go on")
        finally:
            for session in [session for session in self.sessions.values() if session.inbox.asleep]:
                session.end_asleep()
                self._forget(session)

    async def _hold_calls(
        self, again: bool = False, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep the nursery of stateless calls open. A handler that cancels it ends the calls that run, not the server.

        The next one is opened at once, because a shielded handler may keep the old one open.
        """
        await trio.lowlevel.checkpoint()  # does not return if the server ends
        if again:
            logger.error("a handler cancelled the nursery of its task, and so all stateless calls that were running")
        sessions = self.nursery
        async with trio.open_nursery() as self._calls:
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._calls = sessions  # until the next one is open
                sessions.start_soon(self._hold_calls, True)

    def start(self, session: Session, reader: Callable[[], Awaitable[None]] | None = None) -> None:
        """Register a session and start its task.

        Raises:
            Overloaded: there are too many sessions, or the process is shutting down.
        """
        self._check_room(session.owner, refuses=self.refuses)
        self._make_room()
        self.sessions[session.id] = session
        self._shares.add(session.owner, session.id)
        if reader is not None:
            self.wake(session, reader)
        elif session.began is None:  # otherwise it was made from a record, and may be awake
            session.open()
            session.inbox.sleep()

    def wake(self, session: Session, reader: Callable[[], Awaitable[None]] | None = None) -> None:
        """Start a task for a session, or end it in place if no task can be started any more."""
        try:
            self.nursery.start_soon(self._guard, session, reader, name=session.label)
        except RuntimeError:  # the supervisor's last task has ended; its connections may still be closing
            session.end_asleep()
            self._forget(session)

    def check_room(self, owner: str = "") -> None:
        """Raise `Overloaded` if this owner can have no further session, or the process drains."""
        self._check_room(owner, refuses=self.draining)

    def _check_room(self, owner: str, *, refuses: bool) -> None:
        if refuses:
            raise Overloaded("the server is shutting down", retry_after=5)
        if len(self._shares) < self.limits.max_sessions or self._idle_one() is not None:
            return
        if self.hub:
            self.hub.emit(telemetry.LimitHit(name="sessions"))
        if self._shares.stored(self._shares.largest()) <= self._shares.stored(owner) + 1:
            raise Overloaded("too many sessions", retry_after=30)

    def _make_room(self) -> None:
        """Passivate or end the oldest session of the owner with the most sessions, if there are too many."""
        while len(self._shares) >= self.limits.max_sessions:
            idle = self._idle_one()
            if idle is not None and self.homes is not None:
                self.homes.leave_soon(idle)
                continue
            oldest = self._shares.oldest(self._shares.largest())
            self._shares.remove(oldest)
            session = self.sessions.get(str(oldest))
            if session is not None:
                session.close_nowait(Cause.IDLE)

    def _idle_one(self) -> Session | None:
        """Return a session that can be passivated: of the owner with the most sessions that has one, its oldest."""
        if self.homes is None:
            return None
        for owner in self._shares.largest_first():
            for entry in self._shares.of_owner(owner):
                session = self.sessions.get(str(entry))
                if session is not None and self.homes.may_leave(session):
                    return session
        return None

    def retire(self, session: Session) -> None:
        """Hide a session that is being passivated: requests no longer find it."""
        self.sessions.pop(session.id, None)
        self._shares.remove(session.id)
        session.link.hide()

    @property
    def nursery(self) -> trio.Nursery:
        assert self._nursery is not None
        return self._nursery

    @property
    def calls(self) -> trio.Nursery:
        """The nursery of stateless calls."""
        assert self._calls is not None
        return self._calls

    def find(self, session_id: str) -> Session | None:
        session = self.sessions.get(session_id)
        return session if session is not None and session.ended is None else None

    async def _guard(self, session: Session, reader: Callable[[], Awaitable[None]] | None) -> None:
        try:
            await session.run(reader)
        except BaseException as error:  # the session guard: a session's crash closes that session
            cancelled, rest = split_cancelled(error)
            if rest is not None:
                pass_on_interrupt(rest)
                logger.error("session %s failed", session.id[:8], exc_info=rest)
                if self.hub:
                    self.hub.emit(telemetry.GuardCaught(layer="session", error=rest, session=session.id))
            if cancelled is not None:
                raise cancelled from None
        finally:
            if session.ended is not None:
                self._forget(session)

    def _forget(self, session: Session) -> None:
        if self.sessions.get(session.id) is session:  # not one that was activated meanwhile
            del self.sessions[session.id]
            self._shares.remove(session.id)
        if self.parking is not None:
            self.parking.forget(session)
        self.changed()

    def changed(self) -> None:
        """Wake the drain, which waits until no session is left."""
        self._changed.unpark_all()

    async def _look_after(self) -> None:
        """Check for zombies, and for idle or expired sessions, at intervals."""
        looked = trio.current_time()
        while True:
            await trio.sleep(self.limits.check_every)
            now = trio.current_time()
            slept = now - looked - self.limits.check_every
            looked = now
            if slept > _SUSPENDED:
                # The whole process was suspended (laptop lid, SIGSTOP): do not count that time as idle.
                logger.warning("the process did not run for %.0f s", slept)
                for session in self.sessions.values():
                    session.last_used += slept
            if self.parking is not None:
                self.parking.expire(now)
            if self.threads is not None:
                self.threads.find_zombies(now)
            for exchange in tuple(self.exchanges):
                exchange.handlers.find_zombies(now)
            for session in tuple(self.sessions.values()):
                if session.handlers:
                    session.handlers.find_zombies(now)
                else:
                    session.doze()
                if session.peer.calls or not session.link.resting:
                    session.last_used = now
                idle = now - session.last_used
                if idle > self.limits.idle_timeout or (
                    idle > self.limits.confirm_timeout and self._unconfirmed(session)
                ):
                    session.close_nowait(Cause.IDLE)
                elif self.homes is not None and idle > self.limits.passivate_after and self.homes.may_leave(session):
                    self.homes.leave_soon(session)

    def _unconfirmed(self, session: Session) -> bool:
        if session.ended is not None or session.link.confirmed:
            return False
        if self.hub:
            self.hub.emit(telemetry.LimitHit(name="confirm_timeout", session=session.id))
        return True

    def __iter__(self) -> Iterator[Session | Exchange]:
        return iter((*self.sessions.values(), *self.exchanges))

    # -- the end

    def begin_drain(self) -> None:
        """Refuse requests from now on, unless other workers go on."""
        self.draining, self.refuses = True, not self.serves_late
        self._drain_began.set()

    async def drain(self, grace: float) -> None:
        """Let running calls finish for `grace` seconds, answer the rest with an error, then end every session.

        With a durable store they are passivated instead, except those with state that cannot be stored.
        """
        self.begin_drain()
        with trio.move_on_after(grace) as self._grace:
            # End idle sessions first, to leave less work for the end of the grace period.
            for session in self:
                if not session.peer.calls:
                    await session.wait_until_quiet()
                    self._end(session)
            done: set[Session | Exchange] = set()
            while left := set(self) - done:  # some may have begun meanwhile
                for session in left:
                    await session.wait_until_quiet()
                    self._end(session)
                done |= left
        for session in self:
            if session.peer.calls:
                session.inbox.post_nowait(Drained(Cause.DRAIN))
        await trio.lowlevel.checkpoint()
        for session in self:
            self._end(session)
        with trio.move_on_after(1.0):
            while self.sessions or (self.homes is not None and self.homes.moving):
                await self._changed.park()

    def _end(self, session: Session | Exchange) -> None:
        if self.homes is not None and isinstance(session, Session) and self.homes.may_leave(session, draining=True):
            self.homes.leave_soon(session)
        else:
            session.close_nowait(Cause.DRAIN)

    async def wait_for_drain(self) -> None:
        """Wait until the process begins to shut down."""
        await self._drain_began.wait()

    def hurry(self) -> None:
        """End the drain at once, without waiting for running calls."""
        if self._grace is not None:
            self._grace.cancel()
