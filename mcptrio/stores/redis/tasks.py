"""Tasks in Redis: all processes read them there, and a task that runs has a home worker and an epoch.

`put` never waits: the group commit writes it. A table in memory holds what this process wrote, to share the bounds
between owners, to answer while the server is down, and to write everything again if the server was emptied. Each worker
has a set of the tasks that run in it, and one set names the workers that have tasks: the tasks of a worker that died
are found there until each has been claimed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from mcptrio._struct import Entity
from mcptrio._wire.resp import Argument
from mcptrio.stores._records import RecordChanges, Records, Row
from mcptrio.stores.base import ClaimedTask
from mcptrio.stores.redis import scripts
from mcptrio.stores.redis.connection import RedisConnection, StoreUnavailable
from mcptrio.stores.redis.directory import RedisDirectory
from mcptrio.stores.redis.keys import Keys


class HeldTask(Entity):
    """A task that runs in this worker."""

    epoch: int
    note: bytes
    over: bool = False
    """Whether its end waits to be written."""


class SharedTasks:
    """The tasks of an endpoint.   Borrows: the connection, the table of what this process wrote, the directory."""

    def __init__(
        self,
        own: Records,
        changes: RecordChanges[Row],
        flush: Callable[[], Awaitable[None]],
        connection: RedisConnection,
        keys: Keys,
        directory: RedisDirectory,
    ) -> None:
        self._on_lost: Callable[[str], None] = lambda task: None
        self._own = own
        self._changes = changes
        self._flush = flush
        self._connection = connection
        self._keys = keys
        self._directory = directory
        self._held: dict[str, HeldTask] = {}

    def __len__(self) -> int:
        return len(self._own)

    # -- the protocol

    def when_lost(self, callback: Callable[[str], None], /) -> None:
        self._on_lost = callback

    def put(
        self, id: str, data: bytes, /, ttl: float | None = None, *, owner: str = "", note: bytes | None = None
    ) -> None:
        held = self._held.get(id)
        if note is not None:
            if held is None:
                self._held[id] = HeldTask(0, note)
            else:
                held.note = note
        elif held is not None:
            held.over = True
        self._own.put(id, data, ttl, owner=owner)

    def drop(self, id: str, /) -> None:
        self._own.drop(id)
        self._changes.note(id, None)  # also if another process has written it

    def let_go(self, id: str, /) -> None:
        self._held.pop(id, None)
        self._own.let_go(id)

    async def get(self, id: str, /) -> bytes | None:
        if id in self._changes:
            await self._flush()
            if id in self._changes:  # it cannot be written at present
                return self._own.find(id)
        try:
            found: bytes | None = await self._connection.ask("HGET", self._keys.task(id), "record")
        except StoreUnavailable:
            found = self._own.find(id)
            if found is None:
                raise
        return found

    async def claim(self, id: str, /) -> ClaimedTask | None:
        if id in self._held or not self._directory.joined or self._directory.restoring:
            return None
        worker = self._directory.worker
        keys = (self._keys.task(id), self._keys.workers, self._keys.tasks_of(worker), self._keys.homes)
        command = scripts.CLAIM_TASK.command(keys, id, worker, self._keys.tasks_of(""))
        with trio.CancelScope(shield=True):  # a task that was claimed without this process knowing would never end
            reply: list[Any] | None = await self._connection.ask(*command)
        if reply is None:
            return None
        epoch, record, note, left = reply
        self._held[id] = HeldTask(epoch, note)
        self._own.hold(id, record, left / 1000, "")
        return ClaimedTask(record, note)

    async def home(self, id: str, /) -> str | None:
        found: bytes | None = await self._connection.ask("HGET", self._keys.task(id), "home")
        return None if not found or found == self._directory.worker.encode() else found.decode()

    async def orphans(self) -> Sequence[str]:
        directory = self._directory
        if directory.restoring or not directory.joined:
            return ()
        homes, workers = await self._connection.ask_all(
            [("SMEMBERS", self._keys.homes), ("HGETALL", self._keys.workers)]
        )
        dead = [home.decode() for home in homes if home not in workers]
        if not dead:
            return ()
        found = await self._connection.ask_all([("SMEMBERS", self._keys.tasks_of(worker)) for worker in dead])
        return [task.decode() for tasks in found for task in tasks]

    # -- for the store

    def start_over(self) -> None:
        """Lose every task that runs here: this worker was declared dead."""
        for id in list(self._held):
            self._lose(id)

    def command(self, id: str, row: Row | None, left: int) -> tuple[Argument, ...]:
        """Return the command that writes a change of a task, which is kept for `left` milliseconds."""
        held = self._held.get(id)
        runs = held is not None and not held.over and self._directory.member
        worker = self._directory.worker
        return scripts.PUT_TASK.command(
            (self._keys.task(id), self._keys.tasks_of(worker), self._keys.homes),
            id,
            b"" if row is None else row[1],
            left,
            "" if held is None else held.epoch,
            worker,
            int(runs),
            b"" if held is None else held.note,
        )

    def written(self, id: str, row: Row | None, reply: int) -> None:
        """Handle the reply to `command`."""
        held = self._held.get(id)
        if not reply:
            self._lose(id)
        elif held is not None and (row is None or held.over) and id not in self._changes:
            del self._held[id]

    def _lose(self, id: str) -> None:
        if id in self._held:
            self.let_go(id)
            self._on_lost(id)
