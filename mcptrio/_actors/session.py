"""A session: an inbox, the protocol machine, and the handlers that it runs.

Everything that happens to a session is a message in its inbox. The loop takes one message after the other, steps the
machine and performs the effects. It never waits for a handler, a stream or the user, so a cancel, a ping or another
call is never delayed by them. How the inbox avoids task switches, and how an idle session gives up its task, is hidden
in `inbox`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.asks import Asks
from mcptrio._actors.background import Background
from mcptrio._actors.handlers import Handlers
from mcptrio._actors.inbox import Inbox
from mcptrio._actors.perform import perform, settle_all
from mcptrio._actors.relay import EndedLink
from mcptrio._actors.service import Outgoing, Service, make_peer
from mcptrio._peer.link import ReplyLink, SessionLink
from mcptrio._peer.machine import Peer
from mcptrio._peer.messages import Cause, HungUp, Message, Received
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import AnyFrame
from mcptrio.errors import LocalProtocolError

if TYPE_CHECKING:
    from mcptrio._actors.lending import Loan
    from mcptrio._actors.runtime import Runtime
    from mcptrio.auth.server.principal import Principal

_MAX_WAITING: Final = 4 * 1024 * 1024
"""Bytes of large requests that may wait for their turn in one session."""


class Session(Entity, kw_only=True):
    """One MCP session with one peer. It lives as long as a pipe (stdio, WebSocket) or a session id (HTTP).

    Owns: the inbox, the machine, the nursery of its handlers.   Borrows: the link, the service, the runtime.
    """

    id: str
    service: Service
    link: SessionLink
    _runtime: Runtime | None = None
    transport: str = "memory"
    principal: Principal | None = None
    owner: str = ""
    """The owner of what it uses in shared tables: the key of its principal, else the address of its client."""
    state: Any = None
    """The value of the user's session function."""
    log_level: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    """Data of features for this session, for example its subscriptions."""
    on_end: list[Callable[[], None]] = field(default_factory=list)
    on_change: Callable[[Session], None] | None = None
    """Stores the record of a durable session."""
    epoch: int = 0
    """How often the session was claimed: the fencing token of what it writes."""
    ended: Cause | None = None
    reason: str | None = None
    """The handler's reason for ending the session."""
    began: float | None = None
    last_used: float = 0.0
    """When the peer last sent something."""

    # The parts, set in `__post_init__`.
    label: str = ""
    inbox: Inbox = None  # type: ignore[assignment]
    peer: Peer = None  # type: ignore[assignment]
    handlers: Handlers = None  # type: ignore[assignment]
    _background: Background | None = None
    nursery: trio.Nursery | None = None
    """None while the session sleeps."""
    _counted_memory: int = 0
    """Bytes of waiting requests, and of gathered results, that the runtime counts."""
    _waiting_tasks: list[Callable[[trio.Nursery], None]] | None = None
    """Tasks to start as soon as there is a nursery."""

    def __post_init__(self) -> None:
        self.label = f"session {self.id[:8]}"
        self.inbox = Inbox(
            self._step, self.service.limits.inbox, lambda: self.runtime.supervisor.wake(self), self._on_full
        )
        self.peer = make_peer(self.service)
        self.handlers = Handlers(self)

    @property
    def asks(self) -> Outgoing:
        """The sender of requests to the peer. It has no state, so it is not kept: idle sessions are small."""
        return Asks(self)

    @property
    def background(self) -> Background:
        if self._background is None:
            self._background = Background(self)
        return self._background

    # -- the loop

    @trio.lowlevel.enable_ki_protection
    async def run(self, reader: Callable[[], Awaitable[None]] | None = None) -> None:
        """Process messages, one at a time, until the session ends or falls asleep.

        `reader` delivers the frames of the peer. It runs among the handlers, because it may lend its task to them.
        """
        self.open()
        if reader is not None:
            self.spawn(reader, name=f"reader · {self.label}")
        try:
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                waiting, self._waiting_tasks = self._waiting_tasks, None
                while waiting:  # without a variable that would keep the last one, with its request
                    waiting.pop(0)(nursery)
                await self._process_messages(nursery)
        finally:
            if self.nursery is nursery:
                self._close()

    async def _process_messages(self, nursery: trio.Nursery) -> None:
        try:
            async for message in self.inbox:
                self._step(message)
        finally:
            if self.nursery is nursery:
                self._leave()
                nursery.cancel_scope.deadline = trio.current_time() + self.service.limits.end_grace

    def _step(self, message: Message) -> None:
        """Process one message. It never waits."""
        perform(self, self.peer.step(message))
        ledger = self.peer.ledger
        if ledger.waiting_memory + ledger.gathered_memory != self._counted_memory:
            self._count_memory()

    def _count_memory(self) -> None:
        """Let the requests that wait for their turn, and the results that wait for others, count as memory."""
        ledger = self.peer.ledger
        added = ledger.waiting_memory + ledger.gathered_memory - self._counted_memory
        self._counted_memory += added
        if self._runtime is None:
            return  # a client
        if added > 0:
            self.runtime.call_memory.take_anyway(self.owner, added)
        else:
            self.runtime.call_memory.give_back(self.owner, -added)

    # -- for other tasks

    async def deliver(
        self, frame: AnyFrame, link: ReplyLink, context: Context | None = None, loan: Loan | None = None
    ) -> None:
        """Post a frame of the peer; replies go to `link`. Blocks only while the inbox is full.

        `context` holds the context variables for the handler, by default a copy of the caller's. With a `loan` the
        caller offers to run the handler in its own task.

        Raises:
            ConnectionLost: the session is over.
        """
        if not self.deliver_nowait(frame, link, context, loan):
            await self.inbox.post(Received(frame, link, copy_context() if context is None else context))

    def deliver_nowait(
        self, frame: AnyFrame, link: ReplyLink, context: Context | None = None, loan: Loan | None = None
    ) -> bool:
        """Post a frame like `deliver`; return False if the inbox is full or the session is over."""
        self.last_used = trio.current_time()
        self.handlers.loan = loan
        delivered = self.inbox.post_nowait(Received(frame, link, copy_context() if context is None else context))
        self.handlers.loan = None
        return delivered

    def close_nowait(self, cause: Cause) -> None:
        """Ask the session to end."""
        if self.ended is None and not self.inbox.post_nowait(HungUp(cause)) and self.nursery is not None:
            self.nursery.cancel_scope.cancel()

    def changed(self) -> None:
        """Handle a change of what the record of a durable session holds."""
        if self.on_change is not None:
            self.on_change(self)

    def spawn(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: object = None) -> None:
        """Run `fn` in the session's nursery, at once or as soon as the session is awake."""
        if self.nursery is not None:
            self.nursery.start_soon(fn, *args, name=name)
            return
        if self._waiting_tasks is None:
            self._waiting_tasks = []
        context = copy_context()
        self._waiting_tasks.append(lambda nursery: context.run(nursery.start_soon, fn, *args, name=name))
        self.inbox.open()

    @property
    def runtime(self) -> Runtime:
        if self._runtime is None:
            raise LocalProtocolError("the session of a client has no runtime")
        return self._runtime

    @property
    def congested(self) -> bool:
        """Whether so many requests wait that the transport should accept no more of them."""
        ledger = self.peer.ledger
        return len(ledger.waiting) >= self.service.limits.waiting or ledger.waiting_memory >= _MAX_WAITING

    async def wait_for_room(self) -> None:
        """Wait until the session is no longer congested, or over."""
        while self.congested and self.ended is None:
            await self.inbox.wait_for_change()

    async def wait_until_quiet(self) -> None:
        """Wait until everything that was delivered is answered, or the session is over."""
        while (self.peer.calls or not self.inbox.idle) and self.ended is None:
            await self.inbox.wait_for_change()

    # -- beginning and end

    def open(self) -> None:
        """Note the beginning of the session."""
        if self.began is None:
            self.began = self.last_used = trio.current_time()
            if (hub := self.service.telemetry) and not self.epoch:
                hub.emit(telemetry.SessionOpened(session=self.id, transport=self.transport))

    def doze(self) -> None:
        """Give up the task and the nursery if there is nothing to do. Called by the supervisor at intervals."""
        if self.nursery is not None and not self.nursery.child_tasks and self.inbox.idle:
            self.nursery = None
            self.inbox.sleep()

    def _on_full(self) -> None:
        if hub := self.service.telemetry:
            hub.emit(telemetry.LimitHit(name="inbox", session=self.id))

    def close(self, cause: Cause) -> None:
        """Perform the effect `Close`."""
        self.ended = cause
        self.inbox.stop()

    def _leave(self) -> None:
        """Process no more messages and settle what waits for them. Handlers may take longer to end."""
        if self.ended is None:
            self.ended = Cause.CRASH
        settle_all(self, self.ended, self.inbox.close(self.ended.value))
        if self._counted_memory:
            self._count_memory()
        self.link.end()
        if self._background is not None:
            self._background.end()

    def end_asleep(self) -> None:
        """End a session that sleeps, when no task can be started any more."""
        self._leave()
        self._close()

    def _close(self) -> None:
        callbacks, self.on_end = self.on_end, []
        for callback in callbacks:
            callback()
        # Without reference cycles the session does not wait for the garbage collector.
        self.link = EndedLink(identity=self.link.identity, confirmed=self.link.confirmed)
        self._background = None
        if not self.handlers.left_behind:
            del self.handlers.session
        hub = self.service.telemetry
        if hub and self.ended is not None and self.ended is not Cause.PASSIVATED and self.began is not None:
            seconds = trio.current_time() - self.began
            cause, role = self.ended.name.lower(), self.service.role.value
            hub.emit(telemetry.SessionClosed(session=self.id, cause=cause, seconds=seconds, role=role))
