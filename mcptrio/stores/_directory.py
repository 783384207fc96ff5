"""The session directory of a store that one process uses: every claim of a known session succeeds."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mcptrio.stores._records import Records
from mcptrio.stores.base import Claimed, HomeAt


class DirectoryEntry(Struct, frozen=True, array_like=True):
    """A session in the table of records."""

    epoch: int
    owner: str
    record: bytes


class LocalDirectory:
    """The session directory of one process, in memory.   Borrows: the table of records."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def claim(self, session: str, /, denied: HomeAt | None = None) -> Claimed | None:
        found = await self._records.get(session)
        if found is None:
            return None
        entry = msgspec.msgpack.decode(found, type=DirectoryEntry)
        self.put(session, entry.epoch + 1, entry.record, owner=entry.owner)
        return Claimed(epoch=entry.epoch + 1, record=entry.record, owner=entry.owner)

    def put(self, session: str, epoch: int, record: bytes, /, *, owner: str = "", pinned: bool = False) -> None:
        self._put(session, DirectoryEntry(epoch, owner, record), None)

    async def release(self, session: str, epoch: int, record: bytes, /, *, ttl: float) -> bool:
        found = await self._records.get(session)
        if found is not None:
            owner = msgspec.msgpack.decode(found, type=DirectoryEntry).owner
            self._put(session, DirectoryEntry(epoch, owner, record), ttl)
        return True

    def forget(self, session: str, epoch: int, /) -> None:
        self._records.drop(session)

    def _put(self, session: str, entry: DirectoryEntry, ttl: float | None) -> None:
        self._records.put(session, msgspec.msgpack.encode(entry), ttl, owner=entry.owner)
