"""The durable store: one SQLite file, one writer, events stored before they are seen.

Theory of operation. `append` puts the event at the end of its stream in memory and marks the stream as changed. The
writer takes everything that has changed when it is free, commits it in one transaction in a thread (group commit: one
thread hop and one fsync for any number of events), and only then lets followers see it. The newest events stay in
memory, so live followers never touch the disk; older ones are read from the file.

A commit that fails does not stop the stream. The store is then *degraded*, which is visible: events flow at once, held
in memory within the bounds of the tail, and the writer retries. Events that memory still holds are written later; a
stream that lost more has a gap, and cursors before the gap are refused.

The same happens when more is waiting than `StoreLimits.backlog_*`, because `append` may neither block nor refuse an
answer that a call has already computed: the store degrades until the disk has caught up.

`degraded` shows the present state; `Health` announces outages in the log and to `on_state`.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

import trio

from mcptrio.errors import LocalProtocolError
from mcptrio.stores._health import Health
from mcptrio.stores._recent_events import RecentEvents
from mcptrio.stores._records import MarkTable, RecordChanges, Records
from mcptrio.stores._sqlite_file import FileGone, SqliteFile, is_damage
from mcptrio.stores._sqlite_state import StoredStream, as_batch
from mcptrio.stores._streams import MemoryStream, StreamFollower, StreamIndex, check_cursor, open_tasks
from mcptrio.stores.base import LaggedBehind, StoreFailed, StoreLimits, StreamKey

logger = logging.getLogger(__name__)

FETCH_BYTES: Final = 512 * 1024
REMOVED_AT_ONCE: Final = 256  # streams deleted in one transaction, so that no commit is long
RETRY_AFTER: Final = (0.5, 1.0, 2.0, 4.0, 5.0)
CRASHES: Final = 6
CRASH_WINDOW: Final = 30.0
SLOW_COMMIT: Final = 3.0  # longer than SQLite waits for a lock
CHECK_FILE_EVERY: Final = 5.0

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SqliteStore:
    """Streams, sessions, tasks and marks in one file, open in one place at a time.

    Owns: the file, the streams, and while it is open a writer and a janitor.   Borrows: `on_state`, called with the
    reason when the store degrades and with `None` when it has recovered.
    """

    durable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limits: StoreLimits | None = None,
        on_state: Callable[[str | None], None] | None = None,
    ) -> None:
        self.limits = limits = limits or StoreLimits()
        self.health = Health(on_state)
        self._session_changes = RecordChanges(self._changed)
        self.sessions = Records(limits.sessions, changes=self._session_changes)
        self._task_changes = RecordChanges(self._changed)
        self.tasks = Records(limits.tasks, limits.task_bytes, self._task_changes)
        self._mark_changes = RecordChanges(self._changed)
        self.marks = MarkTable(limits, self._mark_changes)
        self._file = SqliteFile(path)
        self._open = False
        self._secret: bytes | None = None
        self._index: StreamIndex[StoredStream] = StreamIndex(self.limits, StoredStream)
        self._dirty: dict[StoredStream, None] = {}  # changed since the last commit began
        self._writing: Mapping[StoredStream, int] = {}  # in the commit that runs, up to which event
        self._writing_since = 0.0
        self._removed: list[int] = []
        self._recent = RecentEvents(limits, self._index)
        self._backlog = self._backlog_bytes = 0
        self._accepted = self._settled = 0  # changes, to know when a flush is done
        self._idle = trio.lowlevel.ParkingLot()
        self._flushing = trio.lowlevel.ParkingLot()
        self._failures = 0  # commits that failed in a row
        self._crashes: deque[float] = deque(maxlen=CRASHES)
        self._damaged = False
        self._write_thread = trio.CapacityLimiter(1)  # not the threads of handlers, which could starve the store
        self._read_thread = trio.CapacityLimiter(1)

    @property
    def secret(self) -> bytes:
        if self._secret is None:
            raise LocalProtocolError("the store is not open: its secret is read from the file")
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

    @property
    def moved_aside(self) -> Path | None:
        """The path that a damaged file was moved to; its streams cannot be resumed."""
        return self._file.moved_aside

    # -- the protocol; only `flush` waits

    def begin(self, key: StreamKey, *, owner: str = "") -> None:
        if self._index.find(key) is None:
            self._begin(key, owner)
            self._changed()

    def append(self, key: StreamKey, data: bytes, *, last: bool = False, keep_after: int | None = None) -> int:
        stream = self._index.writable(key) or self._begin(key)
        before = stream.tail_size
        self._index.add(stream, data, keep_after)
        self._recent.weigh(stream, before)
        self._dirty[stream] = None
        self._backlog += 1
        self._backlog_bytes += len(data)
        if last:
            self._index.end(stream, trio.current_time())
        if self._index.size > self.limits.total_bytes:
            self._lose_weight(stream)
        if self.health.problem is not None:
            self._show(stream, stream.last)
            self._recent.trim((stream,), lossy=True)
        elif self._backlog > self.limits.backlog_events or self._backlog_bytes > self.limits.backlog_bytes:
            self._degrade(f"the disk is behind by {self._backlog} events, {self._backlog_bytes} bytes")
        self._changed()
        return stream.last

    def finish(self, key: StreamKey) -> None:
        # Not written: every stream in the file is over at a restart.
        stream = self._index.find(key)
        if stream is not None:
            self._index.end(stream, trio.current_time())
            stream.wake()

    def follow(self, key: StreamKey, after: int = 0) -> StreamFollower:
        return StreamFollower(check_cursor(self._index.find(key), after), after, self._fetch)

    def forget(self, session: str) -> None:
        for stream in self._index.of_session(session):
            self._index.end(stream, trio.current_time())
            self._remove(stream)

    async def flush(self) -> None:
        goal = self._accepted
        await trio.lowlevel.checkpoint()
        while self._settled < goal and self.degraded is None:
            await self._flushing.park()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        if self._open:
            raise LocalProtocolError(f"the store {self._file.path} is open already: share it, or use another file")
        self._open = True
        try:
            await self._load()
            try:
                async with open_tasks(self._serve_writer, self._serve_janitor, self._serve_file_check):
                    yield
            finally:
                try:
                    with trio.move_on_after(5, shield=True):
                        await self._write_the_rest()
                        await self._in_thread(self._file.close)
                finally:
                    self._file.close()  # does nothing unless the deadline came first
        finally:
            self._open, self._secret = False, None

    # -- the writer: the one task that commits

    async def _serve_writer(self) -> None:
        while True:
            if self._damaged:
                await self._start_afresh()
            elif self._failures:
                await trio.sleep(RETRY_AFTER[min(self._failures, len(RETRY_AFTER)) - 1])
                await self._commit()
            elif self._has_work():
                await self._commit()
            else:
                await self._idle.park()

    def _has_work(self) -> bool:
        return any((self._dirty, self._removed, self._session_changes, self._task_changes, self._mark_changes))

    async def _commit(self) -> None:
        settles = self._accepted
        dirty, self._dirty = self._dirty, {}
        removed, self._removed = self._removed[:REMOVED_AT_ONCE], self._removed[REMOVED_AT_ONCE:]
        sessions, tasks, marks = (self._session_changes.take(), self._task_changes.take(), self._mark_changes.take())
        self._backlog = self._backlog_bytes = 0
        self._writing, self._writing_since = {stream: stream.last for stream in dirty}, time.monotonic()
        floors = [stream.floor for stream in dirty]
        try:
            await self._in_thread(self._file.commit, as_batch(dirty, removed, sessions, tasks, marks))
        except BaseException as error:  # the guard of the writer; after a cancellation the last commit writes the rest
            self._writing = {}
            self._dirty = {stream: None for stream in dirty if self._index.find(stream.key) is stream} | self._dirty
            self._removed = removed + self._removed
            self._session_changes.give_back(sessions)
            self._task_changes.give_back(tasks)
            self._mark_changes.give_back(marks)
            if not isinstance(error, Exception):
                raise
            self._on_failure(error)
        else:
            for (stream, upto), floor in zip(self._writing.items(), floors, strict=True):
                stream.written, stream.saved_floor = upto, floor
                self._show(stream, upto)
            self._writing = {}
            self._recent.trim(dirty, lossy=self.degraded is not None)
            self._failures = 0
            self.health.recover()
        self._settled = settles
        self._flushing.unpark_all()

    def _on_failure(self, error: Exception) -> None:
        self._failures += 1
        if isinstance(error, sqlite3.Error):
            self._damaged = is_damage(error) or isinstance(error, FileGone)
            self._degrade(f"{self._file.path.name}: {error}")
            return
        logger.error("the writer of the store crashed", exc_info=error)
        self._degrade(f"the writer crashed: {error!r}")
        self._crashes.append(trio.current_time())
        if len(self._crashes) == CRASHES and self._crashes[-1] - self._crashes[0] <= CRASH_WINDOW:
            text = f"the writer of the store {self._file.path} crashed {CRASHES} times in {CRASH_WINDOW:.0f} s"
            raise StoreFailed(text) from error

    def _degrade(self, reason: str) -> None:
        """Show events before they are stored, from now on."""
        self._backlog = self._backlog_bytes = 0
        hidden = tuple(dict.fromkeys((*self._writing, *self._dirty)))
        for stream in hidden:
            self._show(stream, stream.last)
        self._recent.trim(hidden, lossy=True)
        self._flushing.unpark_all()
        self.health.degrade(reason)

    async def _start_afresh(self) -> None:
        """Start a new file after damage, and write everything that memory holds into it."""
        try:
            await self._in_thread(self._file.replace, self.secret)
        except (sqlite3.Error, OSError, StoreFailed) as error:
            self._degrade(f"cannot start a new file: {error}")
            await trio.sleep(RETRY_AFTER[-1])
            return
        self._damaged = False
        self._failures = 0
        self._removed.clear()
        self.sessions.put_all_again()
        self.tasks.put_all_again()
        self.marks.put_all_again()
        for stream in list(self._index):
            stream.written = stream.saved_floor = 0
            stream.stored = False
            if stream.ended is not None and not stream.tail:
                self._remove(stream)
            else:
                self._index.drop_to(stream, stream.tail_floor)
                self._dirty[stream] = None
                stream.wake()

    # -- watching

    async def _serve_janitor(self) -> None:
        while True:
            await trio.sleep(1)
            # Commits take real time, also under a mock clock.
            if self._writing and not self.degraded and time.monotonic() - self._writing_since > SLOW_COMMIT:
                self._degrade(f"a commit takes longer than {SLOW_COMMIT:.0f} s")
            for stream in self._index.expired(trio.current_time()):
                self._remove(stream)
            self.sessions.expire()
            self.tasks.expire()
            self.marks.expire()
            self.health.check()

    async def _serve_file_check(self) -> None:
        """Notice that the file was removed or replaced, also while nothing is written."""
        while True:
            await trio.sleep(CHECK_FILE_EVERY)
            in_place = await trio.to_thread.run_sync(self._file.is_in_place, limiter=self._read_thread)
            if not (in_place or self._damaged):
                self._damaged = True
                self._degrade(f"{self._file.path.name} was removed or replaced")
                self._idle.unpark_all()

    # -- the file

    async def _in_thread(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return await trio.to_thread.run_sync(function, *args, limiter=self._write_thread)

    async def _load(self) -> None:
        contents = await self._in_thread(self._file.open, os.urandom(32))
        self._secret = contents.secret
        now, forgotten = trio.current_time(), time.time() + self.limits.session_age
        self._index = StreamIndex(self.limits, StoredStream)  # of an earlier opening, if there was one
        self._recent = RecentEvents(self.limits, self._index)
        self._dirty, self._removed, self._failures, self._damaged = {}, [], 0, False
        self.sessions.load((session, record, forgotten, owner) for session, record, owner in contents.sessions)
        self.tasks.load(contents.tasks)
        self.marks.load(contents.marks)
        for serial, session, name, floor, last, size in contents.streams:
            key = StreamKey(session, name)
            earlier = self._index.find(key)
            if earlier is not None:  # removed and begun again; the process died before the removal was written
                self._remove(earlier)
            stream = StoredStream(key, serial, floor=floor, last=last, visible=last, size=size, tail_floor=last)
            stream.written, stream.saved_floor, stream.stored = last, floor, True
            self._index.end(self._index.adopt(stream), now)

    async def _fetch(self, stream: MemoryStream, after: int) -> list[bytes]:
        upto = min(stream.visible, stream.tail_floor)
        try:
            found = await trio.to_thread.run_sync(
                self._file.read, stream.serial, after, upto, FETCH_BYTES, limiter=self._read_thread
            )
        except sqlite3.Error as error:
            logger.error("the store cannot be read: %s", error)
            if is_damage(error):
                self._damaged = True
                self._idle.unpark_all()
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
        lost = sum(stream.last - max(stream.written, stream.floor) for stream in self._dirty)
        if lost:
            logger.error("the store is closed without %d events that could not be written", lost)

    # -- in memory

    def _changed(self) -> None:
        self._accepted += 1
        self._idle.unpark_all()

    def _begin(self, key: StreamKey, owner: str = "") -> StoredStream:
        if self._secret is None:
            raise LocalProtocolError("the store is not open")
        while (crowded := self._index.crowded()) is not None:
            self._remove(crowded)
        stream = self._index.begin(key, owner)
        self._dirty[stream] = None
        return stream

    def _remove(self, stream: StoredStream) -> None:
        """Remove a stream. Open followers still get its events in memory, stored or not: the session is over."""
        self._index.remove(stream)
        self._dirty.pop(stream, None)
        self._recent.forget(stream)
        if stream.stored:
            self._removed.append(stream.serial)
        stream.floor = stream.tail_floor
        self._show(stream, stream.last)
        self._changed()

    def _lose_weight(self, growing: StoredStream) -> None:
        finished, running = self._index.overweight(growing)
        for stream in finished:
            self._remove(stream)
        for stream in running:
            before = stream.tail_size
            self._index.drop_to(stream, stream.droppable(stream.visible))
            self._recent.weigh(stream, before)
            self._dirty[stream] = None
            stream.wake()

    def _show(self, stream: StoredStream, upto: int) -> None:
        stream.visible = max(stream.visible, upto)
        stream.wake()
