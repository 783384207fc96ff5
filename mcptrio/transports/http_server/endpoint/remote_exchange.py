"""A stateless request that another worker forwarded, because something that it needs lives here.

Its answer goes back in one frame. If it becomes a stream, the stream is written to the store, under a name of its own,
and the worker that has the client follows it from there, as it does with the streams of sessions.
"""

from __future__ import annotations

import secrets
from typing import Final

from mcptrio.errors import Overloaded
from mcptrio.stores.base import StreamKey

from .message import Events
from .post import ReplyPhase
from .remote import RemoteConnection
from .stateless import ExchangeLink

STREAM: Final = "0"
_PREFIX: Final = "~"  # no session id begins like this


def is_of_exchange(session: str) -> bool:
    """Return whether a name in the store is that of a forwarded stateless request, which has no session."""
    return session.startswith(_PREFIX)


class RemoteExchangeLink(ExchangeLink, kw_only=True):
    """The link of one forwarded POST: plain JSON, or a stream in the store."""

    _key: StreamKey | None = None

    def _open(self) -> bool:
        key = StreamKey(_PREFIX + secrets.token_urlsafe(18), STREAM)
        try:
            # The record of a call lets others follow a stream that has no event yet.
            self.parts.store.begin(key, owner=self.head.owner, call=b"stateless")
        except Overloaded:
            return False  # it stays pending: its answer is plain JSON
        self._key = key
        self._settle(ReplyPhase.STREAMING)
        return True

    def _put(self, data: bytes, final: bool) -> None:
        if self._key is not None:
            self.parts.store.append(self._key, data, last=final)

    def _close(self) -> None:
        if self._key is not None:
            self.parts.store.finish(self._key)

    def _events(self) -> Events:
        if self._key is None or self.head.remote is None:
            raise RuntimeError("a stream without a key, or without a worker that follows it")
        return RemoteConnection(
            session=self._key.session,
            stream=self._key.stream,
            after=0,
            resumable=False,
            prologue=b"",
            tell=self.head.remote,
            hub=self.parts.hub,
            request_id=self.frame.id,
            on_detach=self.detach,
        )

    def detach(self, cause: str) -> None:
        super().detach(cause)
        if self._key is not None:
            self.parts.store.forget(self._key.session)  # it cannot be resumed
