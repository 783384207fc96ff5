"""Read the workers and sessions of a cluster from Redis, without joining it: for `mcptrio cluster`.

Nothing is written. SCAN finds the sessions, since the cluster itself needs no list of them. It also passes the keys of
others, so the number of keys that are looked at has a bound, like the number of sessions.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from mcptrio.stores.redis.connection import RedisConnection
from mcptrio.stores.redis.keys import Keys

BATCH: Final = 1000
MAX_SCANS: Final = 1000
MAX_NAMES: Final = 20


class ListedWorker(Struct, frozen=True, kw_only=True):
    """One worker in the directory."""

    id: str
    description: str
    """JSON, see `mcptrio.cluster.membership.WorkerInfo`."""
    lease: float
    """Seconds until its lease ends, by the clock of the server; not positive if it has ended."""


class ListedSession(Struct, frozen=True, kw_only=True):
    """One session in the directory."""

    id: str
    home: str | None
    """The worker in which it lives; None if it is stored only."""
    epoch: int
    pinned: bool
    expires: float
    """Seconds until its record is removed, unless it is used or its home prolongs it."""


class Listing(Struct, frozen=True, kw_only=True):
    """The state of a cluster at one moment."""

    workers: list[ListedWorker]
    sessions: list[ListedSession]
    more: bool
    """Whether there are, or may be, sessions that are not listed."""


async def find_names(connection: RedisConnection) -> list[str]:
    """Return the names of the clusters in a database, some of them if there are many.

    Raises:
        StoreUnavailable: the server cannot be asked.
    """
    prefix, suffix = Keys("\0").secret.split("\0")
    found, _ = await _scan(connection, f"{prefix}*{suffix}", "string", MAX_NAMES)
    return sorted(key.removeprefix(prefix).removesuffix(suffix) for key in found)


async def list_cluster(connection: RedisConnection, name: str, limit: int) -> Listing | None:
    """Return the workers and at most `limit` sessions of a cluster; None if there is no cluster of that name.

    Raises:
        StoreUnavailable: the server cannot be asked.
    """
    keys = Keys(name)
    exists, (seconds, micros), workers = await connection.ask_all(
        [("EXISTS", keys.secret), ("TIME",), ("HGETALL", keys.workers)]
    )
    if not exists:
        return None
    now = int(seconds) * 1000 + int(micros) // 1000
    prefix = keys.session("")
    found, more = await _scan(connection, f"{_literal(prefix)}*", "hash", limit)
    sessions = []
    for at in range(0, len(found), BATCH):
        some = found[at : at + BATCH]
        asked = [("HMGET", key, "home", "epoch", "pinned") for key in some] + [("PTTL", key) for key in some]
        replies = await connection.ask_all(asked)
        for key, (home, epoch, pinned), left in zip(some, replies[: len(some)], replies[len(some) :], strict=True):
            if epoch is not None:  # it was removed since the scan
                sessions.append(
                    ListedSession(
                        id=key.removeprefix(prefix),
                        home=home.decode() if home else None,
                        epoch=int(epoch),
                        pinned=pinned == b"1",
                        expires=max(0, left) / 1000,
                    )
                )
    listed = []
    for worker, value in workers.items():
        expires, _, description = value.partition(b" ")
        listed.append(
            ListedWorker(id=worker.decode(), description=description.decode(), lease=(int(expires) - now) / 1000)
        )
    return Listing(
        workers=sorted(listed, key=lambda each: each.id), sessions=sorted(sessions, key=lambda s: s.id), more=more
    )


async def _scan(connection: RedisConnection, pattern: str, kind: str, limit: int) -> tuple[list[str], bool]:
    """Return at most `limit` keys, and whether the search ended before all keys were seen."""
    found: set[str] = set()
    cursor = b"0"
    for _ in range(MAX_SCANS):
        cursor, some = await connection.ask("SCAN", cursor, "MATCH", pattern, "COUNT", BATCH, "TYPE", kind)
        found.update(key.decode("utf-8", "replace") for key in some)
        if len(found) > limit or cursor == b"0":
            break
    return sorted(found)[:limit], len(found) > limit or cursor != b"0"


def _literal(text: str) -> str:
    """Escape what a pattern of the server would interpret."""
    return "".join(f"\\{char}" if char in "\\*?[]^-" else char for char in text)
