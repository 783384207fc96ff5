"""Hypercorn's stream for our own application, where nothing stands between the two.

Theory of operation. ASGI knows requests and responses in pieces, each request in a task of its own. Our application has
its answers whole, mostly at once, and takes the request as the gate read it. So behind its `send` it finds this stream,
which offers what ASGI has no messages for: the head that it made of the same bytes before, the whole answer in one, and
the task that read the request, for the handler. Everything else is ASGI here too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

import trio
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.typing import HTTPScope

from . import framing
from .message import Head, Headers, Loan, Rest

if TYPE_CHECKING:
    from .inbox import Inbox
    from .protocol import GuardedH11

Run = Callable[[], Awaitable[None]]


class Known(NamedTuple):
    """What was made of a head, for the next request that has the same."""

    parsed: framing.Head
    head: Head
    scope: HTTPScope


class OwnStream(HTTPStream):
    """One request. Its application begins in the task that reads the connection, see `Connection.serve_here`."""

    protocol: GuardedH11
    parsed: framing.Head
    known: Head | None = None
    """What the application made of the same head before."""
    inbox: Inbox
    reading: trio.CancelScope
    """Entered around the whole task that read the request."""
    read_in: int
    """Which of the tasks that read the connection, one after the other, that was."""
    turn = 0
    """Which task serves it: whoever began with another number has passed it on."""
    go_on: Callable[[OwnStream, Run], None]
    """Has another task serve the rest."""

    def remember(self, head: Head) -> None:
        """The next request with the same head finds this as `known`, and has the same scope."""
        self.protocol.known = Known(self.parsed, head, self.scope)

    def lend(self, finish: Callable[[Rest], Awaitable[None]]) -> Loan:
        """The task, for a handler. If it is kept another one calls `finish` with the rest."""
        return Loan(self.reading, partial(self._pass_on, finish))

    def _pass_on(self, finish: Callable[[Rest], Awaitable[None]], rest: Rest) -> None:
        self.turn += 1
        self.go_on(self, partial(finish, rest))

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        """The response, in place of `http.response.start` and the one `http.response.body`."""
        data = self.protocol.whole_response(status, headers, body)
        self.state = ASGIHTTPState.CLOSED
        await self.protocol.send_bytes(data)
        if self.protocol.logs_access:
            summary: Any = {"status": status, "headers": headers}
            await self.config.log.access(self.scope, summary, time() - self.start_time)
        self.closed = True
        await self.protocol.end_response()
