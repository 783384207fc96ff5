"""The session directory in the file of a store: every claim of a known session succeeds, because no one else has it.

A session that was released has no trace in memory: its record and its streams are read from the file when it is
claimed.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from mcptrio.errors import Overloaded
from mcptrio.stores._backend import BackendFailed, SessionRow, StoredSession, StreamRow
from mcptrio.stores._home_sessions import HomeSessions
from mcptrio.stores.base import Claimed, HomeAt


class FileDirectory:
    """The sessions of one file.   Borrows: the sessions at home here, and the functions of the store."""

    def __init__(
        self,
        home: HomeSessions,
        *,
        claim: Callable[[str], Awaitable[StoredSession | None]],
        load: Callable[[StreamRow, str], object],
        unload: Callable[[str], None],
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self._home = home
        self._claim = claim
        self._load = load
        self._unload = unload
        self._flush = flush

    async def claim(self, session: str, /, denied: HomeAt | None = None) -> Claimed | None:
        await self._flush()
        if session in self._home.changes:  # it cannot be written at present
            waiting = self._home.changes[session]
            if waiting is None:
                return None
            raise Overloaded("the store is not available", retry_after=1, limit="store")
        try:
            found = await self._claim(session)
        except BackendFailed as error:
            raise Overloaded("the store is not available", retry_after=1, limit="store") from error
        if found is None:
            return None
        self._home.hold(found.row)
        self._unload(session)  # what an object that is gone has left
        for stream in found.streams:
            self._load(stream, found.row.owner)
        calls = {stream.key.stream: stream.call for stream in found.streams if stream.call is not None}
        row = found.row
        return Claimed(
            epoch=row.epoch, record=row.record, owner=row.owner, previous=found.previous, calls=calls, left=found.left
        )

    def put(self, session: str, epoch: int, record: bytes, /, *, owner: str = "", pinned: bool = False) -> None:
        self._home.put(SessionRow(session, epoch, record, owner, pinned))

    async def release(self, session: str, epoch: int, record: bytes, /, *, ttl: float) -> bool:
        row = self._home.find(session)
        if row is not None:
            self._home.release(SessionRow(session, epoch, record, row.owner, row.pinned, time.time() + ttl))
        await self._flush()
        if session in self._home.changes:
            return False
        self._unload(session)
        return True

    def forget(self, session: str, epoch: int, /) -> None:
        self._home.forget(session)
