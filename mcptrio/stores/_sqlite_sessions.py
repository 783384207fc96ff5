"""The sessions of an SQLite file: saving, claiming, expiry and bounds. Each function is part of a transaction.

A session that is at home in the process that has the file open has no expiry; a released one has. The sessions of a
process that died are found without an expiry when the file is opened, and get one then: they are kept for a while.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mcptrio.stores._backend import SessionRow, StoredSession, StreamRow
from mcptrio.stores.base import StoreLimits, StreamKey

SAVE: Final = """
INSERT OR REPLACE INTO sessions (session, epoch, record, owner, pinned, expires, home) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
FIND: Final = "SELECT epoch, record, owner, pinned, expires, home FROM sessions WHERE session = ?"
CLAIM: Final = "UPDATE sessions SET epoch = ?, home = ?, expires = NULL WHERE session = ?"
EXPIRED: Final = "SELECT session FROM sessions WHERE expires <= ?"
# Of those that can go, the one that was released first, of the owner that has most.
FIRST_TO_GO: Final = """
SELECT session FROM sessions WHERE expires IS NOT NULL AND owner = (
    SELECT owner FROM sessions GROUP BY owner HAVING COUNT(expires) > 0 ORDER BY COUNT(*) DESC, owner LIMIT 1
) ORDER BY expires, session LIMIT 1
"""
STREAM: Final = "SELECT id, session, stream, floor, last, size, call, ended FROM streams"
IDLE_STREAM: Final = """
SELECT streams.id, size FROM streams JOIN sessions USING (session)
WHERE sessions.expires IS NOT NULL AND streams.ended IS NOT NULL AND owner = (
    SELECT owner FROM streams JOIN sessions USING (session) GROUP BY owner
    HAVING COUNT(CASE WHEN sessions.expires IS NOT NULL AND streams.ended IS NOT NULL THEN 1 END) > 0
    ORDER BY TOTAL(size) + COUNT(*) * ? DESC LIMIT 1
) ORDER BY streams.ended LIMIT 100
"""


def take_over(write: sqlite3.Cursor, now: float, limits: StoreLimits) -> None:
    """Give the sessions of a process that died a time to be claimed in, and end streams that nothing can continue."""
    _drop(write, write.execute("SELECT session FROM sessions WHERE pinned AND expires IS NULL").fetchall())
    write.execute("UPDATE sessions SET expires = ? WHERE expires IS NULL", (now + limits.session_age,))
    write.execute(
        "UPDATE streams SET ended = ? WHERE ended IS NULL AND session NOT IN (SELECT session FROM sessions)", (now,)
    )


def save(write: sqlite3.Cursor, rows: Mapping[str, SessionRow | None], home: str, limits: StoreLimits) -> None:
    """Write the changes of sessions, and keep within the bound of their number."""
    if not rows:
        return
    _drop(write, ((session,) for session, row in rows.items() if row is None))
    write.executemany(
        SAVE,
        (
            (
                row.session,
                row.epoch,
                row.record,
                row.owner,
                row.pinned,
                row.expires,
                home if row.expires is None else "",
            )
            for row in rows.values()
            if row is not None
        ),
    )
    (count,) = write.execute("SELECT COUNT(*) FROM sessions").fetchone()
    for _ in range(count - limits.sessions):
        _drop(write, write.execute(FIRST_TO_GO).fetchall())


def claim(write: sqlite3.Cursor, session: str, home: str, now: float) -> StoredSession | None:
    """Become the home of a session; None if there is no such session."""
    found = write.execute(FIND, (session,)).fetchone()
    if found is None:
        return None
    epoch, record, owner, pinned, expires, previous = found
    if expires is not None and expires <= now:
        _drop(write, [(session,)])
        return None
    write.execute(CLAIM, (epoch + 1, home, session))
    row = SessionRow(session, epoch + 1, record, owner, bool(pinned))
    streams = tuple(read_streams(write, f"{STREAM} WHERE session = ? ORDER BY id", (session,), now))
    left = None if expires is None else expires - now
    return StoredSession(row, "" if previous == home else previous, streams, left)


def read_streams(write: sqlite3.Cursor, query: str, values: tuple[str, ...], now: float) -> Iterator[StreamRow]:
    for serial, session, name, floor, last, size, call, ended in write.execute(query, values).fetchall():
        sizes: tuple[int, ...] = ()
        if ended is None:
            lengths = write.execute(
                "SELECT LENGTH(data) FROM events WHERE stream = ? AND seq > ? ORDER BY seq", (serial, floor)
            )
            sizes = tuple(length for (length,) in lengths)
        age = None if ended is None else max(0.0, now - ended)
        yield StreamRow(StreamKey(session, name), serial, floor, last, size, call, age, sizes)


def tidy(write: sqlite3.Cursor, now: float, limits: StoreLimits) -> None:
    """Remove expired sessions, ended streams that are old, and those that exceed the bounds of the store."""
    _drop(write, write.execute(EXPIRED, (now,)).fetchall())
    old = write.execute("SELECT id FROM streams WHERE ended <= ?", (now - limits.stream_age,)).fetchall()
    _drop_streams(write, old)
    count, size = write.execute("SELECT COUNT(*), TOTAL(size) FROM streams").fetchone()
    while count > limits.streams or size > limits.total_bytes:
        some = write.execute(IDLE_STREAM, (limits.total_bytes // limits.streams,)).fetchall()
        if not some:
            break  # the others are in memory, which bounds them
        _drop_streams(write, ((serial,) for serial, _ in some))
        count, size = count - len(some), size - sum(weight for _, weight in some)


def _drop(write: sqlite3.Cursor, sessions: Iterable[tuple[str]]) -> None:
    for (session,) in sessions:
        streams = write.execute("SELECT id FROM streams WHERE session = ?", (session,)).fetchall()
        _drop_streams(write, streams)
        write.execute("DELETE FROM sessions WHERE session = ?", (session,))


def _drop_streams(write: sqlite3.Cursor, serials: Iterable[tuple[int]]) -> None:
    for serial in serials:
        write.execute("DELETE FROM events WHERE stream = ?", serial)
        write.execute("DELETE FROM streams WHERE id = ?", serial)
