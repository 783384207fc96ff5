"""Trio as a guest of a running asyncio loop: one Trio run and one nursery for everything of mcptrio on that loop.

Theory of operation. `trio.lowlevel.start_guest_run` runs Trio's scheduler in callbacks of the asyncio loop, in the
loop's own thread; only the wait for Trio's own I/O and deadlines happens in a thread of Trio. Code of both sides
therefore never runs at the same time, and asyncio code may call Trio's plain functions (`nursery.start_soon`,
`CancelScope.cancel`) directly. The host keeps its signals: Trio sets no wakeup file descriptor, and installs a handler
for Ctrl-C only if the program has none but Python's own.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from time import monotonic, sleep
from typing import Any, Final

import trio
from outcome import Outcome

from mcptrio._bridge.to_trio import SameThread
from mcptrio.errors import LocalProtocolError

logger = logging.getLogger("mcptrio.asyncio")

_OTHER_LOOP: Final = (
    "Trio runs in this thread already, outside of the running asyncio loop: use one event loop per thread, and close "
    "the previous one first"
)
_TURNS: Final = 8  # turns of Trio's scheduler before asyncio's callbacks run
_LEFT_BEHIND: Final = (
    "a handler of an earlier application on this asyncio loop ignores its cancellation, and Trio cannot end: "
    "start the application in a new process"
)
_FINISH: Final = 2.0  # seconds for the cleanup of a run whose loop was closed, or that was left behind
_current = trio.lowlevel.RunVar[Any]("mcptrio_guest", None)


class _Here(threading.local):
    """The guest of this thread. A thread has at most one Trio run."""

    guest: Guest | None = None


_here = _Here()


class Guest:
    """One Trio run inside an asyncio loop.

    Owns: the Trio run and its nursery.   Borrows: the loop. The first user of `open_guest` starts it, the last ends it.
    """

    nursery: trio.Nursery
    """Its tasks must not raise: one that does ends the run, and everything in it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.way = SameThread(loop)
        self.users = 0
        self._calls: deque[Callable[[], object]] = deque()
        self._running = False
        self._started: asyncio.Future[None] = loop.create_future()
        self._done: asyncio.Future[None] = loop.create_future()
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._soon_threadsafe,
            run_sync_soon_not_threadsafe=self._soon,
            done_callback=self._ended,
            host_uses_signal_set_wakeup_fd=True,
            restrict_keyboard_interrupt_to_checkpoints=True,
        )
        _here.guest = self
        atexit.register(self.finish_abandoned)

    async def _main(self) -> None:
        _current.set(self)
        async with trio.open_nursery() as self.nursery:
            self._started.set_result(None)
            await trio.sleep_forever()

    # Each scheduled call is kept here too: a loop that is closed forgets its own.
    def _soon(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        if not self._running and not self.loop.is_closed():
            self.loop.call_soon(self._run_calls)

    def _soon_threadsafe(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        with suppress(RuntimeError):  # the loop is closed: see `finish_abandoned`
            self.loop.call_soon_threadsafe(self._run_calls)

    def _run_calls(self) -> None:
        """Run a few turns of Trio's scheduler; a turn of the asyncio loop for each of them would cost more."""
        self._running = True
        try:
            for _ in range(_TURNS):
                if not self._calls:
                    return
                self._calls.popleft()()
        finally:
            self._running = False
            if self._calls and not self.loop.is_closed():
                self.loop.call_soon(self._run_calls)

    def _ended(self, result: Outcome[None]) -> None:
        _here.guest = None
        atexit.unregister(self.finish_abandoned)
        try:
            result.unwrap()
        except trio.Cancelled:
            pass
        except BaseException as error:
            logger.critical("the Trio run inside the asyncio loop failed", exc_info=error)
            if _is_interrupt(error) and not self.loop.is_closed():
                self.loop.call_soon(_interrupt)
        if not self.loop.is_closed() and not self._done.done():
            self._done.set_result(None)

    async def started(self) -> None:
        await asyncio.shield(self._started)

    async def end(self) -> None:
        """Cancel everything that still runs in Trio, and wait for its end."""
        await self.started()
        self.nursery.cancel_scope.cancel()
        await asyncio.wait((self._done,), timeout=0 if self.way.given_up else None)

    async def ended(self) -> None:
        """Wait for the end of a guest that its last user has left."""
        done, _ = await asyncio.wait((self._done,), timeout=_FINISH if self.way.given_up else None)
        if not done:
            raise LocalProtocolError(_LEFT_BEHIND)

    def finish_abandoned(self) -> None:
        """Run Trio to its end without its loop, which was closed without a shutdown."""
        if _here.guest is not self:
            return  # it has ended, or belongs to another thread
        logger.error(
            "the asyncio loop was closed before the lifespan of the MCP application ended: running calls are cancelled"
        )
        if self._started.done():
            self.nursery.cancel_scope.cancel()
        deadline = monotonic() + _FINISH
        while _here.guest is self and monotonic() < deadline:
            if self._calls:
                self._run_calls()
            else:
                sleep(0.001)  # Trio's thread waits for I/O


def _is_interrupt(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(KeyboardInterrupt) is not None
    return isinstance(error, KeyboardInterrupt)


def _interrupt() -> None:
    """Raise in the loop, which passes it on to the program."""
    raise KeyboardInterrupt


@asynccontextmanager
async def open_guest() -> AsyncIterator[Guest]:
    """Use Trio in the running asyncio loop.

    Raises:
        LocalProtocolError: no asyncio loop runs here, or Trio runs in this thread already, and not as its guest, or an
            earlier guest of the loop does not end.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise LocalProtocolError("mcptrio needs an event loop of Trio or asyncio, and none runs here") from None
    while (ending := _here.guest) is not None and ending.loop is loop and not ending.users:
        await ending.ended()
    guest = _guest_of(loop)
    guest.users += 1
    try:
        await guest.started()
        yield guest
    finally:
        guest.users -= 1
        if not guest.users:
            await guest.end()


def _guest_of(loop: asyncio.AbstractEventLoop) -> Guest:
    guest = _here.guest
    if guest is not None and guest.loop.is_closed():
        guest.finish_abandoned()
    if not trio.lowlevel.in_trio_run():
        return Guest(loop)
    if guest is None or guest.loop is not loop:
        raise LocalProtocolError(_OTHER_LOOP)
    return guest


def current_guest() -> Guest | None:
    """Return the guest that the calling Trio task runs in; None in an ordinary Trio run."""
    guest: Guest | None = _current.get()
    return guest
