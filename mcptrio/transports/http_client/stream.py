"""One stream of server-sent events, over all the connections that it takes to read it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

import httpx2
import trio
from attrs import define, field

from mcptrio._wire.jsonrpc import Error
from mcptrio._wire.sse import FED_AT_ONCE, SseReader
from mcptrio.errors import ConnectionLost, MCPTrioError
from mcptrio.transports.http_client.http import feed
from mcptrio.transports.retry import Retries

# RFC 9110 section 5.5: a field value has no control characters, and no spaces around it
_HEADER_VALUE: Final = re.compile(r"[^\x00-\x20\x7f](?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?")
_LEAST_RETRY: Final = 0.1
_MOST_RETRY: Final = 60.0


@define(eq=False, repr=False)
class EventStream:
    """The position in a stream, and how often reading it failed in a row."""

    max_event: int
    retries: Retries
    opened: trio.Event = field(factory=trio.Event)
    """Set when the server has answered, or could not be reached."""
    nameless: Error | None = None
    """The first error without an id that was received: the answer, if no other one comes."""
    _reader: SseReader = field(init=False)
    _cursor: str = ""
    _good: bool = False
    """Whether the last connection was answered, and lasted or delivered something."""

    def __attrs_post_init__(self) -> None:
        self._reader = SseReader(self.max_event)

    @property
    def cursor(self) -> str | None:
        """The value of `Last-Event-ID` to continue with; None if there is none, or none that a header can hold."""
        value = self._reader.last_event_id or self._cursor
        return value if _HEADER_VALUE.fullmatch(value) else None

    def connecting(self) -> None:
        """Prepare for another connection."""
        self._cursor = self._reader.last_event_id or self._cursor
        retry, self._reader = self._reader.retry, SseReader(self.max_event)
        self._reader.retry = retry
        self._good = False

    async def read(self, response: httpx2.Response, on_message: Callable[[bytes], Awaitable[bool]]) -> bool:
        """Read one connection until `on_message` returns True for a message (True), or the connection ends (False).

        Raises:
            ConnectionLost: the connection broke.
            RemoteProtocolError: this is no event stream, or an event is larger than `max_event`.
        """
        began, delivered = trio.current_time(), False

        async def take(chunk: bytes) -> bool:
            nonlocal delivered
            delivered = True
            for at in range(0, len(chunk), FED_AT_ONCE):
                for event in self._reader.feed(chunk[at : at + FED_AT_ONCE]):
                    if event.event == "message" and event.data:
                        self.retries.reset()
                        if await on_message(event.data):
                            return True
                await trio.lowlevel.checkpoint()
            return False

        try:
            if await feed(response, take):
                return True
            self._reader.eof()
            return False
        finally:
            seconds = trio.current_time() - began
            self._good = self.retries.answered(seconds, delivered=delivered)

    def ended(self, error: MCPTrioError | None = None) -> None:
        """Count the end of a connection. The end of a good one is no failure, unless it broke.

        Raises:
            MCPTrioError: `error`, or another one if there is none; the attempts are used up.
        """
        if error is not None or not self._good:
            self.retries.failed(error or ConnectionLost("the server ended the stream at once"))

    async def pause(self, error: MCPTrioError | None = None) -> None:
        """Wait before the next connection, for as long as the server asked with `retry` or `Retry-After`."""
        retry = self._reader.retry
        asked = None if retry is None else min(max(retry / 1000, _LEAST_RETRY), _MOST_RETRY)
        await self.retries.pause(error, asked=asked)
