"""The durable store of one process: one SQLite file, one writer, events stored before they are seen.

`GroupCommit` has the streams and the writer; this module runs the file in threads. A commit costs one thread hop and
one fsync for any number of events.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

import trio

from mcptrio._settings import check_value
from mcptrio.stores._backend import BackendFailed, CommitGroup, Contents, StoredSession
from mcptrio.stores._file_directory import FileDirectory
from mcptrio.stores._group_commit import GroupCommit
from mcptrio.stores._sqlite_file import FileGone, SqliteFile, is_damage
from mcptrio.stores._streams import open_tasks
from mcptrio.stores.base import StoreLimits, StreamKey

FETCH_BYTES: Final = 512 * 1024
RETRY_AFTER: Final = (0.5, 1.0, 2.0, 4.0, 5.0)
CHECK_FILE_EVERY: Final = 5.0

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SqliteStore(GroupCommit):
    """Streams, sessions, tasks and marks in one file, open in one place at a time."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limits: StoreLimits | None = None,
        on_state: Callable[[str | None], None] | None = None,
    ) -> None:
        check_value("path", path, str | os.PathLike)
        check_value("limits", limits, StoreLimits | None)
        check_value("on_state", on_state, Callable | None)
        self._file = SqliteFile(path, limits or StoreLimits())
        backend = FileBackend(self._file)
        super().__init__(backend, limits, on_state)
        self.sessions = FileDirectory(
            self._home, claim=backend.claim, load=self._streams.adopt, unload=self._streams.unload, flush=self.flush
        )
        self.tasks, self.marks = self._tables.tasks, self._tables.marks

    @property
    def moved_aside(self) -> Path | None:
        """The path that a damaged file was moved to; its streams cannot be resumed."""
        return self._file.moved_aside


class FileBackend:
    """A file as the backend of a store.   Owns: the threads that write and read."""

    expires_records = False

    def __init__(self, file: SqliteFile) -> None:
        self.name = str(file.path)
        self.retry_after: Sequence[float] = RETRY_AFTER
        self._file = file
        self._write_thread = trio.CapacityLimiter(1)  # not the threads of handlers, which could starve the store
        self._read_thread = trio.CapacityLimiter(1)

    @asynccontextmanager
    async def open(self, secret: bytes, on_damage: Callable[[str], None]) -> AsyncIterator[Contents]:
        contents = await self._in_thread(self._file.open, secret)

        async def check() -> None:
            """Notice that the file was removed or replaced, also while nothing is written."""
            while True:
                await trio.sleep(CHECK_FILE_EVERY)
                if not await trio.to_thread.run_sync(self._file.is_in_place, limiter=self._read_thread):
                    on_damage(f"{self._file.path.name} was removed or replaced")

        try:
            async with open_tasks(check):
                yield contents
        finally:
            try:
                with trio.move_on_after(5, shield=True):
                    await self._in_thread(self._file.close)
            finally:
                self._file.close()  # does nothing unless the deadline came first

    async def commit(self, group: CommitGroup) -> Sequence[int]:
        await self._write(self._file.commit, group)
        return [change.last for change in group.streams]

    async def claim(self, session: str) -> StoredSession | None:
        return await self._write(self._file.claim, session)

    async def tidy(self) -> None:
        await self._write(self._file.tidy)

    async def _write(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        try:
            return await self._in_thread(function, *args)
        except sqlite3.Error as error:
            damaged = is_damage(error) or isinstance(error, FileGone)
            raise BackendFailed(f"{self._file.path.name}: {error}", damaged=damaged) from error

    async def fetch(self, key: StreamKey, serial: int, after: int, upto: int) -> list[bytes]:
        try:
            return await trio.to_thread.run_sync(
                self._file.read, serial, after, upto, FETCH_BYTES, limiter=self._read_thread
            )
        except sqlite3.Error as error:
            raise BackendFailed(str(error), damaged=is_damage(error)) from error

    async def start_afresh(self, secret: bytes) -> None:
        try:
            await self._in_thread(self._file.replace, secret)
        except (sqlite3.Error, OSError) as error:
            raise BackendFailed(f"no new file: {error}") from error

    async def _in_thread(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return await trio.to_thread.run_sync(function, *args, limiter=self._write_thread)
