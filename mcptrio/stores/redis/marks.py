"""Marks in Redis. All processes read them there; each bounds what it writes itself.

`done` never waits: the group commit writes it. A table in memory holds what this process wrote, to share the
bounds between owners, to answer while the server is down, and to write everything again if the server was emptied.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from mcptrio._actors.store import WORKER_MARK
from mcptrio.stores._records import MarkTable, RecordChanges, Row, mark_id
from mcptrio.stores.base import MarkKind
from mcptrio.stores.redis import scripts
from mcptrio.stores.redis.connection import RedisConnection, StoreUnavailable
from mcptrio.stores.redis.keys import Keys

Flush = Callable[[], Awaitable[None]]


class SharedMarks:
    """The marks of an endpoint: of all processes, one is the first to use a mark."""

    def __init__(
        self, own: MarkTable, changes: RecordChanges[Row], flush: Flush, connection: RedisConnection, keys: Keys
    ) -> None:
        self._own = own
        self._changes = changes
        self._flush = flush
        self._connection = connection
        self._keys = keys

    def __len__(self) -> int:
        return len(self._own)

    async def use(self, kind: MarkKind, mark: str, value: bytes, ttl: float, *, owner: str = "") -> bytes | None:
        key = await self._key(kind, mark)
        of_worker = WORKER_MARK if kind == "state" else b""
        command = scripts.MARK.command((key, self._keys.workers), value, max(1, int(ttl * 1000)), of_worker)
        with trio.CancelScope(shield=True):  # a caller that is cancelled must know whether it has set the mark
            found: bytes | None = await self._connection.ask(*command)
        if found is None and kind != "dpop":  # a proof counts until it expires, whatever else is used meanwhile
            self._own.hold(kind, mark, value, ttl, owner=owner)
        return found

    def done(self, kind: MarkKind, mark: str, value: bytes, ttl: float, *, owner: str = "") -> None:
        self._own.done(kind, mark, value, ttl, owner=owner)

    def drop(self, kind: MarkKind, mark: str) -> None:
        self._own.drop(kind, mark)
        self._changes.note(mark_id(kind, mark), None)

    async def get(self, kind: MarkKind, mark: str) -> bytes | None:
        found: bytes | None = await self._connection.ask("GET", await self._key(kind, mark))
        return found

    async def _key(self, kind: MarkKind, mark: str) -> str:
        id = mark_id(kind, mark)
        if id in self._changes:
            await self._flush()
            if id in self._changes:
                raise StoreUnavailable("a mark cannot be written at present")
        return self._keys.mark(id)
