"""The protocols of a store (defined below the stores, in `mcptrio._actors.store`), its errors and its bounds."""

from __future__ import annotations

from msgspec import Struct

from mcptrio._actors.store import (
    Bus,
    Claimed,
    ClaimedTask,
    EventStore,
    Follower,
    HomeAt,
    MarkKind,
    Marks,
    SessionDirectory,
    Store,
    StoredEvent,
    StreamKey,
    Subscription,
    TaskStore,
)
from mcptrio._settings import check_fields
from mcptrio.errors import MCPTrioError

__all__ = [
    "Bus",
    "Claimed",
    "ClaimedTask",
    "EventStore",
    "Follower",
    "HomeAt",
    "LaggedBehind",
    "MarkKind",
    "Marks",
    "SessionDirectory",
    "Store",
    "StoreFailed",
    "StoreLimits",
    "StoredEvent",
    "StreamKey",
    "Subscription",
    "TaskStore",
    "UnknownCursor",
]


class UnknownCursor(MCPTrioError):
    """A stream cannot be followed from a position: it is unknown, ends earlier, or the next events were removed."""


class LaggedBehind(MCPTrioError):
    """A follower read so slowly that events it had not seen were removed; continuing would leave a gap."""


class StoreFailed(MCPTrioError):
    """A store cannot be opened, or its writer keeps crashing; the text says why."""


class StoreLimits(Struct, frozen=True, kw_only=True):
    """Every bound of a store. One event that is larger than a bound of bytes is kept alone."""

    stream_events: int = 1_000
    """Events kept of one stream, so how far back a client may resume; the oldest are removed first."""
    stream_bytes: int = 4 * 2**20
    """Bytes kept of one stream; the oldest events are removed first."""
    stream_age: float = 600.0
    """Seconds that a finished stream is kept, in which a client may fetch the answer of a call that it lost."""
    streams: int = 65_536
    """Streams in total. The owner that has most loses the oldest of its finished ones; if all are running, a new one is
    refused."""
    total_bytes: int = 32 * 2**20
    """Bytes in total. The owner that has most loses its finished streams first, then the history of its running ones.
    Raise it if clients resume late, and for a store on disk."""
    sessions: int = 20_000
    """Records in the session directory; the owner that has most loses its oldest. A durable store needs as many as
    `Limits.max_sessions`."""
    session_age: float = 1_800.0
    """Seconds that the record of a session from before a restart is kept unless it is put again."""
    tasks: int = 10_000
    """Tasks that are kept; the owner that has most loses the one unchanged for longest, so raise it if results are
    fetched late."""
    task_bytes: int = 32 * 2**20
    """Bytes of all tasks that are kept, as `tasks`."""
    marks: int = 100_000
    """Marks of each kind (used request states, results of `once`, DPoP proofs); the owner that has most loses its
    oldest. Raise it if more than that are made within their lifetime."""
    mark_bytes: int = 32 * 2**20
    """Bytes of all marks of one kind, as `marks`."""
    result_bytes: int = 64 * 2**20
    """Bytes of all results that were too large to be sent whole (`max_result_bytes`), as `marks`; each is kept for ten
    minutes."""
    # The following bounds apply to durable stores only.
    backlog_events: int = 1_024
    """Events waiting to be written. Above it the store degrades until the disk has caught up; raise it for disks
    that pause."""
    backlog_bytes: int = 16 * 2**20
    """Bytes waiting to be written, as `backlog_events`."""
    tail_events: int = 256
    """Newest events of one stream that are held in memory as well, so that live followers need no disk."""
    tail_bytes: int = 2**20
    """Bytes of one stream that are held in memory as well, as `tail_events`."""
    tail_total: int = 32 * 2**20
    """Bytes of all streams that are held in memory as well."""

    def __post_init__(self) -> None:
        check_fields(self, positive=StoreLimits.__struct_fields__)
