"""The sessions of a durable store that are at home in this process: stored, passivated, and activated again.

A session that has been idle, or whose process drains, is *passivated*: its record is stored and the object removed; no
trace of it stays in memory. The next request *activates* it: the directory of the store gives this process the
session, and the object is made again from the record. The same happens after a restart, and to a session whose process
died.

While a session moves, in either direction, requests for it wait; afterwards they find it in memory, or claim it
themselves. A process that drains claims nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.record import record_of
from mcptrio._actors.shares import Shares
from mcptrio._actors.store import Claimed, HomeAt
from mcptrio._peer.messages import Cause
from mcptrio._struct import Entity
from mcptrio.errors import Overloaded

if TYPE_CHECKING:
    from mcptrio._actors.runtime import Runtime
    from mcptrio._actors.session import Session

logger = logging.getLogger("mcptrio.sessions")

STORE_WITHIN: Final = 1.0
"""Seconds in which a store that several processes share has stored a new or a deleted session, or the client gets 503.
"""
RETRY_RELEASE: Final = 0.5
RELEASE_WITHIN: Final = 30.0
"""Seconds in which a session that is about to expire is released all the same."""
MAX_ACTIVATIONS: Final = 256
"""Sessions that are being activated at the same time; owners have fair shares of them."""
LEAVING: Final = (Cause.PASSIVATED, Cause.MOVED)
"""Causes after which a session goes on elsewhere, or later."""

Revive = Callable[[Claimed], Awaitable["Session | None"]]
"""Makes the session of a claimed record; None if the request that asks for it may not have it."""


class Moving(Entity):
    """A session that is being passivated or activated."""

    done: trio.Event = field(default_factory=trio.Event)
    found: Session | HomeAt | None = None
    failure: Exception | None = None


class Homes(Entity):
    """The durable sessions of one runtime.   Borrows: the runtime, with its store, bus and supervisor."""

    runtime: Runtime
    moving: dict[str, Moving] = field(default_factory=dict)
    activations: Shares = field(default_factory=lambda: Shares(MAX_ACTIVATIONS))

    # -- records

    def save(self, session: Session) -> None:
        """Have the record of a session stored; never blocks."""
        if session.ended is None and session.peer.is_open:
            pinned = bool(session.data.get("pinned"))
            self.runtime.store.sessions.put(
                session.id, session.epoch, record_of(session), owner=session.owner, pinned=pinned
            )

    async def begin(self, session: Session) -> None:
        """Store a new session. Its client learns its id only afterwards: the next request may reach another process.

        Raises:
            Overloaded: the store that several processes share cannot be written at present.
        """
        runtime = self.runtime
        session.data["versions"] = await runtime.bus.versions(runtime.app.topics(session))
        session.on_change = self.save
        self.save(session)
        await self._stored()

    def forget(self, session: Session) -> None:
        """Remove a session that has ended; never blocks."""
        self.runtime.store.forget(session.id)
        self.runtime.store.sessions.forget(session.id, session.epoch)

    async def delete(self, session: Session) -> None:
        """Remove a session that its client has deleted; afterwards no process knows it any more.

        Requests for it wait meanwhile: another process must not claim it because it is no longer here.

        Raises:
            Overloaded: the store that several processes share cannot be written at present.
        """
        moving = self.moving[session.id] = Moving()
        try:
            self.forget(session)
            await self._stored()
        finally:
            self._moved(session.id, moving)

    async def _stored(self) -> None:
        """Wait until everything is stored. A store of one process that is slow degrades by itself.

        Raises:
            Overloaded: the store that several processes share cannot be written at present.
        """
        store = self.runtime.store
        with trio.move_on_after(STORE_WITHIN if store.shared else math.inf) as deadline:
            await store.flush()
        if deadline.cancelled_caught or (store.shared and store.degraded is not None):
            raise Overloaded("the store is not available", retry_after=1, limit="store")

    def lost(self, session_id: str) -> None:
        """Handle that another process is the home of a session now: end its object here, and store nothing more."""
        session = self.runtime.supervisor.sessions.get(session_id)
        if session is not None and session.ended is None:
            logger.warning("session %s has another home now", session_id[:8])
            session.close_nowait(Cause.MOVED)

    # -- passivation

    def may_leave(self, session: Session, *, draining: bool = False) -> bool:
        """Return whether a session has nothing that cannot be stored: no call, connection, task or pinned state.

        In a process that drains only pinned state counts: the rest ends with the process.
        """
        if session.ended is not None or session.on_change is None or session.data.get("pinned"):
            return False
        if draining:
            return True
        nursery = session.nursery
        held = 1 if session.background.holds else 0
        return (
            session.link.resting
            and not session.peer.calls
            and not session.peer.parked
            and not session.handlers.left_behind
            and session.inbox.idle
            and (nursery is None or len(nursery.child_tasks) <= held)
            and self.runtime.store.degraded is None
        )

    def leave_soon(self, session: Session) -> None:
        """Passivate a session for which `may_leave` is true; requests for it wait from now on."""
        if session.id not in self.moving:
            moving = self.moving[session.id] = Moving()
            self.runtime.supervisor.retire(session)
            self.runtime.supervisor.nursery.start_soon(
                self._passivate, session, moving, name=f"passivation · {session.label}"
            )

    async def _passivate(self, session: Session, moving: Moving) -> None:
        runtime, limits = self.runtime, self.runtime.supervisor.limits
        timeout = limits.idle_timeout if session.link.confirmed else limits.confirm_timeout
        left = max(0.0, timeout - (trio.current_time() - session.last_used))
        try:
            # Read before the session unsubscribes: later changes are announced when it is activated.
            session.data["versions"] = await runtime.bus.versions(runtime.app.topics(session))
            over = trio.Event()
            session.on_end.append(over.set)
            session.close_nowait(Cause.PASSIVATED)
            await over.wait()  # the session function may save a value at its end
            record = record_of(session)
            if not await self._release(session, record, left):
                self.forget(session)  # the store was not available for so long that the session has expired
            elif runtime.hub:
                runtime.hub.emit(telemetry.SessionPassivated(session=session.id))
        finally:
            self._moved(session.id, moving)

    async def _release(self, session: Session, record: bytes, left: float) -> bool:
        """Release a session as soon as the store is available; return False if the session expires first."""
        release = partial(self.runtime.store.sessions.release, session.id, session.epoch, record, ttl=left)
        until = trio.current_time() + max(left, RELEASE_WITHIN)
        while not await release():
            if trio.current_time() >= until:
                return False
            await trio.sleep(RETRY_RELEASE)
        return True

    def _moved(self, session_id: str, moving: Moving) -> None:
        del self.moving[session_id]
        moving.done.set()
        self.runtime.supervisor.changed()

    # -- activation

    async def activate(
        self, session_id: str, revive: Revive, owner: str = "", denied: HomeAt | None = None
    ) -> Session | HomeAt | None:
        """Return the session with this id: from memory, or made again from its record by `revive`.

        `denied` is a home of the session that has answered that it is not there.

        Raises:
            Overloaded: there is no room, the process drains, or the store cannot be asked.
        """
        supervisor = self.runtime.supervisor
        await self.settled(session_id)
        session = supervisor.find(session_id)
        if session is not None:
            return session
        if not await self.activations.wait(owner, timeout=self._timeout):
            raise Overloaded("too many sessions are being loaded", retry_after=1, limit="activations")
        if session_id in self.moving or supervisor.find(session_id) is not None:
            self.activations.give_back(owner)  # another request has begun it meanwhile
            return await self.activate(session_id, revive, owner, denied)
        try:
            supervisor.check_room(owner)  # also refuses while the process drains
        except Overloaded:
            self.activations.give_back(owner)
            raise
        moving = self.moving[session_id] = Moving()
        # In a task of its own: a client that disconnects must not leave a session that is claimed and does not exist.
        supervisor.nursery.start_soon(
            self._activate, session_id, moving, revive, owner, denied, name=f"activation · session {session_id[:8]}"
        )
        await moving.done.wait()
        if moving.failure is not None:
            raise moving.failure
        return moving.found

    async def settled(self, session_id: str) -> None:
        """Wait while a session is being passivated or activated.

        Raises:
            Overloaded: that takes too long.
        """
        until = trio.current_time() + self._timeout
        while (moving := self.moving.get(session_id)) is not None:
            with trio.move_on_at(until):
                await moving.done.wait()
            if not moving.done.is_set():
                raise Overloaded("the session is being stored or loaded", retry_after=1, limit="session")

    @property
    def _timeout(self) -> float:
        return self.runtime.supervisor.limits.busy_timeout

    async def _activate(
        self, session_id: str, moving: Moving, revive: Revive, owner: str, denied: HomeAt | None
    ) -> None:
        try:
            found = await self.runtime.store.sessions.claim(session_id, denied)
            moving.found = await self._revive(session_id, found, revive) if isinstance(found, Claimed) else found
        except Overloaded as error:
            moving.failure = error
        except Exception as error:
            logger.exception("session %s could not be activated", session_id[:8])
            moving.failure = Overloaded("the session could not be activated", retry_after=1, limit="session")
            moving.failure.__cause__ = error
        finally:
            self.activations.give_back(owner)
            self._moved(session_id, moving)

    async def _revive(self, session_id: str, claimed: Claimed, revive: Revive) -> Session | None:
        session = None
        try:
            with trio.fail_after(self.runtime.supervisor.limits.call_timeout):  # as `initialize`: user code runs in it
                session = await revive(claimed)
            if session is not None:
                self.runtime.supervisor.start(session)
                session.on_change = self.save
                if record_of(session) != claimed.record:  # for example a value that the session function has saved
                    self.save(session)
        except BaseException:
            if session is not None:
                session.close_nowait(Cause.PASSIVATED)
                session = None
            raise
        finally:
            if session is None:
                # What was left of it: a request that may not have the session must not keep it alive.
                ttl = self.runtime.supervisor.limits.idle_timeout if claimed.left is None else claimed.left
                with trio.move_on_after(1, shield=True):
                    await self.runtime.store.sessions.release(session_id, claimed.epoch, claimed.record, ttl=ttl)
        if self.runtime.hub and session is not None:
            reason = "died" if claimed.previous else "passivated"
            self.runtime.hub.emit(telemetry.SessionTakenOver(session=session_id, reason=reason))
        return session
