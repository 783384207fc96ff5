"""The store that several processes share: streams, sessions, tasks, marks and the bus of one endpoint in Redis.

`GroupCommit` has the streams and the writer, as in the SQLite store: an event is stored before it is seen, and while
the server is down events flow from memory. Sessions live in the process that began them.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from mcptrio.stores._group_commit import GroupCommit
from mcptrio.stores._streams import open_tasks
from mcptrio.stores.base import StoreLimits, StreamKey
from mcptrio.stores.redis import scripts
from mcptrio.stores.redis.address import RedisAddress, RedisUrl
from mcptrio.stores.redis.backend import RedisBackend, number
from mcptrio.stores.redis.bus import RedisBus
from mcptrio.stores.redis.connection import RedisConnection
from mcptrio.stores.redis.keys import Keys
from mcptrio.stores.redis.records import SharedMarks, SharedRecords


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
        self._keys = keys = Keys(name)
        limits = limits or StoreLimits()
        self.connection = RedisConnection(
            address, scripts=scripts.TEXTS, on_message=self._on_message, on_connected=self._on_connected
        )
        super().__init__(RedisBackend(self.connection, keys, limits, wait), limits, on_state)
        self.bus: RedisBus = RedisBus(self.connection, keys)
        own, (sessions, tasks, marks) = self._tables, self._tables.changes
        self.sessions = SharedRecords(own.sessions, sessions, self.flush, self.connection, keys.session)
        self.tasks = SharedRecords(own.tasks, tasks, self.flush, self.connection, keys.task)
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
        found = RedisUrl.parse(url, password, tls)
        return cls(found.address, name=found.name, wait=found.wait, limits=limits)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with super().open():
            try:
                async with open_tasks(self.bus.serve, self._serve_refresh):
                    yield
            finally:
                with trio.move_on_after(1, shield=True):
                    await self.bus.send_rest()

    async def prepare_follow(self, key: StreamKey) -> None:
        """Take over what is stored of another process's stream, as a stream that has ended."""
        known = self._index.find(key)
        if known is not None and (known.stored or not known.written):
            return  # it is our own
        _, _, name = self._keys.of_stream(key)
        oldest = await self.connection.ask("XRANGE", name, "-", "+", "COUNT", 1)
        newest = await self.connection.ask("XREVRANGE", name, "+", "-", "COUNT", 1)
        if known is not None and self._index.find(key) is known:
            self._remove(known)  # only here: `stored` is false
        if oldest and newest and self._index.find(key) is None:
            self._adopt(key, number(oldest[0][0]) - 1, number(newest[0][0]))

    async def _serve_refresh(self) -> None:
        """Prolong the life of the sessions that live in this process."""
        while True:
            await trio.sleep(self.limits.session_age / 3)
            self._tables.sessions.put_all_again()

    def _on_message(self, channel: bytes, message: bytes) -> None:
        self.bus.on_message(channel, message)

    async def _on_connected(self) -> None:
        self.bus.on_connected()
