"""The default store: in memory, bounded, gone with the process."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio
from msgspec import Struct, field

from mcptrio._settings import check_value
from mcptrio._struct import Entity
from mcptrio.errors import Overloaded
from mcptrio.stores._records import MarkTable, Records, TaskRecords
from mcptrio.stores._streams import MemoryStream, StreamFollower, StreamIndex, check_cursor, open_tasks
from mcptrio.stores.base import Bus, Claimed, HomeAt, StoreLimits, StreamKey

logger = logging.getLogger(__name__)


class MemoryStore:
    """Streams, sessions, tasks and marks of one process.

    Owns: the streams, and while it is open a janitor that removes old ones.   Borrows: nothing.
    """

    durable = False
    shared = False
    bus: Bus | None = None
    degraded: str | None = None

    def __init__(self, limits: StoreLimits | None = None) -> None:
        check_value("limits", limits, StoreLimits | None)
        self.limits = limits = limits or StoreLimits()
        self.secret = os.urandom(32)
        self.on_state: Callable[[str | None], None] | None = None  # never called: memory does not degrade
        self.on_fenced: Callable[[str], None] = lambda session: None  # nor this: there is no other process
        self._sessions = Records(limits.sessions)
        self.sessions = LocalDirectory(self._sessions)
        self.tasks = TaskRecords(limits.tasks, limits.task_bytes)
        self.marks = MarkTable(limits)
        self._index: StreamIndex[MemoryStream] = StreamIndex(self.limits, MemoryStream)

    def begin(self, key: StreamKey, *, owner: str = "", call: bytes | None = None) -> None:
        if self._index.find(key) is None:
            self._begin(key, owner)

    def append(self, key: StreamKey, data: bytes, *, last: bool = False, keep_after: int | None = None) -> int:
        index = self._index
        stream = index.writable(key) or self._begin(key)
        index.add(stream, data, keep_after)
        stream.visible = stream.last
        if index.size > self.limits.total_bytes:
            self._free_memory(stream)
        if last:
            index.end(stream, trio.current_time())
        stream.wake()
        return stream.last

    def finish(self, key: StreamKey) -> None:
        stream = self._index.find(key)
        if stream is not None:
            self._index.end(stream, trio.current_time())
            stream.wake()

    async def reopen(self, key: StreamKey, *, owner: str = "") -> int:
        stream = self._index.find(key)
        return 0 if stream is None else stream.last

    async def prepare_follow(self, key: StreamKey) -> None:
        """Do nothing: there is no other process."""

    def follow(self, key: StreamKey, after: int = 0) -> StreamFollower:
        return StreamFollower(check_cursor(self._index.find(key), after), after)

    def forget(self, session: str) -> None:
        for stream in self._index.of_session(session):
            self._index.end(stream, trio.current_time())
            self._index.remove(stream)
            stream.wake()

    async def prepare_cursor(self, key: StreamKey) -> None:
        """Do nothing: a stream in memory is known at once."""

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with open_tasks(self._serve_janitor):
            yield

    async def _serve_janitor(self) -> None:
        while True:
            await trio.sleep(min(60.0, self.limits.stream_age / 10))
            for stream in self._index.expired(trio.current_time()):
                self._index.remove(stream)
            self._sessions.expire()
            self.tasks.expire()
            self.marks.expire()

    def _begin(self, key: StreamKey, owner: str = "") -> MemoryStream:
        while (evicted := self._index.next_eviction()) is not None:
            self._evict(evicted)
        return self._index.begin(key, owner)

    def _free_memory(self, growing: MemoryStream) -> None:
        finished, running = self._index.choose_evictions(growing)
        for stream in finished:
            self._evict(stream)
        for stream in running:
            self._index.drop_to(stream, stream.droppable(stream.last))
            stream.wake()

    def _evict(self, stream: MemoryStream) -> None:
        self._index.remove(stream)
        stream.drop_to(stream.last)  # open followers raise LaggedBehind
        stream.wake()


class DirectoryEntry(Struct, frozen=True, array_like=True):
    """A session in the table of records."""

    epoch: int
    owner: str
    record: bytes


class LocalDirectory:
    """The sessions of one process: every claim of a known one succeeds.   Borrows: the table of records."""

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


class _Subscription(Entity):
    """One callback and its topics."""

    topics: tuple[str, ...]
    callback: Callable[[str, Any], None]
    _topics_of_bus: dict[str, dict[_Subscription, None]]
    closed: bool = False

    def close(self) -> None:
        self.closed = True
        for topic in self.topics:
            subscribed = self._topics_of_bus.get(topic, {})
            subscribed.pop(self, None)
            if not subscribed:
                self._topics_of_bus.pop(topic, None)


class MemoryBus(Entity):
    """The bus of one process: a table of callbacks. `limit` bounds the subscriptions of one topic."""

    limit: int = 20_000
    _topics: dict[str, dict[_Subscription, None]] = field(default_factory=dict)
    _origin: str = field(default_factory=lambda: secrets.token_urlsafe(6))
    _published: int = 0
    _last: dict[str, int] = field(default_factory=dict)
    """Topic -> the number of its last publication, the longest ago first."""
    _forgotten: int = 0
    """The number of the last publication that `_last` no longer holds."""

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def publish(self, topic: str, payload: Any = None, *, everywhere: bool = True) -> None:
        self._count(topic)
        for subscription in list(self._topics.get(topic, ())):  # a callback may subscribe or close
            if subscription.closed:
                continue
            try:
                subscription.callback(topic, payload)
            except Exception:
                logger.exception("a subscriber of %s failed; the others are still called", topic)

    def _count(self, topic: str) -> None:
        self._published += 1
        self._last.pop(topic, None)
        self._last[topic] = self._published
        if len(self._last) > self.limit:
            self._forgotten = self._last.pop(next(iter(self._last)))

    async def versions(self, topics: Iterable[str]) -> dict[str, str]:
        await trio.lowlevel.checkpoint()
        return {topic: f"{self._origin}:{self._last.get(topic, self._forgotten)}" for topic in topics}

    def subscribe(self, topics: Iterable[str], callback: Callable[[str, Any], None]) -> _Subscription:
        subscription = _Subscription(tuple(dict.fromkeys(topics)), callback, self._topics)
        for topic in subscription.topics:
            if len(self._topics.get(topic, ())) >= self.limit:
                raise Overloaded(f"{topic} has {self.limit} subscriptions, which is the limit")
        for topic in subscription.topics:
            self._topics.setdefault(topic, {})[subscription] = None
        return subscription

    async def settled(self) -> None:
        """Do nothing: a subscription is effective at once."""
