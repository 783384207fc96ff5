"""The contract of a link, which carries the frames of a session."""

from __future__ import annotations

from typing import Protocol


class ReplyLink(Protocol):
    """The destination of a session's encoded frames; it never blocks.

    A session posts from its loop, so a stalled reader must not delay a cancel. A link that cannot get rid of its frames
    hangs up. It applies back-pressure only to callers of `room`.
    """

    @property
    def shared(self) -> bool:
        """Whether the link carries several requests (a pipe), or stands for one (an HTTP POST)."""
        ...

    @property
    def full(self) -> bool:
        """Whether `room` may wait."""
        ...

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        """Send a frame. `final` marks the response that the link was waiting for."""
        ...

    def end(self) -> None:
        """Mark the end of the session or call: nothing more will be posted."""
        ...

    async def room(self) -> None:
        """Wait until another notification may be posted without overfilling the link."""
        ...
