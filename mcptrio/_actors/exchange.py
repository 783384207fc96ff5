"""An exchange: a session-like object for one stateless request and its parked continuation.

It has no inbox channel and no task of its own, because nothing competes for it: the task that posts a message processes
it. The handler runs in a task of the supervisor's nursery, so that it can outlive the request that is answered with a
question.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.asks import Asks
from mcptrio._actors.background import Background
from mcptrio._actors.cancellation import is_cancelled
from mcptrio._actors.handlers import Handlers
from mcptrio._actors.perform import perform
from mcptrio._actors.service import Actor, Outgoing, Service, make_peer
from mcptrio._peer.link import ReplyLink
from mcptrio._peer.machine import Eras, Peer
from mcptrio._peer.messages import Cause, HungUp, LinkLost, Message, Received
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Frame
from mcptrio.errors import ConnectionLost

if TYPE_CHECKING:
    from mcptrio._actors.runtime import Runtime
    from mcptrio.auth.server.principal import Principal

logger = logging.getLogger("mcptrio.exchange")


class Exchange(Entity, kw_only=True):
    """One stateless request. While its handler waits for an answer of the user, it waits for the retry.

    Owns: the machine, the task of the handler.   Borrows: the supervisor's nursery, the link.
    """

    id: str
    service: Service
    link: ReplyLink
    runtime: Runtime
    transport: str = "http"
    principal: Principal | None = None
    owner: str = ""
    """The owner of what it uses in shared tables: the key of its principal, else the address of its client."""
    eras: Eras | None = None
    """The revisions that the request may use, if they are not those of the service."""
    origin: Actor | None = None
    """The session or exchange of the request that a task began as."""
    outgoing: Outgoing | None = None
    """Another way to ask the client than the protocol's own."""
    waits_for_client: Callable[[], bool] | None = None
    """Whether the handler waits for something that the client may never do, so that a drain need not wait for it."""
    state: Any = None
    log_level: str | None = None
    on_end: list[Callable[[], None]] = field(default_factory=list)
    ended: Cause | None = None
    reason: str | None = None
    label: str = "exchange"
    epoch = 0
    nursery: trio.Nursery | None = None
    """Always None: its tasks run in the supervisor's nursery, see `spawn`."""

    peer: Peer = None  # type: ignore[assignment]  # set in `__post_init__`
    # Parts refer to their exchange. They are created on demand and dropped at the end, so that a request leaves no
    # reference cycles for the garbage collector.
    _handlers: Handlers | None = None
    _asks: Asks | None = None
    _background: Background | None = None
    _data: dict[str, Any] | None = None
    _stepping: bool = False
    _queue: list[Message] | None = None
    """Messages that were posted during a step. They are processed right after it."""
    _watchers: trio.lowlevel.ParkingLot | None = None

    def __post_init__(self) -> None:
        self.peer = make_peer(self.service, self.eras)
        self.runtime.supervisor.exchanges.add(self)

    @property
    def inbox(self) -> Exchange:
        """Itself: posting a message processes it."""
        return self

    @property
    def handlers(self) -> Handlers:
        if self._handlers is None:
            self._handlers = Handlers(self, on_left=self._drop_parts)
        return self._handlers

    @property
    def asks(self) -> Outgoing:
        if self.outgoing is not None:
            return self.outgoing
        if self._asks is None:
            self._asks = Asks(self)
        return self._asks

    @property
    def background(self) -> Background:
        if self._background is None:
            self._background = Background(self)
        return self._background

    @property
    def data(self) -> dict[str, Any]:
        if self._data is None:
            self._data = {}
        return self._data

    # -- posting

    async def post(self, message: Message) -> None:
        """Process a message.

        Raises:
            ConnectionLost: the exchange is over.
        """
        if not self.post_nowait(message):
            raise ConnectionLost("the request is over" if self.ended is None else self.ended.value)

    def post_nowait(self, message: Message) -> bool:
        """Process a message; return False if the exchange is over."""
        if self.ended is not None:
            return False
        self._process(message)
        return True

    def post_soon(self, message: Message) -> None:
        self.post_nowait(message)

    def deliver_nowait(self, frame: Frame, context: contextvars.Context | None = None) -> None:
        """Process a frame of the client."""
        self.post_nowait(Received(frame, self.link, contextvars.copy_context() if context is None else context))

    def lose(self, link: ReplyLink) -> None:
        """Note that a connection is gone: cancel the handler that answers on this link."""
        self.post_nowait(LinkLost(link))

    def close_nowait(self, cause: Cause) -> None:
        """End the exchange."""
        self.post_nowait(HungUp(cause))

    def _process(self, message: Message) -> None:
        if self._stepping:
            if self._queue is None:
                self._queue = []
            self._queue.append(message)
            return
        self._stepping = True
        try:
            perform(self, self.peer.step(message))
            while self._queue:
                perform(self, self.peer.step(self._queue.pop(0)))
        except Exception as error:  # noqa: BLE001 - the session guard: it must not reach the sender
            self._report(error)
            self.ended = Cause.CRASH
        finally:
            self._stepping, self._queue = False, None
        self._changed()
        if self.ended is not None or not self.peer.ledger.calls:
            self._leave()

    def changed(self) -> None:
        """Do nothing: a stateless request has no record."""

    # -- the handler's task

    def spawn(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: object = None) -> None:
        """Run `fn` in the supervisor's nursery of stateless calls."""
        self.runtime.supervisor.calls.start_soon(self._run, fn, args, name=name)

    @trio.lowlevel.enable_ki_protection
    async def _run(self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        try:
            await fn(*args)
        except (Exception, trio.Cancelled, BaseExceptionGroup) as error:
            # The session guard: this task is a child of the supervisor.
            if not isinstance(error, Exception) and is_cancelled():
                self.close_nowait(Cause.CRASH)  # by a handler, perhaps: then the client is still there
                raise
            self._report(error)
            self.close_nowait(Cause.CRASH)

    def _report(self, error: BaseException) -> None:
        logger.error("an exchange failed", exc_info=error)
        if hub := self.service.telemetry:
            hub.emit(telemetry.GuardCaught(layer="session", error=error, session=self.id))

    # -- the end

    def close(self, cause: Cause) -> None:
        """Perform the effect `Close`."""
        self.ended = cause

    def _leave(self) -> None:
        if self.ended is None:
            self.ended = Cause.SESSION_END
        self.peer.eras = self.service.eras  # those of the request may hold its body
        self.handlers.stop_all(self.ended)
        self.link.end()
        if self._background is not None:
            self._background.end()
        if not self.handlers.left_behind:  # the supervisor looks for zombies among the others
            self._drop_parts()
        self._changed()
        callbacks, self.on_end = self.on_end, []
        for callback in callbacks:
            callback()

    def _drop_parts(self) -> None:
        self.runtime.supervisor.exchanges.discard(self)
        self._handlers = self._asks = self._background = self.outgoing = self.waits_for_client = None

    # -- observing

    async def wait_until_quiet(self) -> None:
        """Wait until the request is answered, or cannot be answered without the client."""
        while self.peer.calls and self.ended is None and not (self.waits_for_client and self.waits_for_client()):
            if self._watchers is None:
                self._watchers = trio.lowlevel.ParkingLot()
            await self._watchers.park()

    def _changed(self) -> None:
        if self._watchers is not None:
            self._watchers.unpark_all()
