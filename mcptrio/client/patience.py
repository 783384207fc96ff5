"""How long requests may wait for the server. The time in which the host answers the server does not count.

At the stateful dates a server asks while it works on a request, and nothing says on which one: so everything that was
asked before a question came stands still until the question is answered. What is asked meanwhile has its usual time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

import trio
from attrs import define, field


@define(eq=False, repr=False)
class Patience:
    """The deadlines of a client's requests. Lent: their scopes, while they wait."""

    _waiting: set[trio.CancelScope] = field(factory=set)
    _left: dict[trio.CancelScope, float] = field(factory=dict)
    """What stands still, and the seconds that it still has."""
    _questions: int = 0

    def begin(self, scope: trio.CancelScope) -> None:
        """From now on the deadline of this scope can be made to stand still."""
        self._waiting.add(scope)

    def end(self, scope: trio.CancelScope) -> float:
        """It waits no more. Gives the seconds that it had left."""
        left = self._left.pop(scope, None)
        if left is not None:
            return left
        self._waiting.discard(scope)
        return scope.deadline - trio.current_time()

    def renew(self, scope: trio.CancelScope, seconds: float) -> None:
        """There was a sign of life: it has so many seconds from now, or from when its clock runs again."""
        if scope in self._left:
            self._left[scope] = seconds
        else:
            scope.deadline = trio.current_time() + seconds

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While the host answers a question of the server's, all clocks stand still."""
        now = trio.current_time()
        for scope in self._waiting:
            self._left[scope] = scope.deadline - now
            scope.deadline = inf
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
        for scope, left in self._left.items():
            scope.deadline = now + left
        self._waiting.update(self._left)
        self._left.clear()
