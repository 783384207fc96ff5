"""Requests and streams that cross workers, as the endpoint sees them.

The endpoint borrows a `Cluster`: it forwards the requests of sessions that live in another worker. At the home worker a
forwarded request is served like any other, except that its stream is not sent: the worker that has the client follows
it from the store. `RemoteConnection` stands for that client in the tables of the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mcptrio import telemetry
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Batch, Frame
from mcptrio.stores.base import HomeAt

from .event_stream import StreamLog, StreamResponse
from .message import HttpRequest, Plain, Stream


class Cluster(Protocol):
    """The workers of an endpoint, as one of them uses the others."""

    @property
    def serves(self) -> bool:
        """Whether this worker may serve its sessions: its lease has not expired."""
        ...

    @property
    def may_claim(self) -> bool:
        """Whether this worker may become the home of further sessions: it does not drain."""
        ...

    def remembered(self, session_id: str) -> HomeAt | None:
        """Return the worker that has answered an earlier request of a session: it is asked before the directory."""
        ...

    async def locate(self, session_id: str, head: HttpRequest, denied: HomeAt | None = None) -> HomeAt | bool | None:
        """Claim the session of a request, unless this worker drains, or find its home.

        Return its home; True if it is here now, False if it is gone, None if any other worker may claim it. `denied`
        is a home that has answered that the session is not there.

        Raises:
            Overloaded: there is no room, or the store cannot be asked.
        """
        ...

    async def look(self, session_id: str) -> HomeAt | None:
        """Return the home of a session that this worker does not claim, because it drains; None if it has none.

        Raises:
            Overloaded: the store cannot be asked.
        """
        ...

    async def forward(
        self, head: HttpRequest, body: bytes, frame: Frame | Batch | None, home: HomeAt | None
    ) -> Plain | Stream | None:
        """Have the home of a session answer a request; None: this worker is its home now.

        Without a home, any worker that does not drain becomes it.
        """
        ...

    async def forward_to(
        self, worker: str, head: HttpRequest, body: bytes, frame: Frame | Batch
    ) -> Plain | Stream | None:
        """Have a worker answer a stateless request, or a message of HTTP+SSE; None: it is dead, or cannot."""
        ...

    async def other_pages(self) -> list[str]:
        """Return the metrics of the other workers behind the same socket."""
        ...


CloseRemotely = Callable[[bool], None]
"""Has the other worker close the connection of a client; the argument says whether the client is to come back."""


class RemoteConnection(Entity, kw_only=True):
    """A client that follows a stream of this worker at another worker, in place of a `StreamResponse`.

    It counts as having taken every event: a slow client there does not block a handler here. The bound for it is the
    length of the stream in the store.
    """

    session: str
    stream: str
    after: int
    resumable: bool
    prologue: bytes
    close_remotely: CloseRemotely
    hub: telemetry.Hub
    log: StreamLog | None = None
    request_id: int | str | None = None
    on_detach: Callable[[str], None] | None = None
    detached: str | None = None
    takes_all: bool = True
    announced: bool = False
    """Whether the other worker knows it."""
    _retry: bool = False
    _closing: bool = False

    def __post_init__(self) -> None:
        if self.log is not None:
            self.log.connection = self
            self.log.expected = False
            self.log.took(self.log.last)

    @property
    def over(self) -> bool:
        return self.detached is not None

    async def next(self) -> bytes | None:
        """Return None: the stream is not read here."""
        return None

    def say_retry(self) -> None:
        """Have the client come back when the connection is closed."""
        self._retry = True

    def close(self) -> None:
        """End the connection of the client, but not the stream."""
        self._closing = True
        if self.announced and self.detached is None:
            self.close_remotely(self._retry)

    def announce(self) -> None:
        """Note that the other worker knows the stream; it may have to close it at once."""
        self.announced = True
        if self._closing:
            self.close()

    def detach(self, cause: str) -> None:
        if self.detached is not None:
            return
        self.detached = cause
        if self.log is not None:
            self.log.lost(self)
        if self.on_detach is not None:
            self.on_detach(cause)
        if self.hub:
            self.hub.emit(telemetry.StreamClosed(session=self.session, cause=cause))


ClientConnection = StreamResponse | RemoteConnection
"""The connection of a client that follows a stream: here, or at another worker."""
