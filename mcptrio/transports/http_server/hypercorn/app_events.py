"""The events that an ASGI application has not received yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from hypercorn.typing import ASGIReceiveEvent

_GONE: Final[ASGIReceiveEvent] = {"type": "http.disconnect"}
_SOCKET_GONE: Final[ASGIReceiveEvent] = {"type": "websocket.disconnect", "code": 1006}


class AppEvents:
    """A bounded queue of events for one application; the disconnect never blocks, and every later call returns it.

    With a full queue Hypercorn would block, inside the app's own last send(), until the app receives the disconnect.
    """

    def __init__(self, size: int, before_body: Callable[[], Awaitable[None]] | None) -> None:
        self._size = size
        self._events: deque[ASGIReceiveEvent] = deque()
        self._farewell: ASGIReceiveEvent | None = None
        self._before_body = before_body
        self._changed: trio.lowlevel.ParkingLot | None = None

    # -- Hypercorn's side

    async def put(self, event: ASGIReceiveEvent) -> None:
        if event["type"] in ("http.disconnect", "websocket.disconnect"):
            self._farewell = event
            self._tell()
            return
        while len(self._events) >= self._size and self._farewell is None:
            await self._wait()
        if self._farewell is None:  # otherwise the response is over, and the rest of the body is not read
            self._events.append(event)
            self._tell()

    def hang_up(self, *, websocket: bool) -> None:
        """Report a disconnect to the application, unless it was reported already."""
        if self._farewell is None:
            self._farewell = _SOCKET_GONE if websocket else _GONE
            self._tell()

    # -- the app's

    async def receive(self) -> ASGIReceiveEvent:
        if self._before_body is not None:
            before, self._before_body = self._before_body, None
            await before()
        while not self._events:
            if self._farewell is not None:
                await trio.lowlevel.checkpoint()
                return self._farewell
            await self._wait()
        event = self._events.popleft()
        if self._changed is not None:
            self._tell()
        return event

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = trio.lowlevel.ParkingLot()
        await self._changed.park()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.unpark_all()
