"""Tasks that live as long as their session, and the user's session function."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import trio

from mcptrio._actors.cancellation import is_cancelled
from mcptrio._actors.future import Reply
from mcptrio._actors.router import pass_on_interrupt
from mcptrio._struct import Entity

if TYPE_CHECKING:
    from mcptrio._actors.call import Call
    from mcptrio._actors.service import Actor

logger = logging.getLogger("mcptrio.session")


class Background(Entity):
    """The background tasks of one session or exchange. They run in its nursery and are cancelled when it ends."""

    session: Actor
    _scopes: set[trio.CancelScope] | None = None
    _state_done: trio.Event | None = None

    @property
    def holds(self) -> bool:
        """Whether the session function has been entered and not been left."""
        return self._state_done is not None and not self._state_done.is_set()

    def start(self, fn: Callable[..., Awaitable[Any]], *args: Any, call: Call | None = None) -> None:
        """Run `fn` until the session, or the call, ends; a failure is logged."""
        self.session.spawn(self._run, fn, args, call, name=fn)

    @trio.lowlevel.enable_ki_protection
    async def _run(self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...], call: Call | None) -> None:
        with trio.CancelScope() as scope:
            if self._scopes is None:
                self._scopes = set()
            self._scopes.add(scope)
            if call is not None:
                if call.background is None:
                    call.background = set()
                call.background.add(scope)
            if self.session.ended is not None or (call is not None and call.over):  # before this task's first turn
                scope.cancel()
            try:
                await fn(*args)
            except (Exception, trio.Cancelled, BaseExceptionGroup) as error:
                if not isinstance(error, Exception) and is_cancelled():
                    raise
                pass_on_interrupt(error)
                logger.exception("a background task of session %s failed", self.session.id[:8])
            finally:
                self._scopes.discard(scope)
                if call is not None and call.background is not None:
                    call.background.discard(scope)

    async def hold(self, manager: AbstractAsyncContextManager[Any]) -> Any:
        """Enter a context manager that is left, by the same task, when the session ends; return its value."""
        done = self._state_done = trio.Event()
        entered = Reply()
        self.session.spawn(self._hold, manager, done, entered, name=f"session function · {self.session.label}")
        try:
            return await entered.wait()
        except BaseException:
            done.set()  # the caller is gone: leave it as soon as it is entered
            raise

    @trio.lowlevel.enable_ki_protection
    async def _hold(self, manager: AbstractAsyncContextManager[Any], done: trio.Event, entered: Reply) -> None:
        try:
            async with manager as value:
                entered.settle(value)
                await done.wait()
        except Exception as error:
            if entered.settled:
                logger.exception("the session function failed when session %s ended", self.session.id[:8])
            entered.settle(error=error)
        except (trio.Cancelled, BaseExceptionGroup) as error:
            if is_cancelled():
                raise
            pass_on_interrupt(error)
            logger.exception("the session function of session %s failed", self.session.id[:8])
            entered.settle(error=RuntimeError(f"the session function raised {type(error).__name__}"))

    def end(self) -> None:
        """Cancel the background tasks and leave the session function."""
        for scope in self._scopes or ():
            scope.cancel()
        if self._state_done is not None:
            self._state_done.set()
