"""Running a handler in the task that is there already.

A task of its own is the dearest part of a short call, and most of what is special about one is only needed by a handler
that waits. So whoever carries a request to its session may run the handler itself. When the handler waits for the first
time the carrier is told, and lets another task carry on with what it did: from then on its task is the handler's.
A handler that never waits has cost no task and no turn of the scheduler.

For the handler there is no difference. It is a coroutine in a Trio task either way, it can be cancelled, open nurseries
and start threads, and its context variables are its own.

One that opens a cancel scope, never waits and leaves it open (as a generator does that is left in the middle) leaves it
in the carrier's task. Trio says so, by an error, when the carrier's own scope is left; the connection ends with that,
and nothing else does. Looking for it earlier would cost every call.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def run_eagerly(
    coroutine: Coroutine[Any, Any, T], context: Context, on_wait: Callable[[], None]
) -> Generator[Any, Any, T]:
    """Run a coroutine in the present task, in a context of its own; `on_wait` is called when it first waits."""
    try:
        trap = context.run(coroutine.send, None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # what the coroutine returned
    try:
        on_wait()
    except BaseException:
        coroutine.close()
        raise
    while True:
        try:
            step = partial(coroutine.send, (yield trap))
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - it is the coroutine's to handle
            step = partial(coroutine.throw, error)
        try:
            trap = context.run(step)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
