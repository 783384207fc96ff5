"""Tasks of a worker that died: those that may run again do, the others fail.

A task runs again as its request did at first: the request goes through an exchange of its own, with all checks and
middleware, and where the tool would become a new task it continues the old one. The response has no reader.
"""

from __future__ import annotations

import logging
import random
from functools import partial

import msgspec

from mcptrio._actors.exchange import Exchange
from mcptrio._actors.relay import SilentLink
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.store import ClaimedTask
from mcptrio._struct import Entity
from mcptrio.errors import INTERNAL_ERROR
from mcptrio.extensions.tasks.note import EARLIER, EarlierRun, TaskNote
from mcptrio.extensions.tasks.run import topic
from mcptrio.extensions.tasks.running import STOPPED, StoredTask
from mcptrio.extensions.tasks.types import TERMINAL, failed

logger = logging.getLogger("mcptrio.tasks")


class Takeover(Entity):
    """The tasks of dead workers, as one runtime continues them.   Borrows: the runtime."""

    runtime: Runtime

    async def take_all(self) -> None:
        """Take over the tasks of dead workers. Every worker does so, each in an order of its own."""
        tasks = list(await self.runtime.store.tasks.orphans())
        random.shuffle(tasks)
        for task in tasks:
            await self.take(task)

    async def take(self, task: str) -> None:
        """Take over a task if its worker died: run it again, or store that it failed."""
        claimed = await self.runtime.store.tasks.claim(task)
        if claimed is None:
            return
        stored = StoredTask.read(claimed.record)
        if stored.task["status"] not in TERMINAL:
            note = _read(claimed)
            if note is None:
                await self.fail(stored)
            else:
                logger.info("task %s: its worker died; it runs again", task[:8])
                self._run_again(EarlierRun(task, note), stored)

    def _run_again(self, earlier: EarlierRun, stored: StoredTask) -> None:
        note, runtime = earlier.note, self.runtime
        exchange = Exchange(
            id="task",
            service=runtime.app,
            link=SilentLink(),
            runtime=runtime,
            principal=note.principal,
            owner=note.owner,
            on_end=[partial(self._answered, earlier, stored)],
        )
        exchange.data[EARLIER] = earlier
        exchange.deliver_nowait(note.request)

    def _answered(self, earlier: EarlierRun, stored: StoredTask) -> None:
        """Handle the end of the request that continues a task: the task must have begun again."""
        if not earlier.begun:
            self.runtime.supervisor.nursery.start_soon(self.fail, stored, name=f"task {earlier.task[:8]}")

    async def fail(self, stored: StoredTask) -> None:
        """Store that a task failed, because its process died, and tell those that listen to it."""
        stored.task = failed(stored.task, INTERNAL_ERROR, STOPPED)
        stored.put(self.runtime.store.tasks, stored.owner)
        await self.runtime.store.flush()
        self.runtime.bus.publish(topic(stored.task["taskId"]), stored.task)


def _read(claimed: ClaimedTask) -> TaskNote | None:
    if not claimed.note:
        return None
    try:
        return TaskNote.read(claimed.note)
    except msgspec.DecodeError:
        logger.warning("a task of another version of mcptrio cannot run again here")
        return None
