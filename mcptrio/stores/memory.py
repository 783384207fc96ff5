"""The store that lives and dies with the process: the default. Bounded, and fast enough for every progress event."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import trio
from msgspec import field

from mcptrio._struct import Entity
from mcptrio.errors import Overloaded
from mcptrio.stores._streams import Ledger, Stream, StreamFollower, check_cursor, open_tasks
from mcptrio.stores._tasks import MemoryTasks
from mcptrio.stores.base import StoreLimits, StreamKey

logger = logging.getLogger(__name__)


class MemoryStore:
    """Streams, sessions and tasks of one process.

    Owns: the streams, and while it is open a janitor that removes old ones.   Lent: nothing.
    """

    durable = False
    degraded: str | None = None

    def __init__(self, limits: StoreLimits | None = None) -> None:
        self.limits = limits or StoreLimits()
        self.secret = os.urandom(32)
        self.sessions = MemorySessions(self.limits.sessions)
        self.tasks = MemoryTasks(self.limits)
        self._ledger: Ledger[Stream] = Ledger(self.limits, Stream)

    def begin(self, key: StreamKey) -> None:
        if self._ledger.find(key) is None:
            self._begin(key)

    def append(self, key: StreamKey, data: bytes, *, last: bool = False) -> int:
        ledger = self._ledger
        stream = ledger.writable(key) or self._begin(key)
        ledger.add(stream, data)
        stream.visible = stream.last
        if ledger.size > self.limits.total_bytes:
            self._lose_weight(stream)
        if last:
            ledger.end(stream, trio.current_time())
        stream.wake()
        return stream.last

    def finish(self, key: StreamKey) -> None:
        stream = self._ledger.find(key)
        if stream is not None:
            self._ledger.end(stream, trio.current_time())
            stream.wake()

    def follow(self, key: StreamKey, after: int = 0) -> StreamFollower:
        return StreamFollower(check_cursor(self._ledger.find(key), after), after)

    def forget(self, session: str) -> None:
        for stream in self._ledger.of_session(session):
            self._ledger.end(stream, trio.current_time())
            self._ledger.remove(stream)
            stream.wake()

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with open_tasks(self._serve_janitor):
            yield

    async def _serve_janitor(self) -> None:
        while True:
            await trio.sleep(min(60.0, self.limits.stream_age / 10))
            for stream in self._ledger.expired(trio.current_time()):
                self._ledger.remove(stream)
            self.tasks.expire()

    def _begin(self, key: StreamKey) -> Stream:
        while (crowded := self._ledger.crowded()) is not None:
            self._evict(crowded)
        return self._ledger.begin(key)

    def _lose_weight(self, growing: Stream) -> None:
        finished, running = self._ledger.overweight(growing)
        for stream in finished:
            self._evict(stream)
        for stream in running:
            self._ledger.drop_to(stream, stream.last)
            stream.wake()

    def _evict(self, stream: Stream) -> None:
        self._ledger.remove(stream)
        stream.drop_to(stream.last)  # a follower still at work learns that it is too late
        stream.wake()


class MemorySessions:
    """The session directory of one process."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._records: dict[str, bytes] = {}

    def put(self, session: str, record: bytes) -> None:
        self._records.pop(session, None)
        while len(self._records) >= self._limit:
            del self._records[next(iter(self._records))]
        self._records[session] = record

    async def get(self, session: str) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return self._records.get(session)

    def drop(self, session: str) -> None:
        self._records.pop(session, None)


class _Subscription(Entity):
    """One callback and the topics it hears."""

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

    def publish(self, topic: str, payload: Any = None) -> None:
        for subscription in list(self._topics.get(topic, ())):  # a callback may subscribe or close
            if subscription.closed:
                continue
            try:
                subscription.callback(topic, payload)
            except Exception:
                logger.exception("a subscriber of %s failed; the others are told all the same", topic)

    def subscribe(self, topics: Iterable[str], callback: Callable[[str, Any], None]) -> _Subscription:
        subscription = _Subscription(tuple(dict.fromkeys(topics)), callback, self._topics)
        for topic in subscription.topics:
            if len(self._topics.get(topic, ())) >= self.limit:
                raise Overloaded(f"{topic} has {self.limit} subscriptions, which is the limit")
        for topic in subscription.topics:
            self._topics.setdefault(topic, {})[subscription] = None
        return subscription
