"""The SQLite file behind a durable store: opening, committing, reading. Plain blocking code, run in threads.

Write-ahead log and `synchronous=FULL`: a commit that returned survives a power cut. One connection writes, one reads,
so a replay does not wait for a commit. The file belongs to one process at a time, ensured by a lock file next to it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mcptrio.errors import DeclarationError
from mcptrio.stores import _sqlite_sessions as sessions
from mcptrio.stores._backend import CommitGroup, Contents, StoredSession
from mcptrio.stores.base import StoreFailed, StoreLimits

logger = logging.getLogger(__name__)

APPLICATION_ID: Final = 0x4D435054  # "MCPT"
VERSION: Final = 5
BUSY_TIMEOUT: Final = 2.0
DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

MAGIC: Final = b"SQLite format 3\0"
_ID_AT: Final = 68  # where the header holds the application id

_TASKS_2: Final = "(task TEXT PRIMARY KEY, record BLOB NOT NULL, expires REAL) WITHOUT ROWID"
_MARKS_3: Final = "(mark TEXT PRIMARY KEY, record BLOB NOT NULL, expires REAL) WITHOUT ROWID"
_OWNER: Final = "owner TEXT NOT NULL DEFAULT ''"
_WERE_MARKS: Final = "FROM sessions WHERE session GLOB 'once *' OR session GLOB 'state *'"
_SESSIONS_5: Final = (
    "epoch INTEGER NOT NULL DEFAULT 0",
    "pinned INTEGER NOT NULL DEFAULT 0",
    "expires REAL",
    "home TEXT NOT NULL DEFAULT ''",
)
_STREAMS_5: Final = ("call BLOB", "ended REAL")
_BY_SESSION: Final = "CREATE INDEX streams_of_session ON streams (session)"
UPGRADES: Final = {
    1: f"CREATE TABLE IF NOT EXISTS tasks {_TASKS_2}",  # later files of this layout have the table already
    2: f"CREATE TABLE marks {_MARKS_3}; "
    f"INSERT INTO marks SELECT session, record, strftime('%s') + 3600 {_WERE_MARKS}; DELETE {_WERE_MARKS}",
    3: "; ".join(f"ALTER TABLE {table} ADD COLUMN {_OWNER}" for table in ("sessions", "tasks", "marks")),
    4: "; ".join(
        [f"ALTER TABLE sessions ADD COLUMN {column}" for column in _SESSIONS_5]
        + [f"ALTER TABLE streams ADD COLUMN {column}" for column in _STREAMS_5]
        + [_BY_SESSION]
    ),
}
"""For each layout, the statements that convert it to the next one."""

# A session that is at home in a process has no expiry, and a running stream no end: if the process dies, their age
# counts from the restart. So a long outage expires none before its client could return.
SCHEMA: Final = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, stream TEXT NOT NULL,
    floor INTEGER NOT NULL, last INTEGER NOT NULL, size INTEGER NOT NULL, {", ".join(_STREAMS_5)}
);
{_BY_SESSION};
CREATE TABLE events (
    stream INTEGER NOT NULL, seq INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (stream, seq)
) WITHOUT ROWID;
CREATE TABLE sessions (
    session TEXT PRIMARY KEY, record BLOB NOT NULL, {_OWNER}, {", ".join(_SESSIONS_5)}
) WITHOUT ROWID;
CREATE TABLE tasks (task TEXT PRIMARY KEY, record BLOB NOT NULL, expires REAL, {_OWNER}) WITHOUT ROWID;
CREATE TABLE marks (mark TEXT PRIMARY KEY, record BLOB NOT NULL, expires REAL, {_OWNER}) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""
SAVE_STREAM: Final = """
INSERT INTO streams (id, session, stream, floor, last, size, call, ended) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET floor = excluded.floor, last = excluded.last, size = excluded.size,
    call = excluded.call, ended = COALESCE(ended, excluded.ended)
