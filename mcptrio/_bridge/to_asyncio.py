"""Calls from Trio to asyncio: an asyncio task runs a function, and a Trio task waits for it.

The loop is the one that Trio is a guest of, or one in a thread of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

import trio
from outcome import Error, Outcome, Value, capture

from mcptrio._bridge.guest import current_guest
from mcptrio._bridge.to_trio import OtherThread, Way

T = TypeVar("T")

logger = logging.getLogger("mcptrio.asyncio")

_CLOSE: Final = 1.0  # seconds for the end of the loop's thread


async def run_in_asyncio(way: Way, fn: Callable[[], Awaitable[T]]) -> T:
    """Await `fn()` in an asyncio task, with the context variables of the caller. A cancellation is passed on."""
    result: T = await _AsyncioCall(way, fn).wait()
    return result


async def settle_in_asyncio(way: Way, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call a function, plain or async, in asyncio, and return its result."""

    async def call() -> Any:
        result = fn(*args)
        return await result if inspect.isawaitable(result) else result

    return await run_in_asyncio(way, call)


class _AsyncioCall:
    """One asyncio task that a Trio task waits for."""

    def __init__(self, way: Way, fn: Callable[[], Awaitable[Any]]) -> None:
        self._way = way
        self._fn = fn
        self._waiting = trio.lowlevel.current_task()
        self._context = copy_context()
        self._task: asyncio.Task[Outcome[Any]] | None = None
        self._raise_cancel: Any = None

    async def wait(self) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._way.to_asyncio(self._start)
        return await trio.lowlevel.wait_task_rescheduled(self._cancel)

    def _cancel(self, raise_cancel: Any) -> trio.lowlevel.Abort:
        if self._way.loop.is_closed():
            return trio.lowlevel.Abort.SUCCEEDED
        self._raise_cancel = raise_cancel
        try:
            self._way.to_asyncio(self._cancel_task)
        except RuntimeError:  # its thread has closed the loop just now; an exception here would end the Trio run
            return trio.lowlevel.Abort.SUCCEEDED
        return trio.lowlevel.Abort.FAILED  # the task says when it has ended

    def _resume(self, outcome: Outcome[Any] | None) -> None:
        if outcome is None and self._raise_cancel is not None:
            outcome = capture(self._raise_cancel)
        elif outcome is None:
            outcome = Error(RuntimeError("the asyncio task of this function was cancelled by other asyncio code"))
        trio.lowlevel.reschedule(self._waiting, outcome)

    # -- in asyncio

    def _start(self) -> None:
        self._task = self._way.loop.create_task(self._run(), context=self._context)
        self._task.add_done_callback(self._finish)

    async def _run(self) -> Outcome[Any]:
        try:
            return Value(await self._fn())
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - it goes to the Trio task; asyncio would end its loop for some
            return Error(error)

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[Outcome[Any]]) -> None:
        self._way.to_trio(partial(self._resume, None if task.cancelled() else task.result()))


class AsyncioLoop:
    """The asyncio loop for the functions of one runtime.

    Owns: a thread with a loop, from the first use on, unless Trio is a guest of a loop already.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        guest = current_guest()
        self.way: Way = self._start() if guest is None else guest.way

    def _start(self) -> Way:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_loop, args=(loop,), name="mcptrio asyncio", daemon=True)
        self._thread.start()
        return OtherThread(loop, trio.lowlevel.current_trio_token())

    async def close(self) -> None:
        """End the thread and everything in its loop."""
        thread = self._thread
        if thread is None:
            return
        self.way.to_asyncio(self.way.loop.stop)
        with trio.move_on_after(_CLOSE + 1, shield=True):
            await trio.to_thread.run_sync(thread.join, _CLOSE, abandon_on_cancel=True)
        if thread.is_alive():
            logger.error("the asyncio thread of the server did not end within %g s; it is left behind", _CLOSE)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
