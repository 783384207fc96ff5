"""What an ASGI app has yet to receive."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from hypercorn.typing import ASGIReceiveEvent

_GONE: Final[ASGIReceiveEvent] = {"type": "http.disconnect"}
_SOCKET_GONE: Final[ASGIReceiveEvent] = {"type": "websocket.disconnect", "code": 1006}


class Inbox:
    """Bounded; the disconnect never waits, and is told to whoever asks again.

    With a full queue Hypercorn would wait, inside the app's own last send(), for the app to receive the disconnect.
    """

    def __init__(self, size: int, before_body: Callable[[], Awaitable[None]] | None) -> None:
        self._size = size
        self._events: deque[ASGIReceiveEvent] = deque()
        self._farewell: ASGIReceiveEvent | None = None
        self._before_body = before_body
        self._whole: bytes | None = None
        self._changed: trio.lowlevel.ParkingLot | None = None

    # -- Hypercorn's side

    async def put(self, event: ASGIReceiveEvent) -> None:
        if event["type"] in ("http.disconnect", "websocket.disconnect"):
            self._farewell = event
            self._tell()
            return
        while len(self._events) >= self._size and self._farewell is None:
            await self._wait()
        if self._farewell is None:  # or the response is over: nobody will read the rest of the body
            self._events.append(event)
            self._tell()

    def hang_up(self, *, websocket: bool) -> None:
        """Nothing more will come, whether the app was told so or not."""
        if self._farewell is None:
            self._farewell = _SOCKET_GONE if websocket else _GONE
            self._tell()

    def put_whole(self, body: bytes) -> None:
        """The whole body of a request, before anything else, and before the app runs."""
        self._whole = body
        self._events.append({"type": "http.request", "body": body, "more_body": False})

    # -- the app's

    def take_whole(self, at_most: int) -> bytes | None:
        """The whole body, if it came at once, is not longer, and nobody has received anything yet."""
        body, self._whole = self._whole, None
        if body is None or len(body) > at_most:
            return None
        self._events.popleft()
        return body

    async def receive(self) -> ASGIReceiveEvent:
        if self._before_body is not None:
            before, self._before_body = self._before_body, None
            await before()
        self._whole = None
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
