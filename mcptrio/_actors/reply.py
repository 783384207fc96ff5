"""A future: one task waits for it, the session's loop settles it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio

from mcptrio._struct import Entity

ProgressCallback = Callable[[Mapping[str, Any]], None]


class Reply(Entity):
    """The answer to something that was asked of the peer."""

    on_progress: ProgressCallback | None = None
    wants_progress: bool = False
    """Whether the peer is asked to tell."""
    settled: bool = False
    _result: Any = None
    _error: Exception | None = None
    _waiting: trio.lowlevel.Task | None = None

    def settle(self, result: Any = None, error: Exception | None = None) -> None:
        """Give the answer. The first one counts; a later one is ignored."""
        if self.settled:
            return
        self.settled, self._result, self._error = True, result, error
        if self._waiting is not None:
            trio.lowlevel.reschedule(self._waiting)
            self._waiting = None

    def progressed(self, params: Mapping[str, Any]) -> None:
        """The peer tells how far it is."""
        if self.on_progress is not None:
            self.on_progress(params)

    def _abandon(self, _: object) -> trio.lowlevel.Abort:
        self._waiting = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def wait(self) -> Any:
        """The result, or the error raised. Only one task at a time may wait."""
        if self.settled:
            await trio.lowlevel.checkpoint()
        else:
            assert self._waiting is None
            self._waiting = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abandon)
        if self._error is not None:
            raise self._error
        return self._result
