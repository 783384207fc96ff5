"""Redis as the backend of a store: a group becomes one pipeline of scripts, and old events come from XRANGE."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from mcptrio._wire.resp import Argument, Reply, ServerError
from mcptrio.stores._backend import BackendFailed, CommitGroup, Contents, SessionRow, StreamChange
from mcptrio.stores._records import Row
from mcptrio.stores._streams import open_tasks
from mcptrio.stores.base import StoreFailed, StoreLimits, StreamKey
from mcptrio.stores.redis import scripts
from mcptrio.stores.redis.connection import REPLICAS, RedisConnection, StoreUnavailable, advice
from mcptrio.stores.redis.directory import RedisDirectory
from mcptrio.stores.redis.keys import Keys
from mcptrio.stores.redis.tasks import SharedTasks

logger = logging.getLogger(__name__)

EMPTIED: Final = -2
"""The reply of a script that finds the server emptied."""
MAX_PUSHED: Final = 64 * 1024
"""Bytes of an event that is published with its data; followers fetch larger ones."""
FETCHED_AT_ONCE: Final = 128
CHECK_EVERY: Final = 5.0
ENDLESS: Final = 7 * 86_400_000
"""Milliseconds that a record without an expiry is kept, so that a process that died leaves nothing for ever."""
WAIT_FOR_REPLICAS: Final = 100  # milliseconds


class RedisBackend:
    """The storage of one endpoint.   Borrows: the connection, the directory."""

    retry_after: Sequence[float] = (0.05, 0.1, 0.2, 0.5, 1.0)
    expires_records = True

    directory: RedisDirectory
    """Set by the store."""
    tasks: SharedTasks
    """Set by the store."""
    secret: bytes = b""

    def __init__(self, connection: RedisConnection, keys: Keys, limits: StoreLimits, wait: int) -> None:
        self.name = str(connection.address)
        self._connection = connection
        self._keys = keys
        self._session_ms, self._stream_ms = int(limits.session_age * 1000), int(limits.stream_age * 1000)
        self._wait = wait

    @asynccontextmanager
    async def open(self, secret: bytes, on_damage: Callable[[str], None]) -> AsyncIterator[Contents]:
        async with self._connection.open():
            try:
                await self._check_rights()
                await self._share_secret(secret)
                await self._check_settings()
            except BackendFailed as error:
                raise StoreFailed(f"cannot use the Redis server {error}{advice(str(error))}") from error

            async def check() -> None:
                """Notice that the server was emptied, also while nothing is written."""
                while True:
                    await trio.sleep(CHECK_EVERY)
                    with suppress(StoreUnavailable):  # the writer notices it, if there is anything to write
                        if await self.is_emptied():
                            on_damage(f"{self.name} was emptied")

            async with open_tasks(check):
                yield Contents(secret=self.secret)

    async def is_emptied(self) -> bool:
        """Return whether the server has lost everything.

        Raises:
            StoreUnavailable: the server cannot be asked.
        """
        known = self.secret, self.directory.generation
        return tuple(await self._connection.ask_all(self._identity())) != known

    async def start_afresh(self, secret: bytes) -> None:
        await self._share_secret(secret)
        if self.secret != secret:
            # Event ids that clients hold were made with our secret, and other processes use the new one.
            raise BackendFailed(f"{self.name} was emptied and has another secret now: restart this process")
        self.directory.restart()
        logger.error("the store %s was emptied: writing again what memory holds", self.name)

    async def _share_secret(self, secret: bytes) -> None:
        """Set the secret and the generation of the endpoint unless it has them, and learn those that it has."""
        keys, generation = self._keys, secrets.token_bytes(16)
        new = [("SET", keys.secret, secret, "NX"), ("SET", keys.generation, generation, "NX")]
        *_, self.secret, self.directory.generation = await self._run([*new, *self._identity()])

    def _identity(self) -> list[tuple[Argument, ...]]:
        return [("GET", self._keys.secret), ("GET", self._keys.generation)]

    async def _check_rights(self) -> None:
        """Find out now what the server would refuse later."""
        if self._connection.role in REPLICAS:
            raise BackendFailed(f"{self.name}: READONLY, its role is {self._connection.role.decode()}")
        (refused,) = await self._run([scripts.RIGHTS.command(self._keys.unused, self._keys.cluster)])
        if refused:
            raise BackendFailed(f"{self.name}: NOPERM: +{b' +'.join(refused).decode()}")

    async def _check_settings(self) -> None:
        (found,) = await self._execute([("CONFIG", "GET", "maxmemory-policy")])
        if isinstance(found, dict) and found.get(b"maxmemory-policy") not in (None, b"noeviction"):
            policy = found[b"maxmemory-policy"].decode()
            logger.warning("%s may remove keys (maxmemory-policy %s): set it to noeviction", self.name, policy)

    # -- writing

    async def commit(self, group: CommitGroup) -> Sequence[int]:
        # Removals come first: a stream may have been removed and begun again under its name. Sessions come before
        # their events, which are fenced without them.
        commands = [self._remove(key) for key, _ in group.removed]
        at = len(commands)
        commands += [self.directory.command(session, row) for session, row in group.sessions.items()]
        commands += map(self._append, group.streams)
        commands += self._records(group)
        if self._wait:
            commands.append(("WAIT", self._wait, WAIT_FOR_REPLICAS))
        replies = (await self._run(commands))[at:]
        self._check_sessions(group.sessions, replies)
        rest = replies[len(group.sessions) :]
        stored: list[int] = rest[: len(group.streams)]
        if EMPTIED in stored:
            raise BackendFailed(f"{self.name} was emptied", damaged=True)
        for (task, row), reply in zip(group.tasks.items(), rest[len(group.streams) :], strict=False):
            self.tasks.written(task, row, reply)
        return stored

    def _check_sessions(self, sessions: Mapping[str, SessionRow | None], replies: Sequence[int]) -> None:
        for (session, row), reply in zip(sessions.items(), replies, strict=False):
            if reply == EMPTIED:
                raise BackendFailed(f"{self.name} was emptied", damaged=True)
            self.directory.written(session, row, reply)

    def _remove(self, key: StreamKey) -> tuple[Argument, ...]:
        channel = self._keys.news(key.session) + key.stream
        epoch = self.directory.epoch_of(key.session)
        return scripts.REMOVE.command(self._keys.of_stream(key), epoch, key.stream, channel)

    def _append(self, change: StreamChange) -> tuple[Argument, ...]:
        session = change.key.session
        return scripts.APPEND.command(
            (*self._keys.of_stream(change.key), self._keys.calls(session), self._keys.generation),
            change.epoch,
            change.key.stream,
            change.floor,
            int(change.trims),
            change.start,
            int(change.new),
            int(change.ended),
            self._session_ms,
            self._stream_ms,
            self._keys.news(session) + change.key.stream,
            int(not self.directory.is_known(session)),
            change.call or b"",
            MAX_PUSHED,
            self.directory.generation,
            *change.events,
        )

    def _records(self, group: CommitGroup) -> Iterator[tuple[Argument, ...]]:
        keys = self._keys
        for task, row in group.tasks.items():
            yield self.tasks.command(task, row, 0 if row is None else max(0, _left(row)))
        for mark, row in group.marks.items():
            if row is None or (left := _left(row)) <= 0:
                yield ("DEL", keys.mark(mark))
            else:
                yield ("SET", keys.mark(mark), row[1], "PX", left)

    async def tidy(self) -> None:
        """Do nothing: keys expire by themselves."""

    # -- reading

    async def fetch(self, key: StreamKey, serial: int, after: int, upto: int) -> list[bytes]:
        _, _, stream = self._keys.of_stream(key)
        (entries,) = await self._run([("XRANGE", stream, f"{after + 1}-0", f"{upto}-0", "COUNT", FETCHED_AT_ONCE)])
        found: list[bytes] = []
        for id, fields in entries:
            if fields[0] != b"d":
                continue  # the end of a stream that was continued
            if number(id) != after + 1 + len(found):
                break
            found.append(fields[1])
        return found

    # -- commands

    async def _run(self, commands: list[tuple[Argument, ...]]) -> list[Reply]:
        """Run commands and return their replies.

        Raises:
            BackendFailed: there is no connection, or one of the replies is an error.
        """
        replies = await self._execute(commands)
        for reply in replies:
            if isinstance(reply, ServerError):
                raise BackendFailed(f"{self.name}: {reply}")
        return replies

    async def _execute(self, commands: list[tuple[Argument, ...]]) -> list[Reply]:
        try:
            return await self._connection.execute(commands)
        except StoreUnavailable as error:
            raise BackendFailed(error.reason) from error


def number(id: bytes) -> int:
    """Return the number of the event with this entry id."""
    return int(id.partition(b"-")[0])


def _left(row: Row) -> int:
    """Return the milliseconds until a record expires."""
    return ENDLESS if row[2] is None else int((row[2] - time.time()) * 1000)
