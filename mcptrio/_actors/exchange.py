"""An exchange: the session of one request that needs none, and of what it parks.

It has no inbox and no task of its own, since nothing competes for it: a message is taken in the task that posts it,
which is safe because a step never waits, and one that is posted during a step is taken right after it. The handler has
a task of the supervisor's, or that of its carrier for good, so that it can stay behind when the request is answered
with a question.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from mcptrio import telemetry
from mcptrio._actors.call import Call
from mcptrio._actors.link import Link
from mcptrio._actors.session import Session
from mcptrio._peer.messages import Cause, HungUp, LinkLost, Message
from mcptrio.errors import LinkClosed

logger = logging.getLogger("mcptrio.exchange")


class Exchange(Session, kw_only=True):
    """Lives for one POST, or, while its handler waits for an answer, until the request is repeated.

    Owns: the machine, the handler's task.   Lent: the supervisor's nursery, the link.
    """

    _more: list[Message] | None = None
    """Posted during a step, and taken after it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._resting = True  # there is no loop that could be at work
        supervisor = self.runtime.supervisor
        self._nursery = supervisor.nursery
        supervisor.exchanges.add(self)

    # -- posting is taking

    async def _post(self, message: Message) -> None:
        if self.ended is not None:
            raise LinkClosed(self.ended.value)
        self._take(message)

    def post_nowait(self, message: Message) -> bool:
        if self.ended is not None:
            return False
        self._take(message)
        return True

    def close_nowait(self, cause: Cause) -> None:
        self.post_nowait(HungUp(cause))

    def lose(self, link: Link) -> None:
        """The connection is gone: whoever answers on this link has nobody to answer to."""
        self.post_nowait(LinkLost(link))

    def _take(self, message: Message) -> None:
        if self._stepping:
            if self._more is None:
                self._more = []
            self._more.append(message)
            return
        self._stepping = True
        try:
            self._step(message)
            while self._more:
                self._step(self._more.pop(0))
        except Exception as error:  # noqa: BLE001 - the session guard: it must not reach whoever posted
            self._tell_crash(error)
            self.ended = Cause.CRASH
        finally:
            self._stepping, self._more = False, None
        if self._watchers is not None:
            self._tell_watchers()
        if self.ended is not None or self.peer.is_done:
            self._over()

    def _over(self) -> None:
        if self.ended is None:
            self.ended = Cause.SESSION_END
        self.peer.eras = self.service.eras  # what is particular to the request may hold its body, and others hold this
        if self._running:
            for call in list(self._running.values()):
                if call.stopped is None and not call.scope.cancel_called:
                    self._stop(call, self.ended)
        self.link.end()
        for scope in self._background_tasks or ():
            scope.cancel()
        self._left_late()
        for callback in self.on_end:
            callback()

    def _left_late(self) -> None:
        if not self._running and not self._zombies:  # the supervisor looks after handlers that will not stop
            self.runtime.supervisor.exchanges.discard(self)
        if self._watchers is not None:
            self._tell_watchers()

    @trio.lowlevel.enable_ki_protection
    async def _handle(self, call: Call) -> None:
        try:
            await super()._handle(call)
        except Exception as error:  # noqa: BLE001 - the session guard: this task is the supervisor's child
            self._crash(error)

    def _crash(self, error: Exception) -> None:
        self._tell_crash(error)
        self.close_nowait(Cause.CRASH)

    def _tell_crash(self, error: Exception) -> None:
        logger.error("an exchange failed", exc_info=error)
        if self.service.telemetry:
            self.service.telemetry.emit(telemetry.GuardCaught(layer="session", error=error, session=self.id))

    def idle_since(self, now: float) -> float:
        return 0.0  # it ends with its request; what it parks has a time limit of its own

    async def wait_until_quiet(self) -> None:
        while self.peer.calls and self.ended is None:
            await self._watch()

    async def run(self, carrier: Callable[[], Awaitable[None]] | None = None) -> None:
        """There is nothing to run: see the module's docstring."""
        await trio.lowlevel.checkpoint()
