"""A future: one task waits for it, the session's loop settles it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio
from msgspec import field

from mcptrio._struct import Entity

ProgressCallback = Callable[[Mapping[str, Any]], None]


class Reply(Entity):
    """The answer to something that was asked of the peer."""

    on_progress: ProgressCallback | None = None
    _event: trio.Event = field(default_factory=trio.Event)
    _result: Any = None
    _error: Exception | None = None

    @property
    def settled(self) -> bool:
        return self._event.is_set()

    def settle(self, result: Any = None, error: Exception | None = None) -> None:
        """Give the answer. The first one counts; a later one is ignored."""
        if not self._event.is_set():
            self._result, self._error = result, error
            self._event.set()

    async def wait_settled(self) -> None:
        """Wait until there is an answer, without taking it."""
        await self._event.wait()

    async def wait(self) -> Any:
        """The result, or the error raised."""
        await self._event.wait()
        if self._error is not None:
            raise self._error
        return self._result