"""
SAVE_TASK: Final = "INSERT OR REPLACE INTO tasks (task, record, expires, owner) VALUES (?, ?, ?, ?)"
SAVE_MARK: Final = "INSERT OR REPLACE INTO marks (mark, record, expires, owner) VALUES (?, ?, ?, ?)"
DELETE_TASK: Final = "DELETE FROM tasks WHERE task = ?"
DELETE_MARK: Final = "DELETE FROM marks WHERE mark = ?"


class SqliteFile:
    """One SQLite file. `commit` is called by one thread at a time; `read` and `is_in_place` may run next to it."""

    def __init__(self, path: str | os.PathLike[str], limits: StoreLimits) -> None:
        if os.fspath(path) in ("", ":memory:"):
            text = f"a store in {os.fspath(path)!r} would not be durable: name a file"
            raise DeclarationError(f"{text}, or use MemoryStore() (--store memory)")
        self.path = Path(path)
        self.limits = limits
        self._home = ""  # names this opening, to tell its sessions from those of a process that died
        self.moved_aside: Path | None = None
        self._identity: tuple[int, int] | None = None  # device and inode of the file that is open
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._reading = threading.Lock()
        self._lock_file: int | None = None

    def open(self, secret: bytes) -> Contents:
        """Open or create the file; `secret` is for a new one. Move a damaged store aside and create an empty file.

        Raises:
            StoreFailed: the file cannot be used, or is not a store.
        """
        if not self.path.parent.is_dir():
            raise StoreFailed(f"cannot open the store {self.path}: there is no directory {self.path.parent}")
        try:
            ours = self._check_header()
            self._take_lock()
            try:
                return self._connect(secret)
            except sqlite3.Error as error:
                if not (ours and is_damage(error)):
                    raise
                return self._start_empty(secret)
        except sqlite3.Error as error:
            self.close()
            text = f"cannot open the store {self.path}: {error}; the file and its directory must be writable"
            if is_damage(error):
                text = _not_a_store(self.path)
            raise StoreFailed(text) from error
        except OSError as error:
            self.close()
            raise StoreFailed(f"cannot write to the store {self.path}: {error.strerror or error}") from error
        except StoreFailed:
            self.close()
            raise

    def _check_header(self) -> bool:
        """Check that the file is empty, missing or an SQLite database; return whether a store wrote it."""
        try:
            with open(self.path, "rb") as file:
                header = file.read(_ID_AT + 4)
        except FileNotFoundError:
            return False
        if header and not header.startswith(MAGIC):
            raise StoreFailed(_not_a_store(self.path))
        return header[_ID_AT:] == APPLICATION_ID.to_bytes(4, "big")

    def is_in_place(self) -> bool:
        """Return whether the path still names the file that is open."""
        return self._found() == self._identity

    def replace(self, secret: bytes) -> Contents:
        """Start an empty file in place of one that was found damaged, or was removed, while it was open.

        Raises:
            StoreFailed: another file has taken its place, which is left alone.
        """
        if self._found() not in (None, self._identity):
            raise StoreFailed(f"another file has been put in place of {self.path.name}: move it away")
        return self._start_empty(secret)

    def _start_empty(self, secret: bytes) -> Contents:
        self._disconnect()
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.corrupt-{number}")).exists():
            number += 1
        removed = self._found() is None
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{self.path}{suffix}", f"{aside}{suffix}")
        if removed:
            logger.error("the store %s was removed: started an empty file", self.path)
        else:
            logger.error("the store %s is damaged: moved it to %s and started an empty file", self.path, aside.name)
            self.moved_aside = aside
        return self._connect(secret)

    def _found(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def commit(self, group: CommitGroup) -> None:
        """Write a group, all of it or nothing; return when it is on disk.

        Raises:
            FileGone: the file was removed or replaced: SQLite would go on writing to one that has no name.
        """
        streams, removed, now = group.streams, [(serial,) for _, serial in group.removed], time.time()
        with self._changing() as write:
            # Trims come last: a stream may have outgrown its bounds within this group.
            write.executemany(
                "INSERT OR REPLACE INTO events (stream, seq, data) VALUES (?, ?, ?)",
                ((s.serial, seq, data) for s in streams for seq, data in enumerate(s.events, s.start + 1)),
            )
            write.executemany(
                SAVE_STREAM,
                (
                    (s.serial, s.key.session, s.key.stream, s.floor, s.last, s.size, s.call, now if s.ended else None)
                    for s in streams
                ),
            )
            write.executemany(
                "DELETE FROM events WHERE stream = ? AND seq <= ?", ((s.serial, s.floor) for s in streams if s.trims)
            )
            write.executemany("DELETE FROM events WHERE stream = ?", removed)
            write.executemany("DELETE FROM streams WHERE id = ?", removed)
            sessions.save(write, group.sessions, self._home, self.limits)
            for delete, save, rows in (
                (DELETE_TASK, SAVE_TASK, group.tasks),
                (DELETE_MARK, SAVE_MARK, group.marks),
            ):
                write.executemany(delete, ((id,) for id, row in rows.items() if row is None))
                write.executemany(save, filter(None, rows.values()))

    def claim(self, session: str) -> StoredSession | None:
        """Become the home of a session; None if there is no such session."""
        with self._changing() as write:
            return sessions.claim(write, session, self._home, time.time())

    def tidy(self) -> None:
        """Remove what has expired and what exceeds the bounds."""
        with self._changing() as write:
            sessions.tidy(write, time.time(), self.limits)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Cursor]:
        if self._writer is None:
            raise sqlite3.OperationalError("the file is not open")
        if not self.is_in_place():
            raise FileGone("the file was removed or replaced")
        with _transaction(self._writer) as write:
            yield write

    def read(self, stream: int, after: int, upto: int, most_bytes: int) -> list[bytes]:
        """Read the events after `after` without a gap: about `most_bytes`, but at least one if there is one."""
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
        # The file holds a secret and users' data; SQLite gives its side files the same mode.
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        self._identity = self._found()
        self._writer = writer = _connection(self.path)
        owner, version = _pragma(writer, "application_id"), _pragma(writer, "user_version")
        if owner not in (0, APPLICATION_ID) or (owner == 0 and _pragma(writer, "schema_version")):
            raise StoreFailed(f"{self.path} belongs to another application: give the store a file of its own")
        if owner == APPLICATION_ID and version < 1:
            raise StoreFailed(f"{self.path} has layout {version}, which never existed: move it away")
        if version > VERSION:
            raise StoreFailed(f"{self.path} was written by a newer version of mcptrio (layout {version})")
        if writer.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            logger.warning("the store %s is on a file system without shared memory and will be slow", self.path)
        writer.execute("PRAGMA synchronous = FULL")
        writer.execute(f"PRAGMA journal_size_limit = {16 * 2**20}")
        with _transaction(writer) as write:  # also fails now, not at the first event, if the file cannot be written
            if owner == 0:
                for statement in SCHEMA.split(";"):
                    write.execute(statement)
            elif version < VERSION:
                for layout in range(version, VERSION):
                    for statement in UPGRADES[layout].split(";"):
                        write.execute(statement)
                write.execute(f"PRAGMA user_version = {VERSION}")
                logger.info("converted the store %s from layout %d to %d", self.path, version, VERSION)
            write.execute("INSERT OR IGNORE INTO meta (name, value) VALUES ('secret', ?)", (secret,))
            (kept,) = write.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()
            now, alone = time.time(), "session NOT IN (SELECT session FROM sessions)"
            sessions.take_over(write, now, self.limits)
            sessions.tidy(write, now, self.limits)
            (serial,) = write.execute("SELECT COALESCE(MAX(id), 0) FROM streams").fetchone()
            streams = tuple(sessions.read_streams(write, f"{sessions.STREAM} WHERE {alone} ORDER BY id", (), now))
            tasks = write.execute("SELECT task, record, expires, owner FROM tasks").fetchall()
            marks = write.execute("SELECT mark, record, expires, owner FROM marks").fetchall()
        with self._reading:
            self._reader = _connection(self.path)
            self._reader.execute("PRAGMA query_only = 1")
        self._home = secrets.token_urlsafe(9)
        return Contents(secret=kept, serial=serial, streams=streams, tasks=tasks, marks=marks)

    def _disconnect(self) -> None:
        with self._reading:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    with contextlib.suppress(sqlite3.Error):
                        connection.close()
            self._reader = self._writer = None

    def _take_lock(self) -> None:
        """Ensure that no other process has the file: it would treat our running streams as abandoned."""
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
                    raise StoreFailed(f"the store {self.path} is in use by another process, or opened twice") from None
                time.sleep(0.05)
            else:
                return


class FileGone(sqlite3.OperationalError):
    """The database file was removed or replaced while it was open."""


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether the file itself is broken, rather than in use, full or out of reach."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in DAMAGED


def _not_a_store(path: Path) -> str:
    return (
        f"{path} is not an SQLite database, or is damaged and not recognizable as a store: name another file, "
        "or move this one away"
    )


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
