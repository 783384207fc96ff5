"""The storage behind a durable store: the protocol of a backend, and the values that it is given and returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from msgspec import Struct

from mcptrio.stores._records import Row
from mcptrio.stores.base import StreamKey

FENCED: Final = -1
"""The result of a change to a stream that another process writes now."""


class StreamRow(Struct, frozen=True):
    """A stream as it is stored."""

    key: StreamKey
    serial: int
    floor: int
    last: int
    size: int
    call: bytes | None = None
    age: float | None = None
    """Seconds since its end; None: it has not ended."""
    sizes: Sequence[int] = ()
    """The bytes of each event, if it has not ended."""


class StreamChange(Struct, frozen=True):
    """The unwritten part of one stream."""

    key: StreamKey
    serial: int
    """The number of the stream in this process; a key may be used again after its stream was removed."""
    floor: int
    """Events up to this number are removed."""
    trims: bool
    """Whether the floor has risen since the last commit."""
    start: int
    """The number before the first of `events`."""
    events: Sequence[bytes]
    size: int
    """The bytes of all events that are kept."""
    new: bool
    """Whether none of its events was stored yet: whatever has its name is not this stream."""
    ended: bool
    call: bytes | None
    """The call that the stream answers, if it has not ended; see `EventStore.begin`."""
    epoch: int = 0
    """The fencing epoch of its session when this process began to write it."""

    @property
    def last(self) -> int:
        return self.start + len(self.events)


class SessionRow(Struct, frozen=True):
    """A session that is at home here, or that was released just now."""

    session: str
    epoch: int
    record: bytes
    owner: str
    pinned: bool = False
    expires: float | None = None
    """Until when (in wall-clock time) a released session is kept; None: it is at home here."""


class StoredSession(Struct, frozen=True):
    """A claimed session as the backend had it, and its streams."""

    row: SessionRow
    previous: str
    """The process that was its home and did not release it."""
    streams: Sequence[StreamRow] = ()
    left: float | None = None
    """The seconds until it would have expired."""


class CommitGroup(Struct, frozen=True, kw_only=True):
    """Everything that one commit writes. No task changes it, so that a thread may read it."""

    streams: Sequence[StreamChange] = ()
    removed: Sequence[tuple[StreamKey, int]] = ()
    """Key and serial of each stream to delete."""
    sessions: Mapping[str, SessionRow | None] = {}
    """Records by id; None: to be removed, with all streams of the session."""
    tasks: Mapping[str, Row | None] = {}
    marks: Mapping[str, Row | None] = {}


class Contents(Struct, frozen=True, kw_only=True):
    """The data of a backend when it is opened, as far as it must be known from the start."""

    secret: bytes
    serial: int = 0
    """The largest serial of a stream."""
    streams: Sequence[StreamRow] = ()
    """The streams that belong to no session of the directory; the others are read when their session is claimed."""
    tasks: Sequence[Row] = ()
    marks: Sequence[Row] = ()


class BackendFailed(Exception):
    """A backend could not write or read; the text says why. `damaged`: what it held is lost."""

    def __init__(self, reason: str, *, damaged: bool = False) -> None:
        super().__init__(reason)
        self.damaged = damaged


class StreamBackend(Protocol):
    """Where a durable store keeps its data. Failures are `BackendFailed`; any other exception is a crash."""

    name: str
    """Names the place in logs and errors."""
    retry_after: Sequence[float]
    """Seconds before each retry of a failed commit; the last one repeats."""
    expires_records: bool
    """Whether it removes expired records itself."""

    def open(self, secret: bytes, on_damage: Callable[[str], None]) -> AbstractAsyncContextManager[Contents]:
        """Open the storage and run its tasks; `secret` is for a new one.

        `on_damage` is called with the reason when the contents are found lost while nothing is written.

        Raises:
            StoreFailed: it cannot be used.
        """

    async def commit(self, group: CommitGroup) -> Sequence[int]:
        """Write a group. Writing a group again that was partly written has the same result as writing it once.

        Returns:
            For each changed stream the number of its newest stored event, or `FENCED`. A number below the `start` of
            the change says that events which were stored have been lost, and that nothing of the change was written.
        """

    async def fetch(self, key: StreamKey, serial: int, after: int, upto: int) -> list[bytes]:
        """Read events after `after` up to `upto` without a gap: not all of them perhaps, but at least one."""

    async def tidy(self) -> None:
        """Remove what has expired, and what exceeds the bounds of the store; called at intervals."""

    async def start_afresh(self, secret: bytes) -> None:
        """Start empty after damage; everything that memory holds is then written again."""
