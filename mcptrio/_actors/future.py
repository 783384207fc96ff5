"""Futures with one waiter: one task waits, any number of others may wake it. Cheaper than `trio.Event`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio

from mcptrio._struct import Entity
from mcptrio.errors import LocalProtocolError

ProgressCallback = Callable[[Mapping[str, Any]], None]


class Waiter(Entity, kw_only=True):
    """A place where one task waits until it is woken; it can be used again and again."""

    _task: trio.lowlevel.Task | None = None

    def wake(self) -> None:
        """Resume the waiting task, if there is one."""
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    async def park(self) -> None:
        """Wait for the next `wake`.

        Raises:
            LocalProtocolError: another task waits here already.
        """
        if self._task is not None:
            raise LocalProtocolError("two tasks wait for one reply")
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class Reply(Waiter):
    """The reply to a request that this side sent: a result or an error, settled once."""

    on_progress: ProgressCallback | None = None
    wants_progress: bool = False
    """Whether the request carries a progress token."""
    settled: bool = False
    _result: Any = None
    _error: Exception | None = None

    def settle(self, result: Any = None, error: Exception | None = None) -> None:
        """Set the result or the error. The first one counts; later ones are ignored."""
        if self.settled:
            return
        self.settled, self._result, self._error = True, result, error
        self.wake()

    def progressed(self, params: Mapping[str, Any]) -> None:
        """Handle a progress notification of the peer."""
        if self.on_progress is not None:
            self.on_progress(params)

    async def wait(self) -> Any:
        """Return the result, or raise the error. Only one task waits, and only once."""
        if self.settled:
            await trio.lowlevel.checkpoint()
        else:
            await self.park()
        error, self._error = self._error, None  # the frames in its traceback refer to this reply
        try:
            if error is not None:
                raise error
        finally:
            del error
        return self._result
