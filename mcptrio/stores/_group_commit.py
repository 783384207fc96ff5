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
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from mcptrio.errors import LocalProtocolError
from mcptrio.stores._backend import FENCED, BackendFailed, CommitGroup, Contents, StreamBackend
from mcptrio.stores._health import Health
from mcptrio.stores._recent_events import RecentEvents
from mcptrio.stores._records import Tables
from mcptrio.stores._stored_streams import StoredStream
from mcptrio.stores._streams import MemoryStream, StreamFollower, StreamIndex, check_cursor, open_tasks
from mcptrio.stores.base import Bus, LaggedBehind, StoreFailed, StoreLimits, StreamKey

logger = logging.getLogger(__name__)

REMOVED_AT_ONCE: Final = 256  # streams deleted in one commit, so that no commit is long
CRASHES: Final = 6
CRASH_WINDOW: Final = 30.0
SLOW_COMMIT: Final = 3.0  # longer than SQLite waits for a lock


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
        self.limits = limits = limits or StoreLimits()
        self.health = Health(on_state)
        self._backend = backend
        self._tables = Tables(limits, self._changed, expire_there=backend.expires_records)
        self._open = False
        self._secret: bytes | None = None
        self._index: StreamIndex[StoredStream] = StreamIndex(limits, StoredStream)
        self._dirty: dict[StoredStream, None] = {}  # changed since the last commit began
        self._writing: Sequence[StoredStream] = ()  # in the commit that runs
        self._writing_since = 0.0
        self._removed: list[tuple[StreamKey, int]] = []
        self._recent = RecentEvents(limits, self._index)
        self._backlog = self._backlog_bytes = 0
        self._accepted = self._settled = 0  # changes, to know when a flush is done
        self._idle = trio.lowlevel.ParkingLot()
        self._flushing = trio.lowlevel.ParkingLot()
        self._failures = 0  # commits that failed in a row
        self._crashes: deque[float] = deque(maxlen=CRASHES)
        self._damaged = False

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

    def begin(self, key: StreamKey, *, owner: str = "") -> None:
        if self._index.find(key) is None:
            self._begin(key, owner)
            self._changed()

    def append(self, key: StreamKey, data: bytes, *, last: bool = False, keep_after: int | None = None) -> int:
        try:
            stream = self._index.writable(key) or self._begin(key)
        except LocalProtocolError:
            fenced = self._index.find(key)
            if fenced is None or not fenced.fenced:
                raise
            return fenced.last  # its new writer continues it
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
            self._degrade(f"{self._backend.name} is behind by {self._backlog} events, {self._backlog_bytes} bytes")
        self._changed()
        return stream.last

    def finish(self, key: StreamKey) -> None:
        # Not written: every stream of a process that is gone is over.
        stream = self._index.find(key)
        if stream is not None:
            self._index.end(stream, trio.current_time())
            stream.wake()

    async def prepare_follow(self, key: StreamKey) -> None:
        """Do nothing: the streams of an earlier process were loaded."""

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
            raise LocalProtocolError(f"the store {self._backend.name} is open already: share it, or use another one")
        self._open = True
        try:
            async with self._backend.open(os.urandom(32), self._on_damage) as contents:
                self._load(contents)
                try:
                    async with open_tasks(self._serve_writer, self._serve_janitor):
                        yield
                finally:
                    with trio.move_on_after(5, shield=True):
                        await self._write_the_rest()
        finally:
            self._open, self._secret = False, None

    def _load(self, contents: Contents) -> None:
        self._secret = contents.secret
        forgotten = time.time() + self.limits.session_age
        self._index = StreamIndex(self.limits, StoredStream)  # of an earlier opening, if there was one
        self._recent = RecentEvents(self.limits, self._index)
        self._dirty, self._removed, self._failures, self._damaged = {}, [], 0, False
        self._tables.sessions.load((session, record, forgotten, owner) for session, record, owner in contents.sessions)
        self._tables.tasks.load(contents.tasks)
        self._tables.marks.load(contents.marks)
        for serial, session, name, floor, last, size in contents.streams:
            key = StreamKey(session, name)
            # An earlier one was removed and begun again; the process died before the removal was written.
            if (earlier := self._index.find(key)) is not None:
                self._remove(earlier)
            self._adopt(key, floor, last, serial, size).stored = True

    def _adopt(self, key: StreamKey, floor: int, last: int, serial: int = 0, size: int = 0) -> StoredStream:
        """Make the stored stream of another process known; it has ended."""
        stream = StoredStream(key, serial, floor=floor, last=last, visible=last, size=size, tail_floor=last)
        stream.written, stream.saved_floor = last, floor
        self._index.end(self._index.adopt(stream), trio.current_time())
        return stream

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
        return bool(self._dirty or self._removed or self._tables.changed)

    async def _commit(self) -> None:
        settles = self._accepted
        dirty, self._dirty = list(self._dirty), {}
        removed = self._take_removed({stream.key for stream in dirty})
        taken = sessions, tasks, marks = self._tables.take()
        changes = [stream.take_change() for stream in dirty]
        group = CommitGroup(streams=changes, removed=removed, sessions=sessions, tasks=tasks, marks=marks)
        self._backlog = self._backlog_bytes = 0
        self._writing, self._writing_since = dirty, time.monotonic()
        try:
            stored = await self._backend.commit(group)
        except BaseException as error:  # the guard of the writer; after a cancellation the last commit writes the rest
            self._writing = ()
            self._dirty = {stream: None for stream in dirty if self._index.find(stream.key) is stream} | self._dirty
            self._removed = removed + self._removed
            self._tables.give_back(taken)
            if not isinstance(error, Exception):
                raise
            self._on_failure(error)
        else:
            for stream, change, newest in zip(dirty, changes, stored, strict=True):
                if newest == FENCED:
                    self._fence(stream)
                elif newest < change.start:
                    self._rewind(stream, newest)
                else:
                    stream.written, stream.saved_floor = change.last, change.floor
                    self._show(stream, change.last)
            self._writing = ()
            self._recent.trim(dirty, lossy=self.degraded is not None)
            self._failures = 0
            self.health.recover()
        self._settled = settles
        self._flushing.unpark_all()

    def _take_removed(self, written: Set[StreamKey]) -> list[tuple[StreamKey, int]]:
        """Return some of the removals, and each of a stream whose name is about to be written again."""
        some, rest = self._removed[:REMOVED_AT_ONCE], self._removed[REMOVED_AT_ONCE:]
        self._removed = [removal for removal in rest if removal[0] not in written]
        return some + [removal for removal in rest if removal[0] in written]

    def _fence(self, stream: StoredStream) -> None:
        """End a stream that another process writes now: discard what was not shown, and delete nothing."""
        logger.warning("a stream of session %s is written by another process now", stream.key.session)
        stream.fenced, stream.stored = True, False
        self._dirty.pop(stream, None)
        if self._index.find(stream.key) is stream:
            before, size = stream.tail_size, stream.size
            stream.cut(stream.visible)
            self._index.resized(stream, stream.size - size)
            self._recent.weigh(stream, before)
            self._index.end(stream, trio.current_time())
        stream.wake()

    def _rewind(self, stream: StoredStream, newest: int) -> None:
        """Write the end of a stream again that the backend has lost; a gap that memory cannot fill is cut off."""
        if self._index.find(stream.key) is not stream:
            return
        logger.error("the store has lost events of session %s; writing them again", stream.key.session)
        stream.written, stream.saved_floor = newest, min(stream.saved_floor, newest)
        if newest < stream.tail_floor:
            self._index.drop_to(stream, stream.tail_floor)
            stream.wake()
        self._dirty[stream] = None

    def _on_failure(self, error: Exception) -> None:
        self._failures += 1
        if isinstance(error, BackendFailed):
            self._damaged = error.damaged
            self._degrade(str(error))
            return
        logger.error("the writer of the store crashed", exc_info=error)
        self._degrade(f"the writer crashed: {error!r}")
        self._crashes.append(trio.current_time())
        if len(self._crashes) == CRASHES and self._crashes[-1] - self._crashes[0] <= CRASH_WINDOW:
            text = f"the writer of the store {self._backend.name} crashed {CRASHES} times in {CRASH_WINDOW:.0f} s"
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
        self._damaged = False
        self._failures = 0
        self._removed.clear()
        self._tables.put_all_again()
        for stream in list(self._index):
            stream.written = stream.saved_floor = 0
            stream.stored = False
            if stream.ended is not None and not stream.tail:
                self._remove(stream)
            else:
                self._index.drop_to(stream, stream.tail_floor)
                self._dirty[stream] = None
                stream.wake()

    async def _serve_janitor(self) -> None:
        while True:
            await trio.sleep(1)
            # Commits take real time, also under a mock clock.
            if self._writing and not self.degraded and time.monotonic() - self._writing_since > SLOW_COMMIT:
                self._degrade(f"a commit takes longer than {SLOW_COMMIT:.0f} s")
            for stream in self._index.expired(trio.current_time()):
                self._remove(stream)
            self._tables.expire()
            self.health.check()

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
            self._removed.append((stream.key, stream.serial))
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
