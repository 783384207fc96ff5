"""The timeouts of requests. The time in which the host answers the server does not count.

At the stateful dates a server sends requests of its own while it works on one, and does not say on which: so the clocks
of all requests that are pending at that time are paused until it is answered. Later requests have their usual time.

Nearly every request is answered long before its timeout, so none has a Trio deadline of its own: one task sleeps until
the earliest timeout, and then fails the requests that are overdue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field, frozen

from mcptrio._actors.future import Reply
from mcptrio.errors import RequestTimeout
from mcptrio.transports.http_status import meaning_of

if TYPE_CHECKING:
    from mcptrio.transports.http_client.auth import AuthRequest, AuthResponse, HttpAuth


class TimedReply(Reply, kw_only=True):
    """A pending request and its timeouts."""

    method: str
    idle: float = inf
    """Seconds without a sign of life after which the request fails."""
    total: float = inf
    """Seconds after which the request fails in any case, as the caller set them."""
    left: float = inf
    """Seconds left of the total; updated when the wait is over."""
    headers: Mapping[str, str] | None = None
    """Headers that the caller has added to this request."""
    on_late: Callable[[], None] | None = None
    """Called on a timeout, instead of settling the reply."""
    idle_until: float = inf
    until: float = inf
    still_since: float | None = None
    """Start of the current pause."""

    @property
    def due(self) -> float:
        return self.idle_until if self.idle_until < self.until else self.until

    def progressed(self, params: Mapping[str, Any]) -> None:
        now = trio.current_time() if self.still_since is None else self.still_since
        self.idle_until = now + self.idle
        if self.on_progress is not None:
            self.on_progress(params)

    def keep_waiting(self) -> None:
        """Wait without a limit from now on: the server has the request, and may answer it after days."""
        self.idle = self.idle_until = inf

    def late(self) -> None:
        if self.on_late is not None:
            self.on_late()
        else:
            self.settle(error=self.timeout())

    def timeout(self) -> RequestTimeout:
        seconds = self.idle if self.idle_until <= self.until else self.total
        return RequestTimeout(f"{self.method} was not answered within {seconds:g} s")


@define(eq=False, repr=False)
class Timeouts:
    """The clocks of a client's requests. Borrows: their replies, while they wait."""

    _waiting: set[TimedReply] = field(factory=set)
    _still: set[TimedReply] = field(factory=set)
    _questions: int = 0
    _wakes_at: float = inf
    _stopped: bool = False
    _sleep: trio.CancelScope = field(factory=trio.CancelScope)

    def begin(self, reply: TimedReply) -> None:
        """Start the clock of a request."""
        now = trio.current_time()
        reply.idle_until, reply.until = now + reply.idle, now + reply.left
        self._waiting.add(reply)
        if reply.idle_until < self._wakes_at or reply.until < self._wakes_at:
            self._wake_for(reply)

    def end(self, reply: TimedReply) -> None:
        """Stop the clock of a request."""
        if reply.still_since is None:
            self._waiting.discard(reply)
            reply.left = reply.until - trio.current_time()
        else:
            self._still.discard(reply)
            reply.left = reply.until - reply.still_since

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Pause all clocks while the host answers a request of the server."""
        now = trio.current_time()
        for reply in self._waiting:
            reply.still_since = now
        self._still |= self._waiting
        self._waiting.clear()
        self._questions += 1
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                self._go_on()

    def _go_on(self) -> None:
        now = trio.current_time()
        for reply in self._still:
            assert reply.still_since is not None
            stood = now - reply.still_since
            reply.idle_until, reply.until, reply.still_since = reply.idle_until + stood, reply.until + stood, None
            self._wake_for(reply)
        self._waiting |= self._still
        self._still.clear()

    def _wake_for(self, reply: TimedReply) -> None:
        if reply.due < self._wakes_at:
            self._wakes_at = self._sleep.deadline = reply.due

    def stop(self) -> None:
        """Stop `keep_time`: no request is pending."""
        self._stopped = True
        self._sleep.cancel()

    async def keep_time(self) -> None:
        """Fail the requests that are overdue, until stopped."""
        while not self._stopped:
            now = trio.current_time()
            for reply in [reply for reply in self._waiting if reply.due <= now]:
                self._waiting.discard(reply)
                reply.late()
            self._wakes_at = min((reply.due for reply in self._waiting), default=inf)
            with trio.CancelScope(deadline=self._wakes_at) as self._sleep:
                await trio.sleep_forever()


@frozen
class PausingAuth:
    """An `HttpAuth` that pauses the request timeouts of a client while the user signs in."""

    auth: HttpAuth
    timeouts: Timeouts
    limit: float
    """Seconds that a sign-in may take."""
    on_signed_in: Callable[[], None]
    """Called when there are new credentials, with which the server may list other items."""

    async def authorize(self, request: AuthRequest) -> Mapping[str, str]:
        return await self.auth.authorize(request)

    async def on_response(self, response: AuthResponse) -> bool:
        if not meaning_of(response.status).sign_in:
            return await self.auth.on_response(response)
        with self.timeouts.answering(), trio.move_on_after(self.limit):
            signed_in = await self.auth.on_response(response)
            if signed_in:
                self.on_signed_in()
            return signed_in
        raise RequestTimeout(f"the sign-in was not completed within {self.limit:g} s")
