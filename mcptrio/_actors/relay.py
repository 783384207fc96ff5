"""A relay: the link of a request that another session answers, because the call it belongs to was parked there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcptrio._actors.link import Link
from mcptrio._peer.messages import Cause, Failed, Finished, HandedOver, LinkLost, Message
from mcptrio._struct import Entity
from mcptrio.errors import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcptrio._actors.session import Session


class Relay(Entity):
    """Passes frames on. The session that the request came to keeps it on its books, so that it can still be cancelled
    there, until it is answered. Lent: everything.
    """

    link: Link
    asker: Session
    """Where the request came to."""
    call: int
    """Its number there."""
    holder: Session
    """Where it is answered."""
    open: bool = True

    @property
    def shared(self) -> bool:
        return self.link.shared

    @property
    def head(self) -> Any:
        return getattr(self.link, "head", None)

    # -- the holder's side

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        self.link.post(data, final=final, status=status)
        if final:
            self._close(HandedOver(self.call))

    def end(self) -> None:
        self._close(HandedOver(self.call))

    async def room(self) -> None:
        await self.link.room()

    def abandon(self, cause: Cause) -> None:
        """The call was stopped where it lives; whoever repeated the request has to be told."""
        self._close(Finished(self.call, Failed(INTERNAL_ERROR, cause.value)))

    def _close(self, message: Message) -> None:
        if self.open:
            self.open = False
            self.asker.take_back(self.call)
            self.asker.post_soon(message)

    # -- the asker's side

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        if self.open:
            self.open = False
            self.holder.post_soon(LinkLost(self))
