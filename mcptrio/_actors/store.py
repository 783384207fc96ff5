"""The protocols of a store and of a bus, as the runtime, the transports and the extensions use them.

*The store is the stream.* A session appends events, which never blocks; any number of connections follow. A follower
is one cursor over one sequence for the events it missed and for those that arrive, so that no event can be lost or
repeated between the two.

`EventStore` keeps the streams, `SessionDirectory` the records of sessions, `TaskStore` tasks and their results, `Marks`
single-use entries and results of `once`; `Bus` delivers changes to subscribers. `mcptrio.stores` has the
implementations, and its `base` module exports these names; one test suite runs over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

WORKER_MARK: Final = b"worker "
"""Begins the value of a `state` mark that counts only as long as the worker which it names is alive."""
MarkKind = Literal["state", "once", "dpop", "result"]


class StreamKey(Struct, frozen=True):
    """The name of a stream. It includes the session, so that no session can reach the events of another."""

    session: str
    stream: str


class StoredEvent(Struct, frozen=True):
    """One event of a stream. Numbers are 1, 2, 3 … in each stream; a cursor is the number of the last event seen."""

    seq: int
    data: bytes


class Follower(Protocol):
    """A cursor on one stream: the events kept after it, then new ones, in order, each once."""

    @property
    def cursor(self) -> int:
        """The number of the last event received; at first, the position where following began."""

    async def receive(self) -> StoredEvent:
        """Wait for the next event. A cancelled call consumes nothing.

        Raises:
            trio.EndOfChannel: the stream is finished and every event was received.
            LaggedBehind: the next event is no longer kept.
            trio.ClosedResourceError: this follower was closed.
        """

    def receive_nowait(self) -> StoredEvent:
        """Return the next event; raise `trio.WouldBlock` if there is none yet, or if it must be read from disk."""

    def close(self) -> None:
        """End this follower, also one that waits in another task. The stream continues."""


class EventStore(Protocol):
    """Streams of events that can be followed from any position."""

    durable: bool
    """Whether the events outlive the process."""

    @property
    def secret(self) -> bytes:
        """32 random bytes from which event ids and session ids are made; a durable store keeps them."""

    @property
    def degraded(self) -> str | None:
        """The reason why events are not stored as promised at present; `None` if they are."""

    def begin(self, key: StreamKey, *, owner: str = "", call: bytes | None = None) -> None:
        """Create a stream of an owner, so that it can be followed before its first event; do nothing if it exists.

        `call` describes the call that the stream answers. It is stored with the stream and removed at the end of the
        stream; `SessionDirectory.claim` returns it if the process died before that.

        When there is no room for events, the owner that has most loses its own; without an owner the session is one.

        Raises:
            Overloaded: there are too many running streams.
        """

    def append(self, key: StreamKey, data: bytes, *, last: bool = False, keep_after: int | None = None) -> int:
        """Add an event and return its number; never blocks. Followers end after the `last` one.

        Followers see the event when it is stored. An unknown stream is created. Events after `keep_after` were not
        read by the connected client yet: they are kept although the stream exceeds its bounds.

        Raises:
            Overloaded: the stream is new and there are too many running ones.
            LocalProtocolError: the stream is finished.
        """

    def finish(self, key: StreamKey) -> None:
        """End a stream without an event; do nothing if it is unknown or finished."""

    async def reopen(self, key: StreamKey, *, owner: str = "") -> int:
        """Continue a stream of a claimed session that an earlier home began and did not end.

        Returns:
            The number of its newest event; 0 if nothing is stored of it.
        """

    async def prepare_follow(self, key: StreamKey) -> None:
        """Look for a stream that another process has written, so that what is stored of it can be followed."""

    async def prepare_cursor(self, key: StreamKey) -> None:
        """Wait until a stream is stored, or the store degrades, because a client is about to get an id of it.

        Raises:
            UnknownCursor: another process continues the session, and does not know the stream.
        """

    def follow(self, key: StreamKey, after: int = 0) -> Follower:
        """Follow a stream: every event after number `after`, then new ones.

        Raises:
            UnknownCursor: that is not possible without a gap.
        """

    def forget(self, session: str) -> None:
        """End and remove the streams of a session. Open followers receive what is in memory, then the end."""

    async def flush(self) -> None:
        """Wait until everything accepted so far is stored, or until the store degrades: check `degraded`."""

    def open(self) -> AbstractAsyncContextManager[None]:
        """Run the store's own tasks. After the block everything that was accepted is on disk.

        Raises:
            StoreFailed: the store cannot be used at all; also raised out of a running block.
        """


class Claimed(Struct, frozen=True, kw_only=True):
    """A session whose home is this process from now on."""

    epoch: int
    """The fencing epoch: larger than that of every earlier home. Every later write of the session carries it."""
    record: bytes
    owner: str = ""
    previous: str = ""
    """The process that was its home and did not release it, because it died; empty if the session was released."""
    calls: Mapping[str, bytes] = {}
    """The call records of its streams that have not ended: name of the stream -> `call` of `EventStore.begin`."""
    left: float | None = None
    """The seconds until it would have expired, if the store knows: it is released with them if it is not used."""


class HomeAt(Struct, frozen=True):
    """The home of a session that is served by another live process: requests of the session are forwarded to it."""

    worker: str
    address: str
    epoch: int = 0


class SessionDirectory(Protocol):
    """The records of sessions, and which process is the home of each: of all processes, one may change a session.

    A session begins with `put` at epoch 0; its home is the process that did so. A home gives it up with `release`; the
    next request `claim`s it, here or in another process, with a higher epoch. A process that writes with an epoch that
    is no longer the newest changes nothing, and `Store.on_fenced` is called with the session. The stores of a single
    process, in memory or in a file, answer every claim of a known session with `Claimed`.

    When there is no room, the owner that has most records loses the one that was released longest ago.
    """

    async def claim(self, session: str, /, denied: HomeAt | None = None) -> Claimed | HomeAt | None:
        """Become the home of a session, unless another live process is; None if there is no such session.

        The caller has no object of the session, and makes one claim of a session at a time. `denied` is a home that has
        answered that the session is not there: it is not the home then, whatever the directory says.

        Raises:
            Overloaded: the store cannot be asked at present.
        """

    def put(self, session: str, epoch: int, record: bytes, /, *, owner: str = "", pinned: bool = False) -> None:
        """Set the record of a session that is at home here; never blocks. `Store.flush` waits until it is stored.

        A `pinned` session cannot be claimed: it is gone when its home dies.
        """

    async def release(self, session: str, epoch: int, record: bytes, /, *, ttl: float) -> bool:
        """Set the record of a session and give it up, after all its events have been stored.

        The session is kept for `ttl` seconds unless it is claimed. Its streams leave the memory of this process.

        Returns:
            Whether it is given up; False if that could not be stored yet, so that this process is still its home.
        """

    def forget(self, session: str, epoch: int, /) -> None:
        """Remove a session that is at home here, and all its streams; never blocks."""


class ClaimedTask(Struct, frozen=True):
    """An unfinished task whose process died; this process is its home now."""

    record: bytes
    note: bytes
    """The request and the answers to run the task again with; empty if it may not run again."""


class TaskStore(Protocol):
    """Tasks by their ids, each with a time to live. A durable store keeps them across restarts.

    A running task has a home: the process that put it. When that process has died, another one claims the task. Writes
    of a process that is no longer the home change nothing, see `when_lost`.

    When there is no room, the owner that has most loses the record that it has not changed for longest. `Store.flush`
    waits until a record is stored.
    """

    def when_lost(self, callback: Callable[[str], None], /) -> None:
        """Set the function that is called with a task which another process has taken over."""

    def put(
        self, task: str, record: bytes, /, ttl: float | None = None, *, owner: str = "", note: bytes | None = None
    ) -> None:
        """Set the record of a task of an owner for `ttl` seconds (None: until there is no room); never blocks.

        A task that runs here has a `note`, see `ClaimedTask`; None: it is over.
        """

    async def get(self, task: str, /) -> bytes | None:
        """Return the record of a task, unless it is unknown or expired."""

    def let_go(self, task: str, /) -> None:
        """Write nothing more about a task that another process continues, when this one has left."""

    async def claim(self, task: str, /) -> ClaimedTask | None:
        """Become the home of an unfinished task, unless another live process is; None: it is not claimed."""

    async def home(self, task: str, /) -> str | None:
        """Return the worker of a cluster that a task runs in; None if it is over, or its home is not known."""

    async def orphans(self) -> Sequence[str]:
        """Return tasks whose home died; some of them may be claimed or over by now."""

    def drop(self, task: str, /) -> None:
        """Remove the record of a task; never blocks."""


class Marks(Protocol):
    """Entries with an expiry: used request states, results of `once`, DPoP proofs, results too large to be sent whole.

    Each kind has its own bounds, so that a flood of one kind evicts no mark of another, and no session. When there is
    no room, the owner that has most marks of the kind loses its oldest.
    """

    async def use(self, kind: MarkKind, mark: str, value: bytes, ttl: float, *, owner: str = "") -> bytes | None:
        """Set a mark for `ttl` seconds unless it is set, in one step.

        A mark of the kind `state` whose value names a dead worker (`WORKER_MARK`) counts as free.

        Returns:
            None if the mark was free and is set now; otherwise its value, and nothing has changed.
        """

    def done(self, kind: MarkKind, mark: str, value: bytes, ttl: float, *, owner: str = "") -> None:
        """Set the final value of a mark for `ttl` seconds; never blocks. `Store.flush` waits until it is stored."""

    def drop(self, kind: MarkKind, mark: str) -> None:
        """Remove a mark; never blocks."""

    async def get(self, kind: MarkKind, mark: str) -> bytes | None:
        """Return the value of a mark, unless it is free or expired."""


class Store(EventStore, Protocol):
    """The complete store that a runtime opens: streams, sessions, tasks and marks."""

    shared: bool
    """Whether several processes use the store at the same time."""
    on_state: Callable[[str | None], None] | None
    """Called with the reason when the store degrades, and with `None` when it has recovered."""

    on_fenced: Callable[[str], None]
    """Called with a session whose home is another process now, when a write of this one was refused."""

    @property
    def bus(self) -> Bus | None:
        """The bus between the processes of a shared store."""

    @property
    def sessions(self) -> SessionDirectory: ...
    @property
    def tasks(self) -> TaskStore: ...
    @property
    def marks(self) -> Marks: ...


class Subscription(Protocol):
    """A callback on the bus; it is not called after `close()`."""

    def close(self) -> None:
        """Leave the bus; closing twice is allowed."""


class Bus(Protocol):
    """Change notifications to sessions and listen streams."""

    def publish(self, topic: str, payload: Any = None, *, everywhere: bool = True) -> None:
        """Call every callback that is subscribed to the topic, in the order of subscription.

        `everywhere` includes the callbacks of the other processes that share a store. The version of the topic, which
        they share, changes in any case.
        """

    def subscribe(self, topics: Iterable[str], callback: Callable[[str, Any], None]) -> Subscription:
        """Call `callback(topic, payload)` for each change: a plain function that neither blocks nor raises.

        An exception in a callback is logged and does not affect other callbacks.

        Raises:
            Overloaded: a topic has too many subscriptions.
        """

    async def versions(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the versions of topics, which change with each publication: `origin:number`.

        Versions of different origins cannot be compared. The result lacks topics whose version is not known.
        """

    async def settled(self) -> None:
        """Wait until the subscriptions so far are effective in every process, or until that takes too long."""
