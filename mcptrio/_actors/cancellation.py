"""Real cancellation, told apart from a `Cancelled` that belongs to another task."""

from __future__ import annotations

from math import inf

import trio


def is_cancelled() -> bool:
    """Return whether the current task is being cancelled.

    A `Cancelled` that is raised while this is False belongs to another task (a shared future, for example). It is a
    failure of the code that raised it: passed on, it would end everything up to the root task.
    """
    return trio.current_effective_deadline() == -inf


def split_cancelled(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Separate the real cancellation in an exception from the rest, which is a failure."""
    if is_cancelled():
        if isinstance(error, BaseExceptionGroup):
            return error.split(trio.Cancelled)
        if isinstance(error, trio.Cancelled):
            return error, None
    return None, error
