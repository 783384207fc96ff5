"""How long requests may wait for the server. The time in which the host answers the server does not count.

At the stateful dates a server asks while it works on a request, and nothing says on which one: so everything that was
asked before a question came stands still until the question is answered. What is asked meanwhile has its usual time.

Nearly every request is answered long before its time is over, so none has a deadline of its own at Trio's: one task
sleeps until the first of them could be late, and looks which of them still wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Any

import trio
from attrs import define, field

from mcptrio._actors.reply import Reply
from mcptrio.errors import RequestTimeout


class Wait(Reply, kw_only=True):
    """A request that waits for the server, and the time that it has for that."""

    method: str
    idle: float = inf
    """Seconds without a sign of life after which it is late."""
    total: float = inf
    """Seconds after which it is late in any case, as the caller said it."""
    left: float = inf
    """How many of these are left; counted down when it does not wait any more."""
    on_late: Callable[[], None] | None = None
    """Ends something else than the wait for the reply."""
    idle_until: float = inf
    until: float = inf
    still_since: float | None = None
    """Since when its clock stands still."""

    @property
    def due(self) -> float:
        return self.idle_until if self.idle_until < self.until else self.until

    def progressed(self, params: Mapping[str, Any]) -> None:
        now = trio.current_time() if self.still_since is None else self.still_since
        self.idle_until = now + self.idle
        if self.on_progress is not None:
            self.on_progress(params)

    def late(self) -> None:
        if self.on_late is not None:
            self.on_late()
        else:
            self.settle(error=self.timeout())

    def timeout(self) -> RequestTimeout:
        seconds = self.idle if self.idle_until <= self.until else self.total
        return RequestTimeout(f"{self.method} was not answered within {seconds:g} s")


@define(eq=False, repr=False)
class Patience:
    """The clocks of a client's requests.   Lent: their waits, while they last."""

    _waiting: set[Wait] = field(factory=set)
    _still: set[Wait] = field(factory=set)
    _questions: int = 0
    _wakes_at: float = inf
    _stopped: bool = False
    _sleep: trio.CancelScope = field(factory=trio.CancelScope)

    def begin(self, wait: Wait) -> None:
        """Its clock runs from now on."""
        now = trio.current_time()
        wait.idle_until, wait.until = now + wait.idle, now + wait.left
        self._waiting.add(wait)
        if wait.idle_until < self._wakes_at or wait.until < self._wakes_at:
            self._wake_for(wait)

    def end(self, wait: Wait) -> None:
        """It waits no more."""
        if wait.still_since is None:
            self._waiting.discard(wait)
            wait.left = wait.until - trio.current_time()
        else:
            self._still.discard(wait)
            wait.left = wait.until - wait.still_since

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While the host answers a question of the server's, all clocks stand still."""
        now = trio.current_time()
        for wait in self._waiting:
            wait.still_since = now
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
        for wait in self._still:
            assert wait.still_since is not None
            stood = now - wait.still_since
            wait.idle_until, wait.until, wait.still_since = wait.idle_until + stood, wait.until + stood, None
            self._wake_for(wait)
        self._waiting |= self._still
        self._still.clear()

    def _wake_for(self, wait: Wait) -> None:
        if wait.due < self._wakes_at:
            self._wakes_at = self._sleep.deadline = wait.due

    def stop(self) -> None:
        """Keep no time any more: nothing waits."""
        self._stopped = True
        self._sleep.cancel()

    async def keep_time(self) -> None:
        """Tell those who are late, until it is stopped."""
        while not self._stopped:
            now = trio.current_time()
            for wait in [wait for wait in self._waiting if wait.due <= now]:
                self._waiting.discard(wait)
                wait.late()
            self._wakes_at = min((wait.due for wait in self._waiting), default=inf)
            with trio.CancelScope(deadline=self._wakes_at) as self._sleep:
                await trio.sleep_forever()
