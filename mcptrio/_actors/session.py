"""A session: one peer, one inbox, one task that changes state.

Theory of operation. Everybody posts messages to the inbox; the loop takes one after the other, steps the machine and
performs the effects. It never waits for a handler, a stream or a user, so a cancel, a ping or another call is never
delayed by any of them. Handlers run beside the loop in the session's nursery (`handling`) and report by posting
`Finished`; what they ask of the peer, and tell it, is posted too (`asking`).

A message that finds the loop at rest is taken at once, in the task that posts it: a step never waits, so nobody can
tell, and two turns of the scheduler are saved for each call. Whatever is posted during a step, or while others wait in
the inbox, queues up behind them. So there is still one message after the other, in the order they were posted.

There may be thousands of sessions that nobody uses just now. One that has nothing to do gives up its task, its nursery
and its inbox: it sleeps. Messages are taken by whoever posts them, as before, and it wakes when it needs a task of its
own: for a handler that no carrier runs, for something in the background, or to end.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.asking import Asking
from mcptrio._actors.call import Call, Limits
from mcptrio._actors.handling import Carrier, Service
from mcptrio._actors.link import Link
from mcptrio._actors.reply import Reply
from mcptrio._peer.effects import (
    AskInResult,
    Attach,
    Close,
    Effect,
    End,
    Gather,
    Ignored,
    Progressed,
    Send,
    Settle,
    Start,
    Stop,
)
from mcptrio._peer.machine import Peer
from mcptrio._peer.messages import Asked, Cause, HungUp, Message, Received
from mcptrio._wire.jsonrpc import Batch, Frame, Malformed, encode, encode_batch
from mcptrio.errors import LinkClosed

logger = logging.getLogger("mcptrio.session")

_DOZE: Final[Message] = HungUp(Cause.IDLE)
"""Not said to the machine: it lets the loop look whether there is anything to stay awake for."""


class Session(Asking, kw_only=True):
    """One peer, one inbox, one task that changes state.

    Lives as long as a pipe (stdio), a session id (stateful HTTP), or one POST and what it parks (stateless HTTP).
    Owns: the inbox, the machine, the nursery its handlers run in.   Lent: the link, the service.
    """

    transport: str = "memory"
    state: Any = None
    """What the user's session function yielded."""
    log_level: str | None = None
    began: float | None = None
    data: dict[str, Any] = field(default_factory=dict)
    """What features keep for this session (subscriptions ...)."""
    on_end: list[Callable[[], None]] = field(default_factory=list)
    asleep: bool = False
    """It has no task at present."""
    _resting: bool = False
    """No message is being taken, and none is on its way."""
    _stepping: bool = False
    _failure: Exception | None = None
    """What a step raised in a task other than the loop's, which raises it again."""
    # Made when they are needed: there may be thousands of idle sessions.
    _inbox: trio.MemorySendChannel[Message] | None = None
    _messages: trio.MemoryReceiveChannel[Message] | None = None
    _newcomers: list[Callable[[trio.Nursery], None]] | None = None
    """What starts as soon as there is a nursery."""
    _state_done: trio.Event | None = None
    _background_tasks: set[trio.CancelScope] | None = None
    _watchers: trio.lowlevel.ParkingLot | None = None

    def __post_init__(self) -> None:
        service = self.service
        self.peer = Peer(
            role=service.role,
            eras=service.eras,
            routes=service.router.methods,
            max_running=service.limits.running,
            offers_now=service.offers_now,
        )

    # -- for other tasks: these only post

    async def deliver(
        self,
        frame: Frame | Batch | Malformed,
        link: Link,
        context: contextvars.Context | None = None,
        carrier: Carrier | None = None,
    ) -> None:
        """Hand over what the peer sent; answers go to `link`. Waits only while the inbox is full.

        A caller whose context variables stay the same copies them once and gives them along. A `carrier` lends its task
        to the handler: when it was passed on, this task has become the handler's, and is done.

        Raises:
            LinkClosed: the session is over.
        """
        self.last_used = trio.current_time()
        if context is None:
            context = contextvars.copy_context()
        message = Received(frame, link, context)
        if carrier is None or not self._resting or self._stepping:
            await self._post(message)
            return
        self._lender = carrier
        self._take(message)
        self._lender = None
        if self._borrower is not None:
            await self._lend(carrier)

    def close_nowait(self, cause: Cause) -> None:
        """Ask the session to end."""
        if self.ended is None and not self.post_nowait(HungUp(cause)) and self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def _post(self, message: Message) -> None:
        if self._resting and not self._stepping:
            self._take(message)
            return
        inbox = self._open_inbox()
        try:
            inbox.send_nowait(message)  # no turn of the scheduler for each message of a burst
        except trio.WouldBlock:
            if self.service.telemetry:
                self.service.telemetry.emit(telemetry.LimitHit(name="inbox", session=self.id))
            with suppress(trio.BrokenResourceError):
                await inbox.send(message)
                return
        except trio.BrokenResourceError:
            pass
        else:
            return
        raise LinkClosed(self.ended.value if self.ended is not None else "the session is over")

    @trio.lowlevel.enable_ki_protection
    async def _say(self, message: Message) -> None:
        """Post something that must not get lost when the one who posts is cancelled."""
        if not self.post_nowait(message) and self.ended is None:
            with trio.move_on_after(1, shield=True), suppress(LinkClosed):
                await self._post(message)

    def post_nowait(self, message: Message) -> bool:
        if self._resting and not self._stepping:
            self._take(message)
            return True
        try:
            self._open_inbox().send_nowait(message)
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return True

    def post_soon(self, message: Message) -> None:
        """Post something that must arrive, without waiting for it."""
        if not self.post_nowait(message) and self.ended is None:
            self._spawn(self._say, message)

    def _take(self, message: Message) -> None:
        """Do the loop's work for it, see the module's docstring."""
        self._stepping = True
        try:
            self._perform(self.peer.step(message))
            going_on = self.ended is None
        except Exception as error:  # noqa: BLE001 - it is the session's fault and not the poster's: the loop raises it
            self._failure = error
            going_on = False
        finally:
            self._stepping = False
        if not going_on:
            # Wakes the loop, which has room: it was at rest.
            self._open_inbox().send_nowait(HungUp(self.ended or Cause.CRASH))
        elif self._watchers is not None:
            self._watchers.unpark_all()

    def _crash(self, error: Exception) -> None:
        if self.ended is None:
            self._failure = error
            self.close_nowait(Cause.CRASH)
        else:
            logger.error("session %s failed after its end", self.id[:8], exc_info=error)

    def _open_inbox(self) -> trio.MemorySendChannel[Message]:
        self._resting = False
        if self._inbox is None:
            self._inbox, self._messages = trio.open_memory_channel[Message](self.service.limits.inbox)
            if self.asleep:
                self._wake()
        return self._inbox

    # -- what others may look at

    @property
    def calls(self) -> int:
        return self.peer.calls

    @property
    def at_rest(self) -> bool:
        """A message would be taken at once."""
        return self._resting and not self._stepping

    @property
    def congested(self) -> bool:
        """So many requests wait that the transport should take no more of them."""
        return self.peer.waiting >= self.service.limits.waiting

    @property
    def backlog(self) -> int:
        """Messages that wait in the inbox."""
        return 0 if self._messages is None else self._messages.statistics().current_buffer_used

    def idle_since(self, now: float) -> float:
        """How long nobody has used the session; nothing while a call runs or a stream is open."""
        if self.peer.calls or getattr(self.link, "attached", False):
            self.last_used = now
        return now - self.last_used

    async def _watch(self) -> None:
        """Wait until something may have changed."""
        if self._watchers is None:
            self._watchers = trio.lowlevel.ParkingLot()
        await self._watchers.park()

    def _tell_watchers(self) -> None:
        if self._watchers is not None:
            self._watchers.unpark_all()

    def _left_late(self) -> None:
        self._tell_watchers()

    async def wait_for_room(self) -> None:
        """Wait until the session is not congested any more, or over."""
        while self.congested and self.ended is None:
            await self._watch()

    async def wait_until_quiet(self) -> None:
        """Wait until everything that was delivered is answered, or the session is over."""
        while not self._quiet and self.ended is None:
            await self._watch()

    @property
    def _quiet(self) -> bool:
        if self.peer.calls or self._messages is None:
            return not self.peer.calls
        inbox = self._messages.statistics()
        # A message that was handed over but not taken yet is in no buffer; then the loop is not waiting either.
        at_rest = inbox.tasks_waiting_receive or self._nursery is None
        return not inbox.current_buffer_used and bool(at_rest)

    async def wait_until_left(self) -> None:
        """Wait until no handler's code runs any more."""
        while self.left_behind:
            await self._watch()

    # -- the loop: the one place where state changes

    @trio.lowlevel.enable_ki_protection
    async def run(self, carrier: Callable[[], Awaitable[None]] | None = None) -> None:
        """Live, until the session ends or falls asleep.

        `carrier` brings what the peer sends, and runs among the handlers, so that it can run some of them.
        """
        self.open()
        self._open_inbox()
        self.asleep = False
        if carrier is not None:
            self._spawn(carrier)
        try:
            while not self.asleep:
                dozes = False
                async with trio.open_nursery() as nursery:
                    self._admit_newcomers(nursery)
                    try:
                        dozes = await self._take_messages()
                    finally:
                        if not dozes:
                            self._leave()
                    if dozes:
                        self._nursery = None
                    else:
                        nursery.cancel_scope.deadline = trio.current_time() + self.service.limits.end_grace
                if not dozes:
                    await self.wait_until_left()  # some of its handlers run in the tasks of carriers
                    break
                if not self.backlog and not self._newcomers:
                    self.sleep()
        finally:
            if not self.asleep:
                self._close()

    def open(self) -> None:
        """The session has begun."""
        if self.began is None:
            self.began = self.last_used = trio.current_time()
            if self.service.telemetry:
                opened = telemetry.SessionOpened(session=self.id, transport=self.transport)
                self.service.telemetry.emit(opened)

    def _close(self) -> None:
        for callback in self.on_end:
            callback()
        hub = self.service.telemetry
        if hub and self.ended is not None and self.began is not None:
            seconds = trio.current_time() - self.began
            hub.emit(telemetry.SessionClosed(session=self.id, cause=self.ended.value, seconds=seconds))

    async def _take_messages(self) -> bool:
        """Step the machine until the session ends, or (true) may fall asleep."""
        messages, nursery = self._messages, self._nursery
        assert messages is not None
        assert nursery is not None
        while True:
            # What came meanwhile is taken without another turn of the scheduler; the bound lets others have theirs.
            for _ in range(self.service.limits.inbox):
                try:
                    message = messages.receive_nowait()
                except trio.WouldBlock:
                    self._resting = True
                    break
                if self._failure is not None:
                    raise self._failure
                if message is not _DOZE and not self._step(message):
                    return False
            self._tell_watchers()
            message = await messages.receive()
            self._resting = False
            if self._failure is not None:
                raise self._failure
            if message is _DOZE:
                if not self.backlog and not nursery.child_tasks:
                    return True
            elif not self._step(message):
                return False

    # -- sleep

    def sleep(self) -> None:
        """Have no task until one is needed."""
        self.open()
        self.asleep = self._resting = True
        self._inbox = self._messages = None
        self._tell_watchers()

    def doze(self) -> None:
        """Fall asleep if there is nothing to do. Called by the supervisor every now and then."""
        nursery = self._nursery
        if nursery is not None and self._resting and not nursery.child_tasks and self._inbox is not None:
            with suppress(trio.WouldBlock):
                self._inbox.send_nowait(_DOZE)

    def end_asleep(self) -> None:
        """End without a task, because there is nobody left who could give it one."""
        self.asleep = False
        self._open_inbox()
        self._leave()
        self._close()

    def _wake(self) -> None:
        self.asleep = False
        self.runtime.supervisor.wake(self)

    def _spawn(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: object = None) -> None:
        """Run something in the session's nursery, now or as soon as it is awake."""
        if self._nursery is not None:
            self._nursery.start_soon(fn, *args, name=name)
            return
        if self._newcomers is None:
            self._newcomers = []
        context = contextvars.copy_context()
        self._newcomers.append(lambda nursery: context.run(nursery.start_soon, fn, *args, name=name))
        self._open_inbox()

    def _admit_newcomers(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        newcomers, self._newcomers = self._newcomers, None
        for start in newcomers or ():
            start(nursery)

    def _launch(self, call: Call) -> None:
        context = call.start.context
        if context is None:
            self._spawn(self._handle, call, name=call.start.method)
        else:
            context.run(self._spawn, self._handle, call, name=call.start.method)

    # -- the end

    def _leave(self) -> None:
        """No message is taken any more: whoever waits for one is told. Handlers may take longer to be gone."""
        self._resting = False
        if self.ended is None:
            self.ended = Cause.CRASH
        for effect in self.peer.step(HungUp(self.ended)):
            match effect:
                case Settle(reply, result, error):
                    reply.settle(result, error)
                case Stop(call, cause):
                    self._stop_call(call, cause)
        assert self._messages is not None
        with suppress(trio.WouldBlock):
            while True:
                match self._messages.receive_nowait():
                    case Asked(method=method, reply=reply):
                        reply.settle(error=LinkClosed(f"{method}: {self.ended.value}"))
        self._messages.close()
        self.link.end()
        for scope in self._background_tasks or ():
            scope.cancel()
        if self._state_done is not None:
            self._state_done.set()
        self._tell_watchers()

    # -- a step

    def _step(self, message: Message) -> bool:
        """Do what follows from a message; False when the session is over."""
        self._perform(self.peer.step(message))
        return self.ended is None

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._send(effect)  # type: ignore[arg-type]  # narrowed
            elif kind is Start:
                # An inline handler is done at once: what follows from that is performed in its place.
                if more := self._begin(effect):  # type: ignore[arg-type]  # narrowed
                    self._perform(more)
            elif kind is Settle:
                effect.reply.settle(effect.result, effect.error)  # type: ignore[union-attr]  # narrowed
            else:
                self._do(effect)

    def _send(self, effect: Send) -> None:
        frame = effect.frame
        data = encode_batch(frame) if type(frame) is tuple else encode(frame)  # type: ignore[arg-type]  # narrowed
        (effect.link or self.link).post(data, final=effect.final, status=effect.status)

    def _do(self, effect: Effect) -> None:
        match effect:
            case AskInResult(start, questions):
                self._perform(self._ask_in_result(start, questions) or [])
            case Gather(call, reply):
                self._spawn(self._gather, call, reply)
            case Attach(call, start):
                if call in self._running:
                    self._running[call].start = start
                else:
                    self.runtime.parking.answered(start)  # its result was waiting
            case Stop(call, cause):
                self._stop_call(call, cause)
            case Progressed(reply, params):
                self._tell_progress(reply, params)
            case End(link):
                link.end()
            case Ignored(what):
                if self.service.telemetry:
                    self.service.telemetry.emit(telemetry.Dropped(kind=what, session=self.id))
            case Close(cause):
                self.ended = cause

    def _tell_progress(self, reply: Reply, params: dict[str, Any]) -> None:
        try:
            reply.progressed(params)
        except Exception:
            logger.exception("a progress callback failed")

    # -- things that live as long as the session

    async def hold(self, manager: AbstractAsyncContextManager[Any]) -> Any:
        """Enter a context manager that is left, in the same task, when the session ends."""
        done = self._state_done = trio.Event()
        entered = Reply()
        self._spawn(self._hold, manager, done, entered)
        try:
            return await entered.wait()
        except BaseException:
            done.set()  # whoever asked for it is gone: it is left again as soon as it is entered
            raise

    @trio.lowlevel.enable_ki_protection
    async def _hold(self, manager: AbstractAsyncContextManager[Any], done: trio.Event, entered: Reply) -> None:
        try:
            async with manager as value:
                entered.settle(value)
                await done.wait()
        except Exception as error:
            if entered.settled:
                logger.exception("the session function failed when session %s ended", self.id[:8])
            entered.settle(error=error)

    def start_carrier(self, fn: Callable[[], Awaitable[None]]) -> None:
        """Run `fn` among the handlers: it takes the place of a carrier whose task was lent to one of them."""
        self._spawn(fn)

    def start_background(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `fn` beside the session's handlers; it is cancelled when the session ends and logged if it fails."""
        self._spawn(self._background, fn, args, name=fn)

    @trio.lowlevel.enable_ki_protection
    async def _background(self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        with trio.CancelScope() as scope:
            if self._background_tasks is None:
                self._background_tasks = set()
            self._background_tasks.add(scope)
            if self.ended is not None:  # before this task had its first turn
                scope.cancel()
            try:
                await fn(*args)
            except Exception:
                logger.exception("a background task of session %s failed", self.id[:8])
            finally:
                self._background_tasks.discard(scope)


__all__ = ["Limits", "Service", "Session"]
