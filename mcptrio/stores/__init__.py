"""Stores of events, sessions, tasks and marks: in memory, or in one SQLite file.

`mcptrio.stores.sqlite` is imported only when it is used.
"""

from __future__ import annotations

from mcptrio.errors import DeclarationError
from mcptrio.stores.base import (
    Bus,
    EventStore,
    Follower,
    LaggedBehind,
    Marks,
    SessionDirectory,
    Store,
    StoredEvent,
    StoreFailed,
    StoreLimits,
    StreamKey,
    Subscription,
    TaskStore,
    UnknownCursor,
)
from mcptrio.stores.memory import MemoryBus, MemoryStore

__all__ = [
    "Bus",
    "EventStore",
    "Follower",
    "LaggedBehind",
    "Marks",
    "MemoryBus",
    "MemoryStore",
    "SessionDirectory",
    "Store",
    "StoreFailed",
    "StoreLimits",
    "StoredEvent",
    "StreamKey",
    "Subscription",
    "TaskStore",
    "UnknownCursor",
    "open_store",
]


def open_store(url: str, *, limits: StoreLimits | None = None) -> Store:
    """Create the store that a setting names: `memory`, `sqlite:///relative.db` or `sqlite:////absolute/path.db`.

    No file is touched before `async with store.open()`.

    Raises:
        DeclarationError: the text is none of these.
    """
    if url == "memory":
        return MemoryStore(limits)
    scheme, found, path = url.partition(":///")
    if scheme == "sqlite" and found and path and not path.endswith("/"):
        from mcptrio.stores.sqlite import SqliteStore  # sqlite3 costs start-up time

        return SqliteStore(path, limits=limits)
    raise DeclarationError(
        f"{url!r} is not a store: write memory, sqlite:///relative.db or sqlite:////absolute/path.db (three slashes, "
        "then the path)"
    )
