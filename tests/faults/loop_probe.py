"""Measure how long the event loop is kept busy between two turns of a probe task.

CPU time of the loop's thread is measured, not the time on the wall: other processes do not disturb it. The garbage
collector is off meanwhile, since a collection of the test process would count as well. Other processes still use the
same caches and memory, and make the same work take longer on a busy machine: the shortest of three tries counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from math import inf
from typing import Final, ParamSpec

import trio
from attrs import define

P = ParamSpec("P")
TRIES: Final = 3


@define
class LoopProbe:
    """The longest time between two turns of the probe task, in seconds of CPU time."""

    longest: float = 0.0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await trio.lowlevel.checkpoint()
        task_status.started()
        last = time.thread_time()
        while True:
            try:
                await trio.lowlevel.checkpoint()
            finally:  # what happened before a cancellation counts too
                now = time.thread_time()
                self.longest = max(self.longest, now - last)
                last = now


@asynccontextmanager
async def open_probe() -> AsyncIterator[LoopProbe]:
    """Measure what happens inside the block. It must not contain work of its own that takes time."""
    probe = LoopProbe()
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(probe.run)
            yield probe
            nursery.cancel_scope.cancel()
    finally:
        if was_enabled:
            gc.enable()


def at_most(limit: float) -> Callable[[Callable[P, Awaitable[float]]], Callable[P, Awaitable[None]]]:
    """Let a test fail that returns more than so many seconds in each of three tries."""

    def decorate(test: Callable[P, Awaitable[float]]) -> Callable[P, Awaitable[None]]:
        @wraps(test)
        async def run(*args: P.args, **kwargs: P.kwargs) -> None:
            longest = inf
            for _ in range(TRIES):
                longest = min(longest, await test(*args, **kwargs))
                if longest < limit:
                    return
            raise AssertionError(f"the loop was busy for {longest * 1000:.0f} ms; {limit * 1000:.0f} ms are allowed")

        return run

    return decorate
