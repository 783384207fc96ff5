"""Places: slots of a limiter that a call holds while it works, and gives back while it waits for the user.

A tool's `limit=` and `serial=True` are limiters, and so are the worker threads for plain functions. A user may take
minutes to answer; a call that kept its places meanwhile would lock out everyone else.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, TypeVar, cast

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.shares import Shares
from mcptrio._actors.threads import Pauses, pauses_for_threads
from mcptrio._struct import Entity
from mcptrio.errors import Overloaded

if TYPE_CHECKING:
    from mcptrio._actors.call import Call

T = TypeVar("T")

logger = logging.getLogger("mcptrio.call")


class Place(Entity):
    """One slot of a limiter for one call. It is its own borrower, so that any task of the call may give it back."""

    limiter: trio.CapacityLimiter
    held: bool = False
    _taking: trio.Lock = field(default_factory=trio.Lock)

    def take_nowait(self) -> bool:
        """Take the place if it is free; return whether it is held."""
        if not self.held and not self._taking.locked():
            try:
                self.limiter.acquire_on_behalf_of_nowait(self)
            except trio.WouldBlock:
                return False
            self.held = True
        return self.held

    async def take(self) -> None:
        """Wait for the place."""
        async with self._taking:
            if not self.held:
                await self.limiter.acquire_on_behalf_of(self)
                self.held = True

    def give_back(self) -> None:
        if self.held:
            self.held = False
            self.limiter.release_on_behalf_of(self)


@asynccontextmanager
async def hold_place(call: Call, limiter: trio.CapacityLimiter) -> AsyncIterator[None]:
    """Hold a place of a limiter, except while the call waits for the user."""
    place = Place(limiter)
    if not place.take_nowait():
        began = trio.current_time()
        try:
            await place.take()
        finally:
            call.queued += trio.current_time() - began
    call.places.append(place)
    try:
        yield
    finally:
        call.places.remove(place)
        place.give_back()


class ThreadPlace(Entity, kw_only=True):
    """The place of one worker thread, held until the thread ends. Trio uses it as the limiter of the thread."""

    shares: Shares
    call: Call
    pauses: Pauses = field(default_factory=pauses_for_threads)
    held: bool = False
    abandoned_at: float | None = None
    """When the call was cancelled while its thread still ran."""
    is_zombie: bool = False
    started: bool = False
    on_end: Callable[[], None] | None = None

    def take_nowait(self) -> bool:
        """Take the place if it is free; return whether it is held."""
        self.held = self.held or self.shares.take(self.call.session.owner)
        return self.held

    async def take(self) -> None:
        """Wait for the place."""
        if not self.held:
            self.held = await self.shares.wait(self.call.session.owner, timeout=inf)

    def give_back(self) -> None:
        if self.held:
            self.held = False
            self.shares.give_back(self.call.session.owner)

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        self.started = True
        await trio.lowlevel.checkpoint()
        self.pauses.crossing.add(self)  # Trio starts the thread now

    def release_on_behalf_of(self, borrower: object) -> None:
        self.pauses.crossing.discard(self)
        self.give_back()
        on_end, self.on_end = self.on_end, None  # the function refers to this place
        if on_end is not None:
            on_end()


class Threads(Entity):
    """The worker threads for the plain functions of one runtime.

    A thread cannot be stopped from outside: when its call is cancelled, the thread is abandoned and keeps its place
    until it ends. If that takes longer than `Limits.ignore_cancel`, it counts as a zombie.
    """

    shares: Shares = field(default_factory=lambda: Shares(16))
    """The places of the threads, shared between the owners of the calls."""
    zombies: int = 0
    _running: set[ThreadPlace] = field(default_factory=set)

    async def run(self, call: Call, fn: Callable[[], T]) -> T:
        """Run a plain function in a thread.

        Raises:
            Overloaded: no thread became free within `Limits.busy_timeout`.
        """
        place = ThreadPlace(shares=self.shares, call=call)
        await self._admit(place, call)
        place.on_end = lambda: self._ended(place)
        failed: list[BaseException] = []

        def catch() -> T | None:
            place.pauses.crossing.discard(place)
            # Frames of the thread would keep a raised exception, whose traceback keeps them: a reference cycle.
            try:
                return fn()
            except BaseException as error:  # noqa: BLE001 - the task raises it
                failed.append(error)
                if place.abandoned_at is not None:
                    failed.clear()
                return None
            finally:
                place.pauses.crossing.add(place)

        self._running.add(place)
        call.places.append(place)
        try:
            limiter = cast(trio.CapacityLimiter, place)  # Trio uses two methods of it
            value = await trio.to_thread.run_sync(catch, limiter=limiter, abandon_on_cancel=True, thread_name=call.name)
            if failed:
                raise failed.pop()
            return cast(T, value)
        finally:
            call.places.remove(place)
            if not place.started:
                place.release_on_behalf_of(place)
            elif place in self._running:
                place.abandoned_at = trio.current_time()
            failed.clear()  # after the line above: the thread may fail at this moment

    async def _admit(self, place: ThreadPlace, call: Call) -> None:
        if place.take_nowait():
            return
        timeout = call.session.service.limits.busy_timeout
        began = trio.current_time()
        place.held = await self.shares.wait(call.session.owner, timeout=timeout)
        call.queued += trio.current_time() - began
        if not place.held:
            if hub := call.session.service.telemetry:
                hub.emit(telemetry.LimitHit(name="threads", session=call.session.id))
            raise Overloaded("every worker thread is busy", retry_after=1, limit="threads")

    def _ended(self, place: ThreadPlace) -> None:
        self._running.discard(place)
        if place.is_zombie:
            self.zombies -= 1

    def find_zombies(self, now: float) -> None:
        """Count and name threads that still run long after their call was cancelled. Called at intervals."""
        for place in self._running:
            call = place.call
            if place.abandoned_at is None or place.is_zombie:
                continue
            if now - place.abandoned_at >= call.session.service.limits.ignore_cancel:
                place.is_zombie = True
                self.zombies += 1
                start, session = call.start, call.session
                logger.error("%s (id %r) still runs in a thread although it was cancelled", call.name, start.request_id)
                if hub := session.service.telemetry:
                    hub.emit(telemetry.Zombie(session=session.id, method=start.method, request_id=start.request_id))


def give_back(places: list[Place | ThreadPlace]) -> None:
    """Give places back, because their call waits for the user."""
    for place in reversed(places):
        place.give_back()


async def take_again(places: list[Place | ThreadPlace], *, timeout: float | None) -> None:
    """Take places again after an answer, in their order.

    Without `timeout` it waits as long as the call may. With it, the caller is being cancelled and may catch that: it
    waits so many seconds, shielded, because a handler must not go on without its places.

    Raises:
        Overloaded: a place was not free in time.
    """
    for place in tuple(places):
        if place.take_nowait():
            continue
        if timeout is None:
            await place.take()
            continue
        with trio.move_on_after(timeout, shield=True):
            await place.take()
        if not place.held:
            raise Overloaded("the place of this call was taken while it waited for the user", retry_after=1)
