"""Links of requests that are not answered where they arrived: by another session (`Relay`), or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from mcptrio._peer.link import ReplyLink, RequestHead
from mcptrio._peer.messages import Cause, Failed, Finished, HandedOver, LinkLost, Message
from mcptrio._struct import Entity
from mcptrio.errors import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcptrio._actors.service import Actor


class Relay(Entity):
    """The link of a request that another session answers, because the call it belongs to was parked there.

    It forwards frames. The asker's session keeps the request in its ledger, so it can be cancelled there.

    Borrows: the link, both sessions.
    """

    link: ReplyLink
    asker: Actor
    """The session that received the request."""
    call: int
    """The number of the request there."""
    holder: Actor
    """The session that answers it."""
    open: bool = True
    queued = 0.0

    @property
    def per_request(self) -> bool:
        return self.link.per_request

    @property
    def full(self) -> bool:
        return self.link.full

    @property
    def head(self) -> RequestHead | None:
        return self.link.head

    # -- the holder's side

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        self.link.post(data, final=final, status=status)
        if final:
            self._close(HandedOver(self.call))

    def end(self) -> None:
        self._close(HandedOver(self.call))

    async def room(self) -> None:
        await self.link.room()

    def close_connection(self) -> None:
        self.link.close_connection()

    def abandon(self, cause: Cause) -> None:
        """Fail the request, because the call was stopped where it lives."""
        self._close(Finished(self.call, Failed(INTERNAL_ERROR, cause.value)))

    def _close(self, message: Message) -> None:
        if self.open:
            self.open = False
            self.asker.handlers.take_back(self.call)
            self.asker.inbox.post_soon(message)

    # -- the asker's side

    def cancel(self) -> None:
        """Cancel the call: its client no longer waits."""
        if self.open:
            self.open = False
            self.holder.inbox.post_soon(LinkLost(self))


class SilentLink(Entity):
    """The link of a request whose response nothing waits for."""

    head: RequestHead | None = None
    """The HTTP request that it belongs to, if there is one."""
    per_request = True
    full = False
    queued = 0.0

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        pass

    def end(self) -> None:
        pass

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()

    def close_connection(self) -> None:
        pass


class EndedLink(SilentLink, kw_only=True):
    """The link of a session that is over: nothing is sent any more. It keeps what the record of the session needs."""

    identity: str
    confirmed: bool
    per_request = False
    resting = True

    def hide(self) -> None:
        pass
