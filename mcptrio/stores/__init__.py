"""Stores of events, sessions, tasks and marks: in memory, in one SQLite file, or in Redis.

`mcptrio.stores.sqlite` and `mcptrio.stores.redis` are imported only when they are used.
"""

from __future__ import annotations

from mcptrio.errors import DeclarationError
from mcptrio.stores.base import (
    Bus,
    Claimed,
    EventStore,
    Follower,
    HomeAt,
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
    "Claimed",
    "EventStore",
    "Follower",
    "HomeAt",
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


def open_store(url: str, *, password: str | None = None, limits: StoreLimits | None = None) -> Store:
    """Create the store that a setting names: `memory`, `sqlite:///FILE.db` or `redis://HOST`.

    A path after three slashes is relative, after four absolute. `RedisStore.from_url` describes the URLs of Redis;
    `password` is for its server. No file is touched and no server asked before `async with store.open()`.

    Raises:
        DeclarationError: the text is none of these, or the store needs a package that is not installed.
    """
    if url == "memory":
        return MemoryStore(limits)
    scheme, found, path = url.partition(":///")
    if scheme == "sqlite" and found and path and not path.endswith("/"):
        from mcptrio.stores.sqlite import SqliteStore  # sqlite3 costs start-up time

        return SqliteStore(path, limits=limits)
    if scheme.partition(":")[0] in ("redis", "rediss", "redis+unix", "redis+sentinel"):
        from mcptrio.stores.redis import RedisStore

        return RedisStore.from_url(url, password=password, limits=limits)
    raise DeclarationError(
        f"{url!r} is not a store: write memory, sqlite:///relative.db, sqlite:////absolute/path.db (three slashes, "
        "then the path) or redis://host"
    )
