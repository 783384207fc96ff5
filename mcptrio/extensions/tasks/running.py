"""The running tasks of one runtime, and the form in which tasks are stored."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, field

from mcptrio import telemetry
from mcptrio._actors.shares import Shares
from mcptrio._actors.store import TaskStore
from mcptrio._struct import Entity
from mcptrio.errors import Overloaded

if TYPE_CHECKING:
    from mcptrio.extensions.tasks.run import TaskRun

STOPPED: Final = "the server was stopped while the task was running"


class StoredTask(Struct, kw_only=True):
    """A task in the store."""

    owner: str
    """The key of the principal that may see it; empty if callers are anonymous."""
    scopes: tuple[str, ...] = ()
    """The scopes of its tool, which a caller must hold to see or change it."""
    until: float | None
    """When it expires, in wall-clock time."""
    task: dict[str, Any]
    """The task on the wire."""

    def put(self, store: TaskStore, owner: str, note: bytes | None = None) -> None:
        """Store it; `owner` is the client whose share of the stored tasks it uses, `note` that of a running task."""
        ttl = None if self.until is None else self.until - time.time()
        store.put(self.task["taskId"], msgspec.json.encode(self), ttl, owner=owner, note=note)

    @classmethod
    def read(cls, record: bytes) -> StoredTask:
        return msgspec.json.decode(record, type=cls)


class RunningTasks(Entity):
    """The running tasks of one runtime, by id, in places that are shared fairly between the owners of the tasks."""

    places: Shares
    _runs: dict[str, TaskRun] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, task: str) -> TaskRun | None:
        return self._runs.get(task)

    async def admit(self, run: TaskRun) -> None:
        """Wait for a place for a task.

        Raises:
            Overloaded: no place became free within `Limits.busy_timeout`.
        """
        exchange = run.exchange
        if not self.places.take(exchange.owner):
            for each in tuple(self._runs.values()):
                each.expire()
            if not await self.places.wait(exchange.owner, timeout=exchange.service.limits.busy_timeout):
                if hub := exchange.service.telemetry:
                    hub.emit(telemetry.LimitHit(name="max_running", session=exchange.id))
                raise Overloaded("too many tasks are running", retry_after=10, limit="max_running")
        self._runs[run.task] = run

    def forget(self, run: TaskRun) -> None:
        """Give the place of a task back; do nothing if it has none."""
        if self._runs.pop(run.task, None) is not None:
            self.places.give_back(run.exchange.owner)

    def lose(self, task: str) -> None:
        """Stop a task that runs in another worker now, because this one was declared dead."""
        run = self._runs.get(task)
        if run is not None:
            run.give_up()

    def end_all(self) -> None:
        """Store every task that still runs as failed, because the runtime ends."""
        for run in tuple(self._runs.values()):
            if not run.leave_to_others():
                run.fail(STOPPED)
            self.forget(run)
