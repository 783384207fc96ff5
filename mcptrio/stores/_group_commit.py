"""The part that durable stores share: streams in memory, and one writer that commits changes in groups.

Theory of operation. `append` puts the event at the end of its stream in memory and marks the stream as changed. The
writer takes everything that has changed when it is free, has the backend commit it as one group (one round trip for any
number of events), and only then lets followers see it. The newest events stay in memory, so live followers never wait
for the backend; older ones are fetched from it.

A commit that fails does not stop the stream. The store is then *degraded*, which is visible: events flow at once, held
in memory within the bounds of the tail, and the writer retries. Events that memory still holds are written later; a
stream that lost more has a gap, and cursors before the gap are refused. The same happens when more is waiting than
`StoreLimits.backlog_*`, because `append` may neither block nor refuse an answer that a call has already computed.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from mcptrio.errors import LocalProtocolError
from mcptrio.stores._backend import FENCED, BackendFailed, CommitGroup, Contents, StreamBackend
from mcptrio.stores._health import Health
from mcptrio.stores._home_sessions import HomeSessions
from mcptrio.stores._records import Tables
from mcptrio.stores._stored_streams import StoredStream, StoredStreams
from mcptrio.stores._streams import MemoryStream, StreamFollower, check_cursor, open_tasks
from mcptrio.stores.base import Bus, LaggedBehind, StoreFailed, StoreLimits, StreamKey

logger = logging.getLogger(__name__)

TIDY_EVERY: Final = 60.0
SLOW_COMMIT: Final = 3.0  # longer than SQLite waits for a lock
MAX_CRASHES: Final = 6
CRASH_WINDOW: Final = 30.0
"""Seconds in which so many crashes of the writer end the store."""


class GroupCommit:
    """Streams and records in memory, committed in groups to a backend.

    Owns: the backend, the streams, and while it is open a writer and a janitor.   Borrows: `on_state`, see `Health`.
    """

    durable = True
    shared = False
    bus: Bus | None = None

    def __init__(
        self, backend: StreamBackend, limits: StoreLimits | None, on_state: Callable[[str | None], None] | None
    ) -> None:
        self.limits = limits or StoreLimits()
        self.health = Health(on_state)
        self.on_fenced: Callable[[str], None] = lambda session: None
        self._backend = backend
        self._streams = StoredStreams(self.limits, self._changed)
        self._tables = Tables(self.limits, self._changed, expire_there=backend.expires_records)
        self._home = HomeSessions(self._changed)
        self._open = False
        self._secret: bytes | None = None
        self._writing: Sequence[StoredStream] = ()  # in the commit that runs
        self._writing_since = 0.0
        self._backlog = self._backlog_bytes = 0
        self._accepted = self._settled = 0  # changes, to know when a flush is done
        self._idle = trio.lowlevel.ParkingLot()
        self._flushing = trio.lowlevel.ParkingLot()
        self._crashes: deque[float] = deque(maxlen=MAX_CRASHES)  # the times of the last ones
        self._failures, self._damaged = 0, False  # commits that failed in a row

    @property
    def secret(self) -> bytes:
        if self._secret is None:
            raise LocalProtocolError("the store is not open: its secret is stored with its data")
        return self._secret

    @property
    def degraded(self) -> str | None:
        return self.health.problem

    @property
    def on_state(self) -> Callable[[str | None], None] | None:
        return self.health.on_state

    @on_state.setter
    def on_state(self, listener: Callable[[str | None], None] | None) -> None:
        self.health.on_state = listener

    # -- the protocol; only `flush` waits

    def begin(self, key: StreamKey, *, owner: str = "", call: bytes | None = None) -> None:
        if self._streams.index.find(key) is None:
            self._begin(key, owner, call)
            self._changed()

    def append(self, key: StreamKey, data: bytes, *, last: bool = False, keep_after: int | None = None) -> int:
        streams = self._streams
        try:
            stream = streams.index.writable(key) or self._begin(key)
        except LocalProtocolError:
            fenced = streams.index.find(key)
            if fenced is None or not fenced.fenced:
                raise
            return fenced.last  # its new writer continues it
        streams.append(stream, data, last=last, keep_after=keep_after)
        self._backlog += 1
        self._backlog_bytes += len(data)
        if self.health.problem is not None:
            streams.show_unstored((stream,))
        elif self._backlog > self.limits.backlog_events or self._backlog_bytes > self.limits.backlog_bytes:
            self._degrade(f"{self._backend.name} is behind by {self._backlog} events, {self._backlog_bytes} bytes")
        self._changed()
        return stream.last

    def finish(self, key: StreamKey) -> None:
        stream = self._streams.index.find(key)
        if stream is not None and stream.ended is None:
            self._streams.finish(stream)

    async def reopen(self, key: StreamKey, *, owner: str = "") -> int:
        await self.prepare_follow(key)
        stream = self._streams.index.find(key)
        return 0 if stream is None else self._streams.reopen(stream)

    async def prepare_follow(self, key: StreamKey) -> None:
        """Do nothing: the streams of an earlier process were loaded with their session."""

    async def prepare_cursor(self, key: StreamKey) -> None:
        await self.flush()

    def follow(self, key: StreamKey, after: int = 0) -> StreamFollower:
        return StreamFollower(check_cursor(self._streams.index.find(key), after), after, self._fetch)

    def forget(self, session: str) -> None:
        self._streams.forget(session)

    async def flush(self) -> None:
        goal = self._accepted
        await trio.lowlevel.checkpoint()
        while self._settled < goal and self.degraded is None:
            await self._flushing.park()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        if self._open:
            raise LocalProtocolError(f"the store {self._backend.name} is open already: share it, or use another one")
        self._open = True
        try:
            async with self._backend.open(os.urandom(32), self._on_damage) as contents:
                self._load(contents)
                try:
                    async with open_tasks(self._serve_writer, self._serve_janitor, self._serve_tidying):
                        yield
                finally:
                    with trio.move_on_after(5, shield=True):
                        await self._write_the_rest()
        finally:
            self._open, self._secret = False, None

    def _load(self, contents: Contents) -> None:
        self._secret = contents.secret
        self._streams.reset()  # not the streams of an earlier opening
        self._failures, self._damaged = 0, False
        self._tables.tasks.load(contents.tasks)
        self._tables.marks.load(contents.marks)
        self._streams.index.serial = contents.serial
        for row in contents.streams:
            self._streams.adopt(row)

    # -- the writer: the one task that commits

    async def _serve_writer(self) -> None:
        while True:
            if self._damaged:
                await self._start_afresh()
            elif self._failures:
                delays = self._backend.retry_after
                await trio.sleep(delays[min(self._failures, len(delays)) - 1])
                await self._commit()
            elif self._has_work():
                await self._commit()
            else:
                self._settled = self._accepted  # also changes that were undone before a commit
                self._flushing.unpark_all()
                await self._idle.park()

    def _has_work(self) -> bool:
        return bool(self._streams.changed or self._tables.changed or self._home.changes)

    async def _commit(self) -> None:
        settles = self._accepted
        streams = self._streams
        dirty, removed = streams.take()
        taken = tasks, marks = self._tables.take()
        sessions = self._home.changes.take()
        changes = [stream.take_change() for stream in dirty]
        group = CommitGroup(streams=changes, removed=removed, sessions=sessions, tasks=tasks, marks=marks)
        self._backlog = self._backlog_bytes = 0
        self._writing, self._writing_since = dirty, time.monotonic()
        try:
            stored = await self._backend.commit(group)
        except BaseException as error:  # the guard of the writer; after a cancellation the last commit writes the rest
            self._writing = ()
            streams.give_back(dirty, removed)
            self._tables.give_back(taken)
            self._home.changes.give_back(sessions)
            if not isinstance(error, Exception):
                raise
            self._on_failure(error)
        else:
            for stream, change, newest in zip(dirty, changes, stored, strict=True):
                if newest == FENCED:
                    streams.fence(stream)
                    self._on_refused(stream.key.session)
                elif newest < change.start:
                    streams.rewind(stream, newest)
                else:
                    stream.written, stream.saved_floor = change.last, change.floor
                    streams.show(stream, change.last)
            self._writing = ()
            streams.recent.trim(dirty, lossy=self.degraded is not None)
            self._failures = 0
            self.health.recover()
        self._settled = settles
        self._flushing.unpark_all()

    def _on_refused(self, session: str) -> None:
        """Handle that another process writes the streams of a session now. The backend of one process never says so."""

    def _on_failure(self, error: Exception) -> None:
        self._failures += 1
        if isinstance(error, BackendFailed):
            self._damaged = error.damaged
            self._degrade(str(error))
            return
        logger.error("the writer of the store crashed", exc_info=error)
        self._degrade(f"the writer crashed: {error!r}")
        self._crashes.append(trio.current_time())
        if len(self._crashes) == MAX_CRASHES and self._crashes[-1] - self._crashes[0] <= CRASH_WINDOW:
            often = f"{MAX_CRASHES} times in {CRASH_WINDOW:.0f} s"
            raise StoreFailed(f"the writer of the store {self._backend.name} crashed {often}") from error

    def _degrade(self, reason: str) -> None:
        """Show events before they are stored, from now on."""
        self._backlog = self._backlog_bytes = 0
        self._streams.show_unstored(tuple(dict.fromkeys((*self._writing, *self._streams.dirty))))
        self._flushing.unpark_all()
        self.health.degrade(reason)

    def _on_damage(self, reason: str) -> None:
        if not self._damaged:
            self._damaged = True
            self._degrade(reason)
            self._idle.unpark_all()

    async def _start_afresh(self) -> None:
        """Start empty after damage, and write everything that memory holds."""
        try:
            await self._backend.start_afresh(self.secret)
        except (BackendFailed, StoreFailed) as error:
            self._degrade(f"cannot start afresh: {error}")
            await trio.sleep(self._backend.retry_after[-1])
            return
        self._damaged, self._failures = False, 0
        self._tables.put_all_again()
        self._home.put_all_again()
        self._streams.put_all_again()
        if not self._has_work():  # otherwise the commit of it decides
            self.health.recover()

    async def _serve_janitor(self) -> None:
        while True:
            await trio.sleep(1)
            # Commits take real time, also under a mock clock.
            if self._writing and not self.degraded and time.monotonic() - self._writing_since > SLOW_COMMIT:
                self._degrade(f"a commit takes longer than {SLOW_COMMIT:.0f} s")
            for stream in self._streams.index.expired(trio.current_time()):
                self._streams.remove(stream)
            self._tables.expire()
            self.health.check()

    async def _serve_tidying(self) -> None:
        while True:
            await trio.sleep(TIDY_EVERY)
            with suppress(BackendFailed):  # the writer notices it, if there is anything to write
                await self._backend.tidy()

    async def _fetch(self, stream: MemoryStream, after: int) -> list[bytes]:
        upto = min(stream.visible, stream.tail_floor)
        try:
            found = await self._backend.fetch(stream.key, stream.serial, after, upto)
        except BackendFailed as error:
            logger.error("the store cannot be read: %s", error)
            if error.damaged:
                self._on_damage(str(error))
            raise LaggedBehind(f"event {after + 1} of a stream cannot be read") from error
        if not found:
            raise LaggedBehind(f"event {after + 1} of a stream is no longer kept")
        return found

    async def _write_the_rest(self) -> None:
        with suppress(StoreFailed):  # it was logged
            while self._has_work():
                await self._commit()
                if self._failures:
                    break
        lost = sum(stream.last - max(stream.written, stream.floor) for stream in self._streams.dirty)
        if lost:
            logger.error("the store is closed without %d events that could not be written", lost)

    def _begin(self, key: StreamKey, owner: str = "", call: bytes | None = None) -> StoredStream:
        if self._secret is None:
            raise LocalProtocolError("the store is not open")
        return self._streams.begin(key, owner, call)

    def _changed(self) -> None:
        self._accepted += 1
        self._idle.unpark_all()
