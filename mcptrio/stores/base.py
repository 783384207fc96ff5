"""What a store is, whatever it is made of.

*The store is the stream.* A session appends events, which never waits; any number of connections follow. Replaying
what was missed and following what comes are one cursor moving over one sequence, so there is no moment between the two
in which an event could be lost or seen twice.

Four small protocols: `EventStore` keeps the streams, `SessionDirectory` what a restarted process must know of a
session, `TaskStore` tasks and their results, `Bus` carries changes to whoever subscribed. Every implementation runs the
same test-suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Struct

from mcptrio.errors import MCPTrioException


class UnknownCursor(MCPTrioException):
    """A stream cannot be followed from there: it is unknown, ends earlier, or the next events are no longer kept."""


class LaggedBehind(MCPTrioException):
    """A follower read so slowly that events it had not seen are gone; following on would leave a gap."""


class StoreFailed(MCPTrioException):
    """A store cannot be opened, or its writer keeps crashing; the text says why."""


class StreamKey(Struct, frozen=True):
    """Names a stream: always by its session too, so that no session can reach the events of another."""

    session: str
    stream: str


class Event(Struct, frozen=True):
    """One event of a stream. Numbers are 1, 2, 3 … in each stream; a cursor is the number of the last one seen."""

    seq: int
    data: bytes


class StoreLimits(Struct, frozen=True, kw_only=True):
    """Every bound of a store. One event that is larger than a bound of bytes is kept alone."""

    stream_events: int = 1_000
    """Events kept of one stream, so how far back a client may resume; the oldest go first."""
    stream_bytes: int = 4 * 2**20
    """Bytes kept of one stream; the oldest events go first."""
    stream_age: float = 600.0
    """Seconds that a finished stream is kept: how late a client may come for the answer of a call that it lost."""
    streams: int = 65_536
    """Streams in all. Finished ones make room, the longest finished first; with none left, a new one is refused."""
    total_bytes: int = 256 * 2**20
    """Bytes in all. Finished streams go first, then the history of the oldest running ones."""
    sessions: int = 20_000
    """Records in the session directory; the oldest go first. A durable store needs as many as
    `SupervisorLimits.max_sessions`."""
    session_age: float = 1_800.0
    """Seconds that the record of a session from before a restart is kept unless it is put again."""
    tasks: int = 10_000
    """Tasks that are kept; the longest untouched go first, so raise it if results are fetched late."""
    task_bytes: int = 64 * 2**20
    """Bytes of all tasks that are kept, as `tasks`."""
    # What follows is read by durable stores only.
    backlog_events: int = 1_024
    """Events waiting to be written. Above it the store degrades until the disk has caught up; raise it for disks
    that pause."""
    backlog_bytes: int = 16 * 2**20
    """Bytes waiting to be written, as `backlog_events`."""
    tail_events: int = 256
    """Newest events of one stream that are held in memory as well, so that live followers need no disk."""
    tail_bytes: int = 2**20
    """Bytes of one stream that are held in memory as well, as `tail_events`."""
    tail_total: int = 32 * 2**20
    """Bytes of all streams that are held in memory as well."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"StoreLimits.{name} must be positive, got {getattr(self, name)!r}")


class Follower(Protocol):
    """A cursor on one stream: what is kept after it, then what comes, in order, each once."""

    @property
    def cursor(self) -> int:
        """The number of the last event received (at first: where following began)."""

    async def receive(self) -> Event:
        """The next event; waits for it. A cancelled call has taken nothing.

        Raises:
            trio.EndOfChannel: the stream is finished and everything was received.
            LaggedBehind: the next event is gone.
            trio.ClosedResourceError: this follower was closed.
        """

    def receive_nowait(self) -> Event:
        """The next event if it is at hand, else `trio.WouldBlock`: there is none yet, or it must be read from disk."""

    def close(self) -> None:
        """Ends this follower, also one that waits in another task. The stream goes on."""


class EventStore(Protocol):
    """Streams of events that can be followed from any place."""

    durable: bool
    """Whether the events outlive the process."""

    @property
    def secret(self) -> bytes:
        """32 random bytes to make event ids and session ids with; a durable store keeps them across restarts."""

    @property
    def degraded(self) -> str | None:
        """Why events are at present not stored as promised; `None` when all is well."""

    def begin(self, key: StreamKey) -> None:
        """Makes a stream known, so that it can be followed before its first event. Nothing happens if it is.

        Raises:
            Overloaded: there are too many running streams.
        """

    def append(self, key: StreamKey, data: bytes, *, last: bool = False) -> int:
        """Adds an event and returns its number; never waits. After the `last` one followers end.

        Followers see it when it is stored. An unknown stream is begun.

        Raises:
            Overloaded: the stream is new and there are too many running ones.
            LocalProtocolError: the stream is finished.
        """

    def finish(self, key: StreamKey) -> None:
        """Ends a stream without an event. Nothing happens if it is unknown or finished."""

    def follow(self, key: StreamKey, after: int = 0) -> Follower:
        """Follows a stream: everything after event number `after`, then what comes.

        Raises:
            UnknownCursor: that cannot be done without a gap.
        """

    def forget(self, session: str) -> None:
        """Ends the streams of a session and removes them. Followers at work receive what is at hand, then the end."""

    async def flush(self) -> None:
        """Waits until everything accepted so far is stored, or until the store degrades: look at `degraded`."""

    def open(self) -> AbstractAsyncContextManager[None]:
        """Runs the store's own tasks. After the block everything accepted is on disk.

        Raises:
            StoreFailed: the store cannot be used at all; also out of a running block.
        """


class SessionDirectory(Protocol):
    """What a restarted process must know of a session to serve its resumes: who owns it, which revision it speaks."""

    def put(self, session: str, record: bytes) -> None:
        """Sets the record of a session; never waits."""

    async def get(self, session: str) -> bytes | None:
        """The record of a session, if there is one."""

    def drop(self, session: str) -> None:
        """Removes the record of a session; never waits."""


class TaskStore(Protocol):
    """Tasks by their ids, for as long as each is to be known. A durable store keeps them across restarts.

    `Store.flush` waits until what was put is stored.
    """

    def put(self, task: str, record: bytes, ttl: float | None = None) -> None:
        """Sets the record of a task, to be kept for `ttl` seconds (None: until there is no room); never waits."""

    async def get(self, task: str) -> bytes | None:
        """The record of a task, unless it is unknown or past its time."""

    def drop(self, task: str) -> None:
        """Removes the record of a task; never waits."""


class Store(EventStore, Protocol):
    """What `open_store` returns: the streams, and the session directory and the tasks beside them."""

    @property
    def sessions(self) -> SessionDirectory:
        """The session directory kept in the same place."""

    @property
    def tasks(self) -> TaskStore:
        """The tasks kept in the same place."""


class Subscription(Protocol):
    """A place on the bus; after `close()` its callback is not called again."""

    def close(self) -> None:
        """Leaves the bus; closing twice is allowed."""


class Bus(Protocol):
    """Change notifications to sessions and listen streams."""

    def publish(self, topic: str, payload: Any = None) -> None:
        """Calls every callback subscribed to the topic, in the order in which they subscribed."""

    def subscribe(self, topics: Iterable[str], callback: Callable[[str, Any], None]) -> Subscription:
        """Has `callback(topic, payload)` called for each change: a plain function that neither waits nor raises.

        One that does raise is logged and stops no other.

        Raises:
            Overloaded: a topic has too many subscriptions.
        """
