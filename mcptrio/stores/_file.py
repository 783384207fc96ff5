"""The SQLite file behind a durable store: opening, committing, reading. Plain blocking code, run in threads.

Write-ahead log and `synchronous=FULL`: what `commit` returned for survives a power cut. One connection writes, one
reads, so a replay does not wait for a commit. The file belongs to one process at a time, held by a lock beside it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from mcptrio.stores.base import StoreFailed

logger = logging.getLogger(__name__)

APPLICATION_ID: Final = 0x4D435054  # "MCPT"
VERSION: Final = 2
BUSY_TIMEOUT: Final = 2.0
DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_TASKS: Final = "CREATE TABLE {} (task TEXT PRIMARY KEY, record BLOB NOT NULL, expires REAL) WITHOUT ROWID"
UPGRADES: Final = {
    1: _TASKS.format("IF NOT EXISTS tasks"),  # later files of this layout have them already
}
"""By layout, what makes it the next one."""

# No times are kept: a stream of an earlier process is over, and its age counts from the restart. So neither a wall
# clock that jumps nor a long outage lets anything expire before its client could come back. Tasks are the exception:
# a client is told when one was created and how long it lives.
SCHEMA: Final = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, stream TEXT NOT NULL,
    floor INTEGER NOT NULL, last INTEGER NOT NULL, size INTEGER NOT NULL
);
CREATE TABLE events (
    stream INTEGER NOT NULL, seq INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (stream, seq)
) WITHOUT ROWID;
CREATE TABLE sessions (session TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
{_TASKS.format("tasks")};
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""
SAVE_STREAM: Final = """
INSERT INTO streams (id, session, stream, floor, last, size) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET floor = excluded.floor, last = excluded.last, size = excluded.size
"""


@frozen(kw_only=True)
class Batch:
    """Everything that goes into one transaction, as rows."""

    events: Sequence[tuple[int, int, bytes]] = ()  # stream, seq, data
    streams: Sequence[tuple[int, str, str, int, int, int]] = ()  # id, session, stream, floor, last, size
    trimmed: Sequence[tuple[int, int]] = ()  # id, floor
    removed: Sequence[tuple[int]] = ()  # id
    records: Sequence[tuple[str, bytes]] = ()  # session, record
    dropped: Sequence[tuple[str]] = ()  # session
    tasks: Sequence[tuple[str, bytes, float | None]] = ()  # task, record, expires
    dropped_tasks: Sequence[tuple[str]] = ()  # task


@frozen(kw_only=True)
class Contents:
    """What a file held when it was opened."""

    secret: bytes
    streams: Sequence[tuple[int, str, str, int, int, int]]
    records: Sequence[tuple[str, bytes]]
    tasks: Sequence[tuple[str, bytes, float | None]]


class File:
    """One SQLite file. `commit` is called by one thread at a time; `read` may run beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.moved_aside: Path | None = None
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._reading = threading.Lock()
        self._lock_file: int | None = None

    def open(self, secret: bytes) -> Contents:
        """Opens or makes the file; a damaged one is moved aside and a fresh one started. `secret` is for a new file."""
        if not self.path.parent.is_dir():
            raise StoreFailed(f"cannot open the store {self.path}: there is no directory {self.path.parent}")
        try:
            self._take_lock()
            try:
                return self._connect(secret)
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
                return self.replace(secret)
        except sqlite3.Error as error:
            self.close()
            text = f"cannot open the store {self.path}: {error}; the file and its directory must be writable"
            raise StoreFailed(text) from error
        except OSError as error:
            self.close()
            raise StoreFailed(f"cannot write to the store {self.path}: {error.strerror or error}") from error
        except StoreFailed:
            self.close()
            raise

    def replace(self, secret: bytes) -> Contents:
        """Moves a damaged file aside and starts an empty one."""
        self._disconnect()
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.corrupt-{number}")).exists():
            number += 1
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{self.path}{suffix}", f"{aside}{suffix}")
        logger.error("the store %s is damaged: moved aside to %s and started empty", self.path, aside.name)
        self.moved_aside = aside
        return self._connect(secret)

    def commit(self, batch: Batch) -> None:
        """Writes a batch, all of it or nothing; returns when it is on disk."""
        if self._writer is None:
            raise sqlite3.OperationalError("the file is not open")
        with _transaction(self._writer) as write:
            # Trims come last: a stream may have outgrown its bounds within this batch.
            write.executemany("INSERT OR REPLACE INTO events (stream, seq, data) VALUES (?, ?, ?)", batch.events)
            write.executemany(SAVE_STREAM, batch.streams)
            write.executemany("DELETE FROM events WHERE stream = ? AND seq <= ?", batch.trimmed)
            write.executemany("DELETE FROM events WHERE stream = ?", batch.removed)
            write.executemany("DELETE FROM streams WHERE id = ?", batch.removed)
            write.executemany("DELETE FROM sessions WHERE session = ?", batch.dropped)
            write.executemany("INSERT OR REPLACE INTO sessions (session, record) VALUES (?, ?)", batch.records)
            write.executemany("DELETE FROM tasks WHERE task = ?", batch.dropped_tasks)
            write.executemany("INSERT OR REPLACE INTO tasks (task, record, expires) VALUES (?, ?, ?)", batch.tasks)

    def read(self, stream: int, after: int, upto: int, most_bytes: int) -> list[bytes]:
        """The events after `after`, without a gap, at least one if it is there, not many more than `most_bytes`."""
        found: list[bytes] = []
        with self._reading:
            if self._reader is None:
                return found
            rows = self._reader.execute(
                "SELECT seq, data FROM events WHERE stream = ? AND seq > ? AND seq <= ? ORDER BY seq",
                (stream, after, upto),
            )
            with contextlib.closing(rows):
                for seq, data in rows:
                    if most_bytes <= 0 or seq != after + 1 + len(found):
                        break
                    found.append(data)
                    most_bytes -= len(data)
        return found

    def close(self) -> None:
        self._disconnect()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _connect(self, secret: bytes) -> Contents:
        # The secret and the sessions' words are nobody else's business; SQLite gives its side files the same mode.
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        self._writer = writer = _connection(self.path)
        owner, version = _pragma(writer, "application_id"), _pragma(writer, "user_version")
        if owner not in (0, APPLICATION_ID) or (owner == 0 and _pragma(writer, "schema_version")):
            raise StoreFailed(f"{self.path} belongs to another application: give the store a file of its own")
        if owner == APPLICATION_ID and version < 1:
            raise StoreFailed(f"{self.path} says that it has layout {version}, which there never was: move it away")
        if version > VERSION:
            raise StoreFailed(f"{self.path} was written by a newer version of mcptrio (layout {version})")
        if writer.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            logger.warning("the store %s is on a file system without shared memory and will be slow", self.path)
        writer.execute("PRAGMA synchronous = FULL")
        writer.execute(f"PRAGMA journal_size_limit = {16 * 2**20}")
        with _transaction(writer) as write:  # also finds out now, not at the first event, that nothing can be written
            if owner == 0:
                for statement in SCHEMA.split(";"):
                    write.execute(statement)
            elif version < VERSION:
                for layout in range(version, VERSION):
                    write.execute(UPGRADES[layout])
                write.execute(f"PRAGMA user_version = {VERSION}")
                logger.info("the store %s was brought from layout %d to %d", self.path, version, VERSION)
            write.execute("INSERT OR IGNORE INTO meta (name, value) VALUES ('secret', ?)", (secret,))
            (kept,) = write.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()
            streams = write.execute("SELECT id, session, stream, floor, last, size FROM streams ORDER BY id").fetchall()
            records = write.execute("SELECT session, record FROM sessions").fetchall()
            tasks = write.execute("SELECT task, record, expires FROM tasks").fetchall()
        with self._reading:
            self._reader = _connection(self.path)
            self._reader.execute("PRAGMA query_only = 1")
        return Contents(secret=kept, streams=streams, records=records, tasks=tasks)

    def _disconnect(self) -> None:
        with self._reading:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    with contextlib.suppress(sqlite3.Error):
                        connection.close()
            self._reader = self._writer = None

    def _take_lock(self) -> None:
        """Makes sure that no other process has the file: it would take our running streams for abandoned ones."""
        try:
            import fcntl
        except ImportError:  # XX not on Windows: there two processes on one file go unnoticed
            return
        self._lock_file = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        deadline = time.monotonic() + BUSY_TIMEOUT
        while True:
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreFailed(f"the store {self.path} is in use by another process") from None
                time.sleep(0.05)
            else:
                return


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken, rather than in use, full or out of reach."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in DAMAGED


def _connection(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    cursor = connection.cursor()
    try:
        cursor.execute("BEGIN IMMEDIATE")
        yield cursor
        cursor.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                cursor.execute("ROLLBACK")
        raise
    finally:
        cursor.close()
