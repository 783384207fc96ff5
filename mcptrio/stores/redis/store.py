"""The store that several processes share: streams, sessions, tasks, marks and the bus of one endpoint in Redis.

`GroupCommit` has the streams and the writer, as in the SQLite store: an event is stored before it is seen, and while
the server is down events flow from memory. `RedisDirectory` says in which process a session lives; the streams of the
others are followed as `Mirrors`.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from mcptrio._settings import check_not_negative, check_value
from mcptrio.stores._backend import BackendFailed
from mcptrio.stores._group_commit import GroupCommit
from mcptrio.stores._stored_streams import StoredStream
from mcptrio.stores._streams import MemoryStream, StreamFollower, open_tasks
from mcptrio.stores.base import LaggedBehind, StoreFailed, StoreLimits, StreamKey, UnknownCursor
from mcptrio.stores.redis import scripts
from mcptrio.stores.redis.address import RedisAddress, RedisUrl
from mcptrio.stores.redis.backend import RedisBackend
from mcptrio.stores.redis.bus import RedisBus
from mcptrio.stores.redis.connection import RedisConnection, StoreUnavailable, advice
from mcptrio.stores.redis.directory import LOST, RedisDirectory
from mcptrio.stores.redis.keys import Keys
from mcptrio.stores.redis.marks import SharedMarks
from mcptrio.stores.redis.mirrors import Mirrors
from mcptrio.stores.redis.tasks import SharedTasks

RETRY_FETCH: Final = 0.1
LEASE_WITHIN: Final = 10.0
"""Seconds that a response waits for a lease that has expired; then its client gets an id of a stream that no other
process knows, because it gets no other answer."""


class RedisStore(GroupCommit):
    """The data of one endpoint, `name`, in Redis or Valkey 6.2 or later. Every process has a store of its own.

    Owns: the connection, and while it is open the bus.
    """

    shared = True

    def __init__(
        self,
        address: RedisAddress,
        *,
        name: str = "default",
        wait: int = 0,
        limits: StoreLimits | None = None,
        on_state: Callable[[str | None], None] | None = None,
    ) -> None:
        check_value("name", name, str)
        wait = check_value("wait", wait, int)
        check_not_negative("wait", wait)
        check_value("limits", limits, StoreLimits | None)
        check_value("on_state", on_state, Callable | None)
        self.name = name
        self._keys = keys = Keys(name)
        limits = limits or StoreLimits()
        self.connection = RedisConnection(
            address, scripts=scripts.TEXTS, on_message=self._on_message, on_connected=self._on_connected
        )
        self._storage = storage = RedisBackend(self.connection, keys, limits, wait)
        super().__init__(storage, limits, on_state)
        self.bus: RedisBus = RedisBus(self.connection, keys)
        own, (tasks, marks) = self._tables, self._tables.changes
        self.sessions = storage.directory = RedisDirectory(
            self._home, self.connection, keys, limits.session_age, flush=self.flush, unwritten=self._unwritten
        )
        self.sessions.on_lost, self.sessions.on_gone = self._on_lost, self._streams.unload
        self._streams.epoch_of, self._streams.may_show = self.sessions.epoch_of, self._may_show
        self.mirrors = Mirrors(self.connection, keys, limits.streams)
        self._on_news: Callable[[bytes], None] | None = None
        self._holds_back = False
        self._let_go = trio.lowlevel.ParkingLot()
        self.tasks = storage.tasks = SharedTasks(own.tasks, tasks, self.flush, self.connection, keys, self.sessions)
        self.marks = SharedMarks(own.marks, marks, self.flush, self.connection, keys)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        limits: StoreLimits | None = None,
    ) -> RedisStore:
        """Create a store from `redis://[user:password@]host[:port][/db][?name=orders&wait=1]`.

        `rediss://` is the same with TLS (`?ca=FILE` names the authority), `redis+unix:///path` a unix socket, and
        `redis+sentinel://host1,host2/service` asks sentinels. `password` and `tls` replace what the URL says. `wait`
        is the number of replicas that a commit waits for.

        Raises:
            DeclarationError: it is not such a URL, or hiredis is not installed.
        """
        check_value("url", url, str)
        check_value("password", password, str | None)
        check_value("tls", tls, ssl.SSLContext | None)
        found = RedisUrl.parse(url, password, tls)
        return cls(found.address, name=found.name, wait=found.wait, limits=limits)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with super().open():
            try:
                async with open_tasks(self.bus.serve, self.mirrors.serve, self._serve_refresh):
                    yield
            finally:
                with trio.move_on_after(1, shield=True):
                    await self.bus.send_rest()

    # -- streams of other processes

    async def prepare_follow(self, key: StreamKey) -> None:
        """Make a mirror of a stream that another process writes or has written."""
        known = self._streams.index.find(key)
        if known is None or known.fenced:
            await self.mirrors.prepare(key)
        elif known.visible < known.last:
            await self.flush()  # a mirror may have shown an event before this process knows that it is stored

    async def prepare_cursor(self, key: StreamKey) -> None:
        """Wait also until the lease is valid again: the next home of the session would not know an unstored stream."""
        with trio.move_on_after(LEASE_WITHIN):
            await self.flush()
            while self.holds_back:
                await self._let_go.park()
                await self.flush()
        known = self._streams.index.find(key)
        if known is not None and known.fenced:
            raise UnknownCursor("the session of this stream has another home now")

    def follow(self, key: StreamKey, after: int = 0) -> StreamFollower:
        known = self._streams.index.find(key)
        mirror = self.mirrors.find(key)
        if mirror is not None and (known is None or known.fenced):
            return self.mirrors.follow(mirror, after, self._fetch)
        return super().follow(key, after)

    async def _fetch(self, stream: MemoryStream, after: int) -> list[bytes]:
        """Read older events; wait for them while the server is not available."""
        while True:
            upto = min(stream.visible, stream.tail_floor)
            try:
                found = await self._backend.fetch(stream.key, stream.serial, after, upto)
            except BackendFailed:
                found = []
                missing = after >= stream.floor  # otherwise it waits for nothing
            else:
                missing = not found and (self.sessions.restoring or await self._is_emptied())
            if found:
                return found
            if not missing:
                raise LaggedBehind(f"event {after + 1} of a stream is no longer kept")
            await trio.sleep(RETRY_FETCH)

    async def _is_emptied(self) -> bool:
        """Return whether the server was found empty, so that everything is about to be written again."""
        try:
            emptied = await self._storage.is_emptied()
        except StoreUnavailable:
            return True  # it may be: the next attempt tells
        if emptied:
            self.note_emptied()
        return emptied

    def finish(self, key: StreamKey) -> None:
        if self._streams.index.find(key) is None and (mirror := self.mirrors.find(key)) is not None:
            mirror.end()
        super().finish(key)

    async def reopen(self, key: StreamKey, *, owner: str = "") -> int:
        stream = self._streams.index.find(key)
        if stream is None or stream.fenced:
            found = await self.mirrors.look(key)
            stream = None if found is None else self._streams.adopt(found, owner)
        return 0 if stream is None else self._streams.reopen(stream)

    # -- the cluster

    @property
    def holds_back(self) -> bool:
        """Whether events are not shown before they are stored, also while the server is down: the lease has expired."""
        return self._holds_back

    @holds_back.setter
    def holds_back(self, value: bool) -> None:
        self._holds_back = value
        if not value:
            self._let_go.unpark_all()

    async def listen_to_workers(self, on_news: Callable[[bytes], None]) -> None:
        """Call a function with the news about workers, from now on.

        Raises:
            StoreFailed: the server refuses that, or has gone.
        """
        self._on_news = on_news
        try:
            await self.connection.ask("SUBSCRIBE", self._keys.cluster)
        except StoreUnavailable as error:
            raise StoreFailed(f"cannot use the Redis server {error.reason}{advice(error.reason)}") from None

    def note_emptied(self) -> None:
        """Write everything that memory holds again: the server was found empty."""
        self._on_damage(f"{self._backend.name} was emptied")

    # -- sessions with another home

    def _may_show(self, stream: StoredStream, upto: int) -> bool:
        # R2: what the server may refuse later is not shown.
        return upto <= stream.written or not (self.holds_back or stream.epoch == LOST)

    def _on_refused(self, session: str) -> None:
        self.sessions.fenced += 1
        self.sessions.lose(session)

    def _on_lost(self, session: str) -> None:
        for stream in self._streams.index.of_session(session):
            if not stream.fenced:
                self._streams.fence(stream)
        self.on_fenced(session)

    def _unwritten(self, session: str) -> bool:
        """Return whether some change of a session's streams is not stored yet."""
        return any(
            stream in self._streams.dirty or stream in self._writing
            for stream in self._streams.index.of_session(session)
        )

    # -- the tasks

    async def _serve_refresh(self) -> None:
        """Prolong the life of the sessions that live in this process."""
        while True:
            await trio.sleep(self.limits.session_age / 3)
            self._home.put_all_again()

    def _on_message(self, channel: bytes, message: bytes) -> None:
        if channel.startswith(self._keys.prefix.encode() + b"n:"):
            self.mirrors.on_message(channel, message)
        elif channel == self._keys.cluster.encode():
            if self._on_news is not None:
                self._on_news(message)
        else:
            self.bus.on_message(channel, message)

    async def _on_connected(self) -> None:
        self.bus.on_connected()
        with suppress(StoreUnavailable):  # the next connection tries again
            if self._on_news is not None:
                await self.connection.execute([("SUBSCRIBE", self._keys.cluster)])
            await self.mirrors.catch_up()
