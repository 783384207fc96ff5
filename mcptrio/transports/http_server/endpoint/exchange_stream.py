"""The streams that answer stateless requests. They end with their connection and cannot be resumed.

A request of a client of this process has an `OutboxStream`. A request that another worker forwarded, because something
that it needs lives here, has a `StoreStream`: it is written to the store, under a name of its own, and the worker that
has the client follows it from there, as it does with the streams of sessions.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

import trio

from mcptrio._actors.outbox import Outbox
from mcptrio._actors.timers import Timer
from mcptrio._wire.sse import COMMENT, encode_event
from mcptrio.errors import ConnectionLost
from mcptrio.stores.base import StreamKey

from .message import Events, HttpRequest
from .parts import EndpointParts
from .remote import CloseRemotely, RemoteConnection

_STREAM: Final = "0"
_PREFIX: Final = "~"  # no session id begins like this


def is_of_exchange(session: str) -> bool:
    """Return whether a name in the store is that of a forwarded stateless request, which has no session."""
    return session.startswith(_PREFIX)


class OutboxStream:
    """The stream of a client of this process, and its `Events`.

    Owns: the outbox, the timer of the heartbeat.
    """

    def __init__(self, parts: EndpointParts, head: HttpRequest, on_detach: Callable[[str], None]) -> None:
        config = parts.config
        self._outbox = Outbox(config.outbox_events, config.outbox_bytes, parts.admission.unread, head.owner, self._cut)
        self._heartbeat = Timer(parts.timers, self._say_alive)
        self._every = config.heartbeat
        self._limit = parts.limit
        self._on_detach = on_detach

    # -- for the link

    def put(self, data: bytes, final: bool) -> None:
        self._outbox.put(data)

    @property
    def full(self) -> bool:
        return self._outbox.full

    async def room(self) -> None:
        if self._outbox.full:
            self._limit("outbox")
        await self._outbox.room()

    def close(self) -> None:
        """Accept no more messages."""
        self._heartbeat.close()
        self._outbox.close()

    def drop(self) -> None:
        """Forget what was not read: its reader is gone."""
        self._outbox.drop()  # the garbage collector may come late

    def events(self) -> Events:
        return self

    def _cut(self) -> None:
        self.detach("not read")

    # -- for the engine

    def _say_alive(self) -> None:
        """Queue a heartbeat comment for a silent stream, as an empty item."""
        if self._outbox.empty:
            self._outbox.put(b"")

    @property
    def over(self) -> bool:
        return self._outbox.closed and self._outbox.empty

    async def next(self) -> bytes | None:
        if not self._outbox.closed:
            self._heartbeat.set(trio.current_time() + self._every)
        try:
            items = await self._outbox.take_some()
        except ConnectionLost:
            return None
        return b"".join([encode_event(item) if item else COMMENT for item in items])

    def detach(self, cause: str) -> None:
        self._on_detach(cause)


class StoreStream:
    """The stream of a client of another worker, in the store."""

    full = False  # its bound is the length of a stream in the store

    def __init__(
        self,
        parts: EndpointParts,
        head: HttpRequest,
        close_remotely: CloseRemotely,
        request_id: int | str,
        on_detach: Callable[[str], None],
    ) -> None:
        """Begin the stream.

        Raises:
            Overloaded: the store has no room for it.
        """
        key = self._key = StreamKey(_PREFIX + secrets.token_urlsafe(18), _STREAM)
        self._store = parts.store
        # The record of a call lets others follow a stream that has no event yet.
        self._store.begin(key, owner=head.owner, call=b"stateless")
        self._connection = RemoteConnection(
            session=key.session,
            stream=key.stream,
            after=0,
            resumable=False,
            prologue=b"",
            close_remotely=close_remotely,
            hub=parts.hub,
            request_id=request_id,
            on_detach=on_detach,
        )

    def put(self, data: bytes, final: bool) -> None:
        self._store.append(self._key, data, last=final)

    async def room(self) -> None:
        pass

    def close(self) -> None:
        """Accept no more messages."""
        self._store.finish(self._key)

    def drop(self) -> None:
        """Forget what was stored: it cannot be resumed."""
        self._store.forget(self._key.session)

    def events(self) -> Events:
        return self._connection


ExchangeStream = OutboxStream | StoreStream
