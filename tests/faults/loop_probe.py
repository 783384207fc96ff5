"""Measure how long the event loop is kept busy between two turns of a probe task.

CPU time of the loop's thread is measured, not the time on the wall: other processes do not disturb it. The garbage
collector is off meanwhile, since a collection of the test process would count as well.
"""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from attrs import define


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
