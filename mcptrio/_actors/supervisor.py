"""The supervisor: starts, finds, expires and drains sessions. A session's crash stops here."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import trio
from msgspec import Struct, field

from mcptrio import telemetry
from mcptrio._actors.parking import Parking
from mcptrio._actors.session import Session
from mcptrio._peer.messages import Cause, Drained
from mcptrio._struct import Entity
from mcptrio.errors import DeclarationError, Overloaded

logger = logging.getLogger("mcptrio.supervisor")

_SUSPENDED: Final = 5.0  # a check that comes so late was not late because of work


class SupervisorLimits(Struct, frozen=True, kw_only=True):
    """How many sessions there may be, and how long one may be idle."""

    max_sessions: int = 10_000
    """Sessions at the same time; further clients are told that the server is overloaded. Lower it where each holds
    something dear, and let a durable store keep as many."""
    idle_timeout: float = 1800.0
    """Seconds after which a session with nothing running and no open stream is ended; its client begins a new one.
    Lower it where sessions hold something dear."""
    confirm_timeout: float = 60.0
    """The same, in seconds, for one whose client never came back after `initialize`: a probe, or somebody who
    collects sessions."""
    parked_max: int = 1000
    """Calls that wait for their request to be repeated with answers; the oldest is let go first."""
    parked_ttl: float = 600.0
    """Seconds that they wait, and that the state which leads back to them is valid: the time that a person has to
    answer."""
    check_every: float = 0.5
    """Seconds between two looks for idle sessions, zombies and expired calls, so how late each of these may be
    noticed; seldom a reason to change it."""

    def __post_init__(self) -> None:
        for name in ("parked_max", "parked_ttl"):
            if not getattr(self, name) > 0:
                raise DeclarationError(f"SupervisorLimits.{name} must be positive, got {getattr(self, name)!r}")


class Supervisor(Entity, kw_only=True):
    """Owns: the nursery that every session lives in.   Lent: the telemetry hub."""

    limits: SupervisorLimits = field(default_factory=SupervisorLimits)
    hub: telemetry.Hub = field(default_factory=telemetry.Hub)
    sessions: dict[str, Session] = field(default_factory=dict)
    exchanges: set[Session] = field(default_factory=set)
    """Requests that need no session; nobody finds them by an id."""
    parking: Parking | None = None
    draining: bool = False
    _nursery: trio.Nursery | None = None
    _patience: trio.CancelScope | None = None
    _drain_began: trio.Event = field(default_factory=trio.Event)
    _changed: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._look_after)
                task_status.started()
        finally:
            for session in [session for session in self.sessions.values() if session.asleep]:
                session.end_asleep()
                self._forget(session)

    def start(self, session: Session, carrier: Callable[[], Awaitable[None]] | None = None) -> None:
        """Take a session in.

        Raises:
            Overloaded: there are too many, or the process is about to end.
        """
        self.check_room()
        self.sessions[session.id] = session
        if carrier is None:
            session.sleep()
        else:
            self.wake(session, carrier)

    def wake(self, session: Session, carrier: Callable[[], Awaitable[None]] | None = None) -> None:
        """Give a session a task."""
        self.nursery.start_soon(self._guard, session, carrier, name=f"session {session.id[:8]}")

    def check_room(self) -> None:
        """Raise `Overloaded` if no further session can be taken in."""
        if self.draining:
            raise Overloaded("the server is shutting down", retry_after=5)
        if len(self.sessions) >= self.limits.max_sessions:
            if self.hub:
                self.hub.emit(telemetry.LimitHit(name="sessions"))
            raise Overloaded("too many sessions", retry_after=30)

    @property
    def nursery(self) -> trio.Nursery:
        assert self._nursery is not None
        return self._nursery

    def find(self, session_id: str) -> Session | None:
        session = self.sessions.get(session_id)
        return session if session is not None and session.ended is None else None

    async def _guard(self, session: Session, carrier: Callable[[], Awaitable[None]] | None) -> None:
        try:
            await session.run(carrier)
        except trio.Cancelled:
            raise
        except BaseException as error:  # the session guard: a session's crash closes that session
            cancelled, rest = error.split(trio.Cancelled) if isinstance(error, BaseExceptionGroup) else (None, error)
            if rest is not None:
                logger.error("session %s failed", session.id[:8], exc_info=rest)
                if self.hub:
                    self.hub.emit(telemetry.GuardCaught(layer="session", error=rest, session=session.id))
            if cancelled is not None:
                raise cancelled from None
        finally:
            if not session.asleep:
                self._forget(session)

    def _forget(self, session: Session) -> None:
        self.sessions.pop(session.id, None)
        if self.parking is not None:
            self.parking.forget(session)
        self._changed.unpark_all()

    async def _look_after(self) -> None:
        """Find zombies, and sessions that nobody uses any more."""
        looked = trio.current_time()
        while True:
            await trio.sleep(self.limits.check_every)
            now = trio.current_time()
            slept = now - looked - self.limits.check_every
            looked = now
            if slept > _SUSPENDED:
                # The whole process stood still (a laptop's lid, SIGSTOP): that is nobody's idleness.
                logger.warning("the process did not run for %.0f s", slept)
                for session in self:
                    session.last_used += slept
            if self.parking is not None:
                self.parking.expire(now)
            for session in self:
                if session.has_running:
                    session.bury(now)
                elif not session.asleep:
                    session.doze()
                idle = session.idle_since(now)
                if idle > self.limits.idle_timeout or (
                    idle > self.limits.confirm_timeout and self._unconfirmed(session)
                ):
                    session.close_nowait(Cause.IDLE)

    def _unconfirmed(self, session: Session) -> bool:
        if session.ended is not None or getattr(session.link, "confirmed", True):
            return False
        if self.hub:
            self.hub.emit(telemetry.LimitHit(name="confirm_timeout", session=session.id))
        return True

    def __iter__(self) -> Iterator[Session]:
        return iter((*self.sessions.values(), *self.exchanges))

    # -- the end

    async def drain(self, grace: float) -> None:
        """Let running calls finish for `grace` seconds, answer the rest with an error, then end every session."""
        self.draining = True
        self._drain_began.set()
        with trio.move_on_after(grace) as self._patience:
            # Those who have nothing to finish go first: when the time is up there is enough to do with the others.
            for session in self:
                if not session.calls:
                    await session.wait_until_quiet()
                    session.close_nowait(Cause.DRAIN)
            for session in self:
                await session.wait_until_quiet()
                session.close_nowait(Cause.DRAIN)
        for session in self:
            if session.calls:
                session.post_nowait(Drained(Cause.DRAIN))
        await trio.lowlevel.checkpoint()
        for session in self:
            session.close_nowait(Cause.DRAIN)
        with trio.move_on_after(1.0):
            while self.sessions:
                await self._changed.park()

    async def wait_for_drain(self) -> None:
        """Wait until the process is about to end."""
        await self._drain_began.wait()

    def hurry(self) -> None:
        """Do not wait for running calls any longer."""
        if self._patience is not None:
            self._patience.cancel()

    def stop(self) -> None:
        """Cancel whatever is left."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()


def new_session_id() -> str:
    """An id that nobody can guess, in visible ASCII (basic/transports: 0x21 to 0x7E)."""
    return secrets.token_urlsafe(24)
