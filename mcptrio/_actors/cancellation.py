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


def abandon_nurseries() -> None:
    """Cancel and forget the nurseries that a handler left open, as a generator does that is left in the middle of one.

    Trio does this when a task ends, and then raises an error that no guard can catch: it would end the nursery that the
    task runs in. That one belongs to the session, and for some calls to the supervisor or to the listener. The tasks
    that run handlers have no nurseries of their own.
    """
    task = trio.lowlevel.current_task()
    for nursery in task.child_nurseries:
        nursery.cancel_scope.cancel()
        nursery._closed = True
    task._child_nurseries.clear()  # there is no public way
