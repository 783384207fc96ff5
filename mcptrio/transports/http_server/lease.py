"""What stays open longer than the token that opened it: streams and sockets end with it, calls do not.

A client that listens comes back with a new token, and resumes where its revision has cursors. A call that was allowed
when it began is finished.
"""

from __future__ import annotations

import math
import time

import trio
from attrs import define

from .message import Events, Head, Plain, Stream


@define(eq=False, repr=False)
class Leased:
    """Events up to a moment of Trio's clock."""

    events: Events
    until: float

    @property
    def over(self) -> bool:
        return self.events.over

    async def next(self) -> bytes | None:
        with trio.move_on_at(self.until):
            return await self.events.next()
        return None

    def detach(self, cause: str) -> None:
        self.events.detach(cause)


def time_left(head: Head) -> float:
    """For how many more seconds the sender is known to be who it is."""
    expires = getattr(head.principal, "expires", None)
    return math.inf if expires is None else max(0.0, expires - time.time())


def leased(head: Head, reply: Plain | Stream) -> Plain | Stream:
    """The same reply; a stream ends when the sender's token does."""
    left = time_left(head)
    if type(reply) is not Stream or left == math.inf:
        return reply
    return Stream(reply.status, reply.headers, Leased(reply.events, trio.current_time() + left))
