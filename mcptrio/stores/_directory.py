"""The session directory of a store that one process uses: every claim of a known session succeeds."""

from __future__ import annotations

import secrets
from typing import Protocol

import msgspec
from msgspec import Struct

from mcptrio.stores.base import Claimed, HomeAt


class SessionRecords(Protocol):
    """A table of records by id."""

    def put(self, id: str, data: bytes, /, ttl: float | None = None, *, owner: str = "") -> None: ...
    async def get(self, id: str, /) -> bytes | None: ...
    def drop(self, id: str, /) -> None: ...


class DirectoryEntry(Struct, frozen=True, array_like=True):
    """A session in the table: `home` is empty once it was released."""

    epoch: int
    home: str
    owner: str
    record: bytes


class LocalDirectory:
    """The session directory of one process.   Borrows: the table of records."""

    def __init__(self, records: SessionRecords) -> None:
        self._records = records
        self._home = secrets.token_urlsafe(9)

    async def claim(self, session: str, /, denied: HomeAt | None = None) -> Claimed | None:
        found = await self._records.get(session)
        if found is None:
            return None
        try:
            entry = msgspec.msgpack.decode(found, type=DirectoryEntry)
        except msgspec.DecodeError:  # of an older version
            entry = DirectoryEntry(0, "", "", found)
        self.put(session, entry.epoch + 1, entry.record, owner=entry.owner)
        previous = "" if entry.home == self._home else entry.home
        return Claimed(epoch=entry.epoch + 1, record=entry.record, owner=entry.owner, previous=previous)

    def put(self, session: str, epoch: int, record: bytes, /, *, owner: str = "", pinned: bool = False) -> None:
        self._records.put(session, _encode(epoch, self._home, owner, record), owner=owner)

    async def release(self, session: str, epoch: int, record: bytes, /, *, ttl: float) -> bool:
        found = await self._records.get(session)
        if found is not None:
            owner = msgspec.msgpack.decode(found, type=DirectoryEntry).owner
            self._records.put(session, _encode(epoch, "", owner, record), ttl, owner=owner)
        return True

    def forget(self, session: str, epoch: int, /) -> None:
        self._records.drop(session)


def _encode(epoch: int, home: str, owner: str, record: bytes) -> bytes:
    return msgspec.msgpack.encode(DirectoryEntry(epoch, home, owner, record))
