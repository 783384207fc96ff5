"""Broadcasts: a value for every worker of a cluster, this one included.

A broadcast says what holds now. Of several values of one topic in quick succession a worker may get the last one only:
the channel between workers keeps one message of each topic while a worker is not connected.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from msgspec import field

from mcptrio._actors.runtime import Runtime
from mcptrio._struct import Entity
from mcptrio.errors import DeclarationError

logger = logging.getLogger("mcptrio.server")

in_broadcast: Final[ContextVar[bool]] = ContextVar("in_broadcast", default=False)
"""Whether the running code belongs to an `on_broadcast` function, which runs in every worker."""
Receiver = Callable[[Any], Any]


def broadcast_topic(topic: str) -> str:
    return f"broadcast {topic}"


class Receiving(Entity):
    """One function, called with one value at a time: a value that was not taken yet is replaced by a later one."""

    runtime: Runtime
    topic: str
    function: Receiver
    _values: list[Any] = field(default_factory=list)
    """The value to be taken, if there is one."""
    _running: bool = False

    def put(self, _topic: str, value: Any) -> None:
        self._values[:] = [value]
        if not self._running:
            self._running = True
            self.runtime.supervisor.nursery.start_soon(self._run, name=f"broadcast {self.topic}")

    async def _run(self) -> None:
        in_broadcast.set(True)
        try:
            while self._values:
                try:
                    result = self.function(self._values.pop())
                    if inspect.isawaitable(result):
                        await result
                except Exception:  # a guard: this task is a child of the supervisor
                    logger.exception("the function for broadcasts of %r failed", self.topic)
        finally:
            self._running = False


class Broadcasts(Entity):
    """The functions that take broadcasts, by topic."""

    _functions: dict[str, list[Receiver]] = field(default_factory=dict)
    _attached: int = 0

    def add(self, topic: str, function: Receiver) -> None:
        """Declare a function.

        Raises:
            DeclarationError: serving has begun.
        """
        if self._attached:
            raise DeclarationError("on_broadcast() is a declaration: use it before serving begins")
        self._functions.setdefault(topic, []).append(function)

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        """Take broadcasts in a runtime until the returned function is called."""
        self._attached += 1
        handles = [
            runtime.bus.subscribe([broadcast_topic(topic)], Receiving(runtime, topic, function).put)
            for topic, functions in self._functions.items()
            for function in functions
        ]

        def detach() -> None:
            self._attached -= 1
            for handle in handles:
                handle.close()

        return detach
