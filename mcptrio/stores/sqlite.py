"""The durable store: one SQLite file, one writer, events stored before they are seen.

Theory of operation. `append` puts the event at the end of its stream in memory and marks the stream as changed; that
is all. The writer takes whatever has changed by the time it is free, commits it in one transaction in a thread (group
commit: one hop and one fsync however many events), and only then lets followers see it. The newest events stay in
memory, so live followers never touch the disk; older ones are read from the file.

A commit that fails does not stop the stream. The store is then *degraded*, which is visible: events flow at once, held
in memory within the bounds of the tail, and the writer tries again. What memory still holds then is written after all;
a stream that lost more than that has a gap, and cursors before the gap are refused rather than served with a hole.

The same happens when more is waiting than `StoreLimits.backlog_*`, for `append` may neither wait nor refuse an answer
that a call has already computed: the store degrades until the disk has caught up.
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
from mcptrio.stores._file import File, is_damage
from mcptrio.stores._stored import SqliteSessions, StoredStream, as_batch
from mcptrio.stores._streams import Ledger, Stream, StreamFollower, check_cursor, open_tasks
from mcptrio.stores._tails import Tails
from mcptrio.stores._tasks import SqliteTasks
from mcptrio.stores.base import LaggedBehind, StoreFailed, StoreLimits, StreamKey

logger = logging.getLogger(__name__)

FETCH_BYTES: Final = 512 * 1024
REMOVED_AT_ONCE: Final = 256  # streams deleted in one transaction, so that no commit is long
RETRY_AFTER: Final = (0.5, 1.0, 2.0, 4.0, 5.0)
CRASHES: Final = 6
CRASH_WINDOW: Final = 30.0
SLOW_COMMIT: Final = 3.0  # above SQLite's own patience with a lock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SqliteStore:
    """Streams, sessions and tasks in one file. Opened once.

    Owns: the file, the streams, and while it is open a writer and a janitor.   Lent: `on_state`, called with the
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
        self.limits = limits or StoreLimits()
        self.on_state = on_state
        self.degraded: str | None = None
        self.sessions = SqliteSessions(self.limits.sessions, self._changed)
        self.tasks = SqliteTasks(self.limits, self._changed)
        self._file = File(Path(path))
        self._secret: bytes | None = None
        self._opened = 0.0
        self._ledger: Ledger[StoredStream] = Ledger(self.limits, StoredStream)
        self._dirty: dict[StoredStream, None] = {}  # changed since the last commit began
        self._writing: Mapping[StoredStream, int] = {}  # in the commit that runs, up to which event
        self._writing_since = 0.0
        self._removed: list[int] = []
        self._tails = Tails(self.limits, self._ledger)
        self._backlog = self._backlog_bytes = 0
        self._accepted = self._settled = 0  # changes, to know when a flush is done
        self._idle = trio.lowlevel.ParkingLot()
        self._flushing = trio.lowlevel.ParkingLot()
        self._failures = 0  # commits that failed in a row
        self._crashes: deque[float] = deque(maxlen=CRASHES)
        self._damaged = False
        self._write_thread = trio.CapacityLimiter(1)  # threads of our own: stuck handlers must not starve the store
        self._read_thread = trio.CapacityLimiter(1)

    @property
    def secret(self) -> bytes:
        if self._secret is None:
            raise LocalProtocolError("the store is not open: its secret is read from the file")
        return self._secret

    @property
    def moved_aside(self) -> Path | None:
        """Where a damaged file was put; streams from before cannot be resumed."""
        return self._file.moved_aside

    # -- for everybody: nothing here waits but flush

    def begin(self, key: StreamKey) -> None:
        if self._ledger.find(key) is None:
            self._begin(key)
            self._changed()

    def append(self, key: StreamKey, data: bytes, *, last: bool = False) -> int:
        stream = self._ledger.writable(key) or self._begin(key)
        before = stream.tail_size
        self._ledger.add(stream, data)
        self._tails.weigh(stream, before)
        self._dirty[stream] = None
        self._backlog += 1
        self._backlog_bytes += len(data)
        if last:
            self._ledger.end(stream, trio.current_time())
        if self._ledger.size > self.limits.total_bytes:
            self._lose_weight(stream)
        if self.degraded is not None:
            self._show(stream, stream.last)
            self._tails.trim((stream,), lossy=True)
        elif self._backlog > self.limits.backlog_events or self._backlog_bytes > self.limits.backlog_bytes:
            self._degrade(f"the disk is behind by {self._backlog} events, {self._backlog_bytes} bytes")
        self._changed()
        return stream.last

    def finish(self, key: StreamKey) -> None:
        # Not written: whatever is in the file at a restart is over anyway.
        stream = self._ledger.find(key)
        if stream is not None:
            self._ledger.end(stream, trio.current_time())
            stream.wake()

    def follow(self, key: StreamKey, after: int = 0) -> StreamFollower:
        return StreamFollower(check_cursor(self._ledger.find(key), after), after, self._fetch)

    def forget(self, session: str) -> None:
        for stream in self._ledger.of_session(session):
            self._ledger.end(stream, trio.current_time())
            self._remove(stream)

    async def flush(self) -> None:
        goal = self._accepted
        await trio.lowlevel.checkpoint()
        while self._settled < goal and self.degraded is None:
            await self._flushing.park()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        await self._load()
        try:
            async with open_tasks(self._serve_writer, self._serve_janitor):
                yield
        finally:
            try:
                with trio.move_on_after(5, shield=True):
                    await self._write_the_rest()
                    await self._in_thread(self._file.close)
            finally:
                self._file.close()  # nothing to do unless the deadline came first

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
        return bool(self._dirty or self._removed or self.sessions.changes or self.tasks.changes)

    async def _commit(self) -> None:
        settles = self._accepted
        dirty, self._dirty = self._dirty, {}
        removed, self._removed = self._removed[:REMOVED_AT_ONCE], self._removed[REMOVED_AT_ONCE:]
        records, self.sessions.changes = self.sessions.changes, {}
        tasks, self.tasks.changes = self.tasks.changes, {}
        self._backlog = self._backlog_bytes = 0
        self._writing, self._writing_since = {stream: stream.last for stream in dirty}, time.monotonic()
        floors = [stream.floor for stream in dirty]
        try:
            await self._in_thread(self._file.commit, as_batch(dirty, removed, records, tasks))
        except BaseException as error:  # the guard of the writer; a cancelled one leaves its work for the last commit
            self._writing = {}
            self._dirty = {stream: None for stream in dirty if self._ledger.find(stream.key) is stream} | self._dirty
            self._removed = removed + self._removed
            self.sessions.changes = records | self.sessions.changes
            self.tasks.changes = tasks | self.tasks.changes
            if not isinstance(error, Exception):
                raise
            self._on_failure(error)
        else:
            for (stream, upto), floor in zip(self._writing.items(), floors, strict=True):
                stream.written, stream.saved_floor = upto, floor
                self._show(stream, upto)
            self._writing = {}
            self._tails.trim(dirty, lossy=self.degraded is not None)
            self._recover()
        self._settled = settles
        self._flushing.unpark_all()

    def _on_failure(self, error: Exception) -> None:
        self._failures += 1
        if isinstance(error, sqlite3.Error):
            self._damaged = is_damage(error)
            self._degrade(f"{self._file.path.name}: {error}")
            return
        logger.error("the writer of the store crashed", exc_info=error)
        self._degrade(f"the writer crashed: {error!r}")
        self._crashes.append(trio.current_time())
        if len(self._crashes) == CRASHES and self._crashes[-1] - self._crashes[0] <= CRASH_WINDOW:
            text = f"the writer of the store {self._file.path} crashed {CRASHES} times in {CRASH_WINDOW:.0f} s"
            raise StoreFailed(text) from error

    def _degrade(self, reason: str) -> None:
        """From now on events are seen without being stored."""
        changed, self.degraded = self.degraded is None, reason
        self._backlog = self._backlog_bytes = 0
        hidden = tuple(dict.fromkeys((*self._writing, *self._dirty)))
        for stream in hidden:
            self._show(stream, stream.last)
        self._tails.trim(hidden, lossy=True)
        self._flushing.unpark_all()
        if changed:
            logger.error("the store is degraded, events are not durable: %s", reason)
            self._tell()

    def _recover(self) -> None:
        self._failures = 0
        if self.degraded is not None:
            self.degraded = None
            logger.warning("the store has recovered, events are durable again")
            self._tell()

    def _tell(self) -> None:
        if self.on_state is not None:
            try:
                self.on_state(self.degraded)
            except Exception:
                logger.exception("the listener to the state of the store failed")

    async def _start_afresh(self) -> None:
        """After damage to the file: a new one, into which everything that memory holds is written again."""
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
        for stream in list(self._ledger):
            stream.written = stream.saved_floor = 0
            stream.stored = False
            if stream.ended is not None and not stream.tail:
                self._remove(stream)
            else:
                self._ledger.drop_to(stream, stream.tail_floor)
                self._dirty[stream] = None
                stream.wake()

    # -- the janitor

    async def _serve_janitor(self) -> None:
        while True:
            await trio.sleep(1)
            # The disk lives in real time, whatever clock the tasks have.
            if self._writing and not self.degraded and time.monotonic() - self._writing_since > SLOW_COMMIT:
                self._degrade(f"a commit takes longer than {SLOW_COMMIT:.0f} s")
            for stream in self._ledger.expired(trio.current_time()):
                self._remove(stream)
            if trio.current_time() - self._opened > self.limits.session_age:
                self.sessions.drop_earlier()
            self.tasks.expire()

    # -- the file

    async def _in_thread(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return await trio.to_thread.run_sync(function, *args, limiter=self._write_thread)

    async def _load(self) -> None:
        contents = await self._in_thread(self._file.open, os.urandom(32))
        self._secret = contents.secret
        self._opened = now = trio.current_time()
        self.sessions.load(contents.records)
        self.tasks.load(contents.tasks)
        for serial, session, name, floor, last, size in contents.streams:
            key = StreamKey(session, name)
            earlier = self._ledger.find(key)
            if earlier is not None:  # removed and begun again; the process died before the removal was written
                self._remove(earlier)
            stream = StoredStream(key, serial, floor=floor, last=last, visible=last, size=size, tail_floor=last)
            stream.written, stream.saved_floor, stream.stored = last, floor, True
            self._ledger.end(self._ledger.adopt(stream), now)

    async def _fetch(self, stream: Stream, after: int) -> list[bytes]:
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
        with suppress(StoreFailed):  # said already
            while self._has_work():
                await self._commit()
                if self._failures:
                    break
        lost = sum(stream.last - max(stream.written, stream.floor) for stream in self._dirty)
        if lost:
            logger.error("the store is closed without %d events that could not be written", lost)

    # -- what is held in memory

    def _changed(self) -> None:
        self._accepted += 1
        if self._idle:
            self._idle.unpark_all()

    def _begin(self, key: StreamKey) -> StoredStream:
        if self._secret is None:
            raise LocalProtocolError("the store is not open")
        while (crowded := self._ledger.crowded()) is not None:
            self._remove(crowded)
        stream = self._ledger.begin(key)
        self._dirty[stream] = None
        return stream

    def _remove(self, stream: StoredStream) -> None:
        """Takes a stream out. A follower at work still gets what is in memory, stored or not: its session is over."""
        self._ledger.remove(stream)
        self._dirty.pop(stream, None)
        self._tails.forget(stream)
        if stream.stored:
            self._removed.append(stream.serial)
        stream.floor = stream.tail_floor
        self._show(stream, stream.last)
        self._changed()

    def _lose_weight(self, growing: StoredStream) -> None:
        finished, running = self._ledger.overweight(growing)
        for stream in finished:
            self._remove(stream)
        for stream in running:
            before = stream.tail_size
            self._ledger.drop_to(stream, max(stream.floor, stream.visible))
            self._tails.weigh(stream, before)
            self._dirty[stream] = None
            stream.wake()

    def _show(self, stream: StoredStream, upto: int) -> None:
        stream.visible = max(stream.visible, upto)
        stream.wake()
