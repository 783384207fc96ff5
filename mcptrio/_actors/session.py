"""A session: one peer, one inbox, one task that changes state.

Theory of operation. Everybody posts messages to the inbox; the loop takes one after the other, steps the machine and
performs the effects. It never waits for a handler, a stream or a user, so a cancel, a ping or another call is never
delayed by any of them. Handlers run beside the loop in the session's nursery and report by posting `Finished`.

A message that finds the loop at rest is taken at once, in the task that posts it: a step never waits, so nobody can
tell, and two turns of the scheduler are saved for each call. Whatever is posted during a step, or while others wait in
the inbox, queues up behind them. So there is still one message after the other, in the order they were posted.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Awaitable, Callable, Container
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, Protocol

import msgspec
import trio
from attrs import define, field

from mcptrio import telemetry
from mcptrio._actors.call import Call, Limits
from mcptrio._actors.eager import run_eagerly
from mcptrio._actors.journal import MISSING, Check, Journal
from mcptrio._actors.link import Link
from mcptrio._actors.parking import REFUSED
from mcptrio._actors.relay import Relay
from mcptrio._actors.reply import ProgressCallback, Reply
from mcptrio._actors.router import Router, failure
from mcptrio._peer.effects import (
    AskInResult,
    Attach,
    Close,
    Effect,
    End,
    Gather,
    Ignored,
    Progressed,
    Retire,
    Send,
    Settle,
    Start,
    Stop,
)
from mcptrio._peer.era import Era, Role
from mcptrio._peer.machine import Eras, Peer
from mcptrio._peer.messages import (
    Answered,
    Asked,
    Cause,
    Expired,
    Failed,
    Finished,
    Gathered,
    GaveUp,
    HandedOver,
    HungUp,
    Message,
    Notified,
    Outcome,
    Received,
    Resumed,
)
from mcptrio._wire.jsonrpc import Batch, ErrorResponse, Frame, Malformed, Response, encode, encode_batch, encode_value
from mcptrio._wire.request_state import digest
from mcptrio.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LinkClosed,
    LocalProtocolError,
    McpError,
    Overloaded,
    RequestTimeout,
)

logger = logging.getLogger("mcptrio.session")

_TELL_AT_ONCE = 32  # notifications before others have their turn

_OUTCOMES = {
    Cause.CLIENT_CANCEL: "cancelled",
    Cause.DISCONNECT: "disconnected",
    Cause.TIMEOUT: "timeout",
    Cause.DRAIN: "shutdown",
}


class Service(Protocol):
    """What a session is a session of: a server, or a client."""

    @property
    def role(self) -> Role: ...
    @property
    def eras(self) -> Eras: ...
    @property
    def router(self) -> Router: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def telemetry(self) -> telemetry.Hub: ...

    def make_context(self, session: Session, call: Call) -> Any: ...

    def finish(self, result: dict[str, Any], era: Era) -> dict[str, Any]:
        """What every result of this date carries."""
        ...

    def may_replay(self, start: Start) -> bool:
        """Whether the handler of this request may be run again from the top."""
        ...

    def request_scope(self, session: Session, call: Call) -> AbstractAsyncContextManager[Any] | None:
        """What is entered around a request that has no session."""
        ...

    def offers_now(self) -> Container[str]:
        """The capabilities that would be declared now."""
        ...


@define(eq=False, repr=False, kw_only=True)
class Session:
    """One peer, one inbox, one task that changes state.

    Lives as long as a pipe (stdio), a session id (stateful HTTP), or one POST and what it parks (stateless HTTP).
    Owns: the inbox, the machine, the nursery its handlers run in.   Lent: the link, the service.
    """

    id: str
    service: Service
    link: Link
    transport: str = "memory"
    runtime: Any = None
    """The runtime that the session belongs to."""
    principal: Any = None
    state: Any = None
    """What the user's session function yielded."""
    peer: Peer = field(init=False)
    log_level: str | None = None
    ended: Cause | None = None
    last_used: float = 0.0
    data: dict[str, Any] = field(factory=dict)
    """What features keep for this session (subscriptions ...)."""
    _inbox: trio.MemorySendChannel[Message] = field(init=False)
    _messages: trio.MemoryReceiveChannel[Message] = field(init=False)
    _running: dict[int, Call] = field(factory=dict)
    _elsewhere: dict[int, Relay] | None = None
    """Calls that other sessions answer, because they were parked there."""
    _zombies: int = 0
    _resting: bool = False
    """The loop waits for a message and none is on its way."""
    _stepping: bool = False
    _lent: bool = False
    """The task that delivers a message will run the handler that it starts."""
    _borrower: Call | None = None
    _told: int = 0
    _failure: Exception | None = None
    """What a step raised in a task other than the loop's, which raises it again."""
    _nursery: trio.Nursery | None = None
    _state_done: trio.Event | None = None
    # Made when they are needed: there may be thousands of idle sessions.
    _background_tasks: set[trio.CancelScope] | None = None
    _watchers: trio.lowlevel.ParkingLot | None = None
    on_end: list[Callable[[], None]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        limits = self.service.limits
        self.peer = Peer(
            role=self.service.role,
            eras=self.service.eras,
            routes=self.service.router,
            max_running=limits.running,
            offers_now=self.service.offers_now,
        )
        self._open_inbox()

    def _open_inbox(self) -> None:
        self._inbox, self._messages = trio.open_memory_channel[Message](self.service.limits.inbox)

    # -- for other tasks: these only post

    async def deliver(
        self,
        frame: Frame | Batch | Malformed,
        link: Link,
        context: contextvars.Context | None = None,
        *,
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        """Hand over what the peer sent; answers go to `link`. Waits only while the inbox is full.

        A carrier whose context variables stay the same copies them once and gives them along. One that gives `on_wait`
        lends its task to the handler, see `eager`: when that is called, another task has to take the carrier's place.

        Raises:
            LinkClosed: the session is over.
        """
        self.last_used = trio.current_time()
        if context is None:
            context = contextvars.copy_context()
        message = Received(frame, link, context)
        if on_wait is None or not self._resting or self._stepping:
            await self._post(message)
            return
        self._lent = True
        self._take(message)
        self._lent = False
        call, self._borrower = self._borrower, None
        if call is not None:
            await run_eagerly(self._handle(call), context.copy(), partial(_begins_to_wait, call, on_wait))

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        *,
        call: Call | None = None,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        key: str | None = None,
        check: Check | None = None,
    ) -> Any:
        """Ask the peer for something and wait for its answer.

        Where questions travel in results, `key` names this one and `check` raises on an answer that cannot be used.

        Raises:
            McpError: the peer answered with an error.
            CapabilityMissing: it never said that it can do this.
            RequestTimeout: no answer in time.
            LinkClosed: the session ended first.
            TypeError, ValueError: the parameters have no JSON form.
        """
        encode_value(params)  # a fault is the caller's; in the loop it would be the session's
        journal = call.journal if call is not None and call.start.era.features.asks_in_results else None
        question = ""
        if journal is not None:
            question = digest([method, params])
            key = key or journal.key_for(question)
            known = journal.look_up(key, question, check)
            if known is not MISSING:
                return known
        reply = Reply(on_progress)
        hub = self.service.telemetry
        began = trio.current_time()
        outcome = "cancelled"
        if hub:
            hub.emit(telemetry.AskSent(session=self.id, method=method))
        number = call.start.call if call is not None else None
        asked = Asked(number, method, params, reply, on_progress is not None, key or "", check)
        if call is not None:
            call.pause()
        try:
            with trio.move_on_after(self.service.limits.ask_timeout if timeout is None else timeout):
                await self._post(asked)
                if journal is not None and call is not None:
                    await self._gather(call.start.call, reply)
                try:
                    result = await reply.wait()
                except Exception:
                    outcome = "error"
                    raise
                outcome = "ok"
                if journal is not None and key is not None:
                    journal.record(key, question, result)
                return result
            outcome = "timeout"
            raise RequestTimeout(f"{method} was not answered in time")
        finally:
            if not reply.settled:
                await self._say(GaveUp(reply, outcome))
            if call is not None:
                call.resume()
            if hub:
                seconds = trio.current_time() - began
                hub.emit(telemetry.AskEnded(session=self.id, method=method, outcome=outcome, seconds=seconds))

    @trio.lowlevel.enable_ki_protection
    async def _gather(self, call: int, reply: Reply) -> None:
        """Wait a moment for more questions of the same call, so that those asked together leave together."""
        with trio.move_on_after(self.service.limits.gather):
            await reply.wait_settled()
        if not reply.settled:
            await self._post(Gathered(call, reply))

    async def notify(self, method: str, params: dict[str, Any], *, call: Call | None = None) -> None:
        """Tell the peer something; waits only while the link is full.

        Raises:
            LinkClosed: the session is over.
            TypeError, ValueError: the parameters have no JSON form.
        """
        encode_value(params)
        await (call.start.link if call is not None and call.start.link is not None else self.link).room()
        await self._post(Notified(call.start.call if call is not None else None, method, params))
        self._told += 1
        if not self._told % _TELL_AT_ONCE:
            await trio.lowlevel.checkpoint()

    def notify_nowait(self, method: str, params: dict[str, Any], *, call: Call | None = None) -> None:
        """Tell the peer something; dropped if the inbox is full."""
        encode_value(params)
        self.post_nowait(Notified(call.start.call if call is not None else None, method, params))

    def close_nowait(self, cause: Cause) -> None:
        """Ask the session to end."""
        if self.ended is None and not self.post_nowait(HungUp(cause)) and self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def _post(self, message: Message) -> None:
        if self._resting and not self._stepping:
            self._take(message)
            return
        try:
            self._resting = False
            self._inbox.send_nowait(message)  # no turn of the scheduler for each message of a burst
        except trio.WouldBlock:
            if self.service.telemetry:
                self.service.telemetry.emit(telemetry.LimitHit(name="inbox", session=self.id))
            with suppress(trio.BrokenResourceError):
                await self._inbox.send(message)
                return
        except trio.BrokenResourceError:
            pass
        else:
            return
        raise LinkClosed(self.ended.value if self.ended is not None else "the session is over")

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
            self._resting = False
            self._inbox.send_nowait(message)
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return True

    def take_back(self, call: int) -> None:
        """No other session answers this call any more."""
        if self._elsewhere:
            self._elsewhere.pop(call, None)

    def post_soon(self, message: Message) -> None:
        """Post something that must arrive, without waiting for it."""
        if not self.post_nowait(message) and self.ended is None:
            self.runtime.supervisor.nursery.start_soon(self._say, message)

    def _take(self, message: Message) -> None:
        """Do the loop's work for it, see the module's docstring."""
        self._stepping = True
        try:
            going_on = self._step(message)
        except Exception as error:  # noqa: BLE001 - it is the session's fault and not the poster's: the loop raises it
            self._failure = error
            going_on = False
        finally:
            self._stepping = False
        if not going_on:
            self._resting = False
            self._inbox.send_nowait(HungUp(self.ended or Cause.CRASH))  # wakes the loop, which has room: it was at rest
        else:
            self._tell_watchers()

    # -- what others may look at

    @property
    def calls(self) -> int:
        return self.peer.calls

    @property
    def congested(self) -> bool:
        """So many requests wait that the transport should take no more of them."""
        return self.peer.waiting >= self.service.limits.waiting

    @property
    def backlog(self) -> int:
        """Messages that wait in the inbox."""
        return self._messages.statistics().current_buffer_used

    @property
    def has_running(self) -> bool:
        return bool(self._running)

    @property
    def zombies(self) -> int:
        """Handlers that were cancelled and run nevertheless."""
        return self._zombies

    @property
    def left_behind(self) -> int:
        """Handlers whose code still runs, wanted or not."""
        return len(self._running) + self._zombies

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
        inbox = self._messages.statistics()
        # A message that was handed over but not taken yet is in no buffer; then the loop is not waiting either.
        at_rest = inbox.tasks_waiting_receive or self._nursery is None
        return not self.peer.calls and not inbox.current_buffer_used and bool(at_rest)

    async def wait_until_left(self) -> None:
        """Wait until no handler's code runs any more."""
        while self.left_behind:
            await self._watch()

    # -- the loop: the one place where state changes

    @trio.lowlevel.enable_ki_protection
    async def run(self, carrier: Callable[[], Awaitable[None]] | None = None) -> None:
        """Live. `carrier` brings what the peer sends, and runs among the handlers, so that it can run some of them."""
        hub = self.service.telemetry
        began = self.last_used = trio.current_time()
        if hub:
            hub.emit(telemetry.SessionOpened(session=self.id, transport=self.transport))
        try:
            async with trio.open_nursery() as self._nursery:
                if carrier is not None:
                    self._nursery.start_soon(carrier)
                try:
                    await self._take_messages()
                finally:
                    self._leave()
                self._nursery.cancel_scope.deadline = trio.current_time() + self.service.limits.end_grace
        finally:
            for callback in self.on_end:
                callback()
            if hub and self.ended is not None:
                seconds = trio.current_time() - began
                hub.emit(telemetry.SessionClosed(session=self.id, cause=self.ended.value, seconds=seconds))

    async def _take_messages(self) -> None:
        messages = self._messages
        while True:
            # What came meanwhile is taken without another turn of the scheduler; the bound lets others have theirs.
            for _ in range(self.service.limits.inbox):
                try:
                    message = messages.receive_nowait()
                except trio.WouldBlock:
                    self._resting = True
                    break
                if not self._step(message):
                    return
            self._tell_watchers()
            message = await messages.receive()
            self._resting = False
            if self._failure is not None:
                raise self._failure
            if not self._step(message):
                return

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

    def _step(self, message: Message) -> bool:
        """Do what follows from a message; False when the session is over."""
        effects = self.peer.step(message)
        for place, effect in enumerate(effects, 1):
            more = self._perform(effect)
            if more:
                # An inline handler is done at once: what follows from that is performed in its place.
                effects[place:place] = more
        return self.ended is None

    def _perform(self, effect: Effect) -> list[Effect] | None:
        match effect:
            case Send(frame, link, final, status):
                data = encode_batch(frame) if type(frame) is tuple else encode(frame)  # type: ignore[arg-type]  # narrowed
                (link if link is not None else self.link).post(data, final=final, status=status)
            case Start(method=method):
                return self._begin(effect, method)
            case AskInResult(start, questions):
                return self._ask_in_result(start, questions)
            case Gather(call, reply):
                assert self._nursery is not None
                self._nursery.start_soon(self._gather, call, reply)
            case Attach(call, start):
                if call in self._running:
                    self._running[call].start = start
                else:
                    self.runtime.parking.answered(start)  # its result was waiting
            case Stop(call, cause):
                self._stop_call(call, cause)
            case Retire():
                pass
            case Settle(reply, result, error):
                reply.settle(result, error)
            case Progressed(reply, params):
                self._tell_progress(reply, params)
            case End(link):
                link.end()
            case Ignored(what):
                if self.service.telemetry:
                    self.service.telemetry.emit(telemetry.Dropped(kind=what, session=self.id))
            case Close(cause):
                self.ended = cause
        return None

    def _tell_progress(self, reply: Reply, params: dict[str, Any]) -> None:
        if reply.on_progress is None:
            return
        try:
            reply.on_progress(params)
        except Exception:
            logger.exception("a progress callback failed")

    def _ask_in_result(self, start: Start, questions: dict[str, Any]) -> list[Effect] | None:
        try:
            replayable = self.service.may_replay(start)
            result = self.runtime.parking.leave(self._running[start.call], questions, replayable=replayable)
        except LocalProtocolError as error:
            logger.error("%s (id %r): %s", start.method, start.request_id, error)
            refusal = ErrorResponse(start.request_id, INTERNAL_ERROR, str(error))
            start.link.post(encode(refusal), final=True)
            return self.peer.step(Expired(start.call))
        assert start.request_id is not None
        self.runtime.parking.answered(start)
        start.link.post(encode(Response(start.request_id, self.service.finish(result, start.era))), final=True)
        return None

    def _take_up(self, start: Start) -> Journal | list[Effect]:
        """A repeated request comes with answers: it goes to the call that waits, or its journal is replayed."""
        parking = self.runtime.parking
        try:
            taken = parking.take(start, self.principal, may_replay=self.service.may_replay(start))
        except McpError as error:
            return self.peer.step(Finished(start.call, Failed(error.code, error.message)))
        if isinstance(taken, Journal):
            return taken
        # The parked call answers this request from now on.
        resumed = msgspec.structs.replace(start, call=taken.call)
        if taken.session is self:
            return [*self.peer.step(Resumed(taken.call, resumed)), *self.peer.step(HandedOver(start.call))]
        relay = Relay(start.link, self, start.call, taken.session)
        if self._elsewhere is None:
            self._elsewhere = {}
        self._elsewhere[start.call] = relay
        if not taken.session.post_nowait(Resumed(taken.call, msgspec.structs.replace(resumed, link=relay))):
            parking.put_back(taken)
            self.take_back(start.call)
            full = failure(Overloaded("the call cannot be reached now", retry_after=1), start.method)
            return self.peer.step(Finished(start.call, full))
        return []

    def _begin(self, start: Start, method: str) -> list[Effect] | None:
        journal = None
        if method in start.era.may_ask and ("inputResponses" in start.params or "requestState" in start.params):
            answers = start.params.get("inputResponses", {})
            if type(answers) is not dict:
                fault = Failed(INVALID_PARAMS, "params.inputResponses: expected an object")
                return self.peer.step(Finished(start.call, fault))
            taken = self._take_up(start) if "requestState" in start.params else Journal(given=answers)
            if not isinstance(taken, Journal):
                return taken
            journal = taken
        now = trio.current_time()
        limits = self.service.limits
        call = Call(start, self, trio.CancelScope(), now, now + limits.call_timeout_hard, limits.call_timeout, journal)
        hub = self.service.telemetry
        if hub.wants(telemetry.CallStarted):
            hub.emit(
                telemetry.CallStarted(session=self.id, call=start.call, request_id=start.request_id, method=method)
            )
        router = self.service.router
        if router.is_inline(method) and (start.era.stateful or self.service.request_scope(self, call) is None):
            outcome = router.run_inline(method, start.params, self.service.make_context(self, call))
            if hub:
                self._report(call, outcome)
            return self.peer.step(Finished(start.call, outcome))
        assert self._nursery is not None
        self._running[start.call] = call
        if router.is_long(method):
            self.peer.make_room_for(start.call)
        if self._lent:
            self._lent = False
            self._borrower = call
            return None
        call.arm()
        if start.context is not None:
            start.context.run(self._nursery.start_soon, self._handle, call, name=method)
        else:
            self._nursery.start_soon(self._handle, call, name=method)
        return None

    # A Ctrl-C belongs to whoever runs the program, not to the handler that happens to run: see the call guard.
    @trio.lowlevel.enable_ki_protection
    async def _handle(self, call: Call) -> None:
        start = call.start
        telemetry.current_call.set((self.id, start.request_id))
        outcome: Outcome | None = None
        try:
            with call.scope:
                outcome = await self._run(call, start)
                if call.held_back is not None:
                    await self.notify(*call.held_back, call=call)
        finally:
            if self._running.pop(start.call, None) is None:
                self._zombies -= 1
            if outcome is None:
                if call.stopped is None:
                    call.stopped = Cause.TIMEOUT if call.scope.cancelled_caught else Cause.SESSION_END
                    if call.stopped is Cause.TIMEOUT and self.service.telemetry:
                        name = "call_timeout_hard" if trio.current_time() >= call.hard else "call_timeout"
                        self.service.telemetry.emit(telemetry.LimitHit(name=name, session=self.id))
                outcome = Failed(INTERNAL_ERROR, call.stopped.value)
            if self.service.telemetry:
                self._report(call, outcome)
            if self.ended is not None:
                self._tell_watchers()
        if "requestState" in call.start.params and call.stopped is None:
            self.runtime.parking.answered(call.start)
        # Outside the scope. A call that was stopped is no longer in the ledger and this is ignored.
        with suppress(LinkClosed):  # or the session ended meanwhile
            await self._post(Finished(start.call, outcome))

    async def _run(self, call: Call, start: Start) -> Outcome:
        if call.ticket and not await self.runtime.parking.is_new(call.ticket, start):
            return Failed(INVALID_PARAMS, REFUSED)
        router = self.service.router
        manager = None if start.era.stateful else self.service.request_scope(self, call)
        if manager is None:
            return await router.run(start.method, start.params, self.service.make_context(self, call))
        outcome: Outcome | None = None
        try:
            async with manager as call.state:
                outcome = await router.run(start.method, start.params, self.service.make_context(self, call))
        except Exception as error:
            if outcome is None:
                return failure(error, start.method)
            logger.exception("the session function failed after %s", start.method)
        assert outcome is not None
        return outcome

    def _report(self, call: Call, outcome: Outcome) -> None:
        start = call.start
        word = "ok" if type(outcome) is Answered else "error"
        self.service.telemetry.emit(
            telemetry.CallEnded(
                session=self.id,
                call=start.call,
                request_id=start.request_id,
                method=start.method,
                outcome=word if call.stopped is None else _OUTCOMES.get(call.stopped, "cancelled"),
                seconds=trio.current_time() - call.began,
                code=outcome.code if type(outcome) is Failed else None,
            )
        )

    def _stop_call(self, number: int, cause: Cause) -> None:
        if number in self._running:
            self._stop(self._running[number], cause)
        elif self._elsewhere and number in self._elsewhere:
            self._elsewhere.pop(number).cancel()

    def _stop(self, call: Call, cause: Cause) -> None:
        if type(call.start.link) is Relay:
            call.start.link.abandon(cause)
        call.stopped = cause
        call.stopped_at = trio.current_time()
        call.scope.cancel()

    # -- zombies

    def bury(self, now: float) -> None:
        """Find handlers that were cancelled, or whose time is up, and that go on nevertheless.

        Their ids are freed and answered; they are counted and named. Called by the supervisor every now and then.
        """
        patience = self.service.limits.ignore_cancel
        for call in [c for c in self._running.values() if c.scope.cancel_called]:
            if not call.stopped_at:
                call.stopped_at = now
                continue
            if now - call.stopped_at < patience:
                continue
            start = call.start
            cause = call.stopped or Cause.TIMEOUT
            if not self.post_nowait(Finished(start.call, Failed(INTERNAL_ERROR, cause.value))) and self.ended is None:
                continue  # the inbox is full: next time
            del self._running[start.call]
            self._zombies += 1
            about = (self.id[:8], start.method, start.request_id, cause.value)
            logger.error("session %s: %s (id %r) ignores its cancellation: %s", *about)
            if self.service.telemetry:
                self.service.telemetry.emit(
                    telemetry.Zombie(session=self.id, method=start.method, request_id=start.request_id)
                )
        if self._zombies >= self.service.limits.zombies:
            self.close_nowait(Cause.CRASH)

    # -- things that live as long as the session

    async def hold(self, manager: AbstractAsyncContextManager[Any]) -> Any:
        """Enter a context manager that is left, in the same task, when the session ends."""
        assert self._nursery is not None
        self._state_done = trio.Event()
        value: Any = await self._nursery.start(self._hold, manager, self._state_done)
        return value

    @trio.lowlevel.enable_ki_protection
    async def _hold(
        self,
        manager: AbstractAsyncContextManager[Any],
        done: trio.Event,
        task_status: trio.TaskStatus[Any],
    ) -> None:
        started = False
        try:
            async with manager as value:
                started = True
                task_status.started(value)
                await done.wait()
        except Exception:
            if not started:
                raise
            logger.exception("the session function failed when session %s ended", self.id[:8])

    def start_carrier(self, fn: Callable[[], Awaitable[None]]) -> None:
        """Run `fn` among the handlers: it takes the place of a carrier whose task was lent to one of them."""
        assert self._nursery is not None
        self._nursery.start_soon(fn)

    def start_background(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `fn` beside the session's handlers; it is cancelled when the session ends and logged if it fails."""
        assert self._nursery is not None
        self._nursery.start_soon(self._background, fn, args, name=fn)

    @trio.lowlevel.enable_ki_protection
    async def _background(self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        with trio.CancelScope() as scope:
            if self._background_tasks is None:
                self._background_tasks = set()
            self._background_tasks.add(scope)
            try:
                await fn(*args)
            except Exception:
                logger.exception("a background task of session %s failed", self.id[:8])
            finally:
                self._background_tasks.discard(scope)


def _begins_to_wait(call: Call, on_wait: Callable[[], None]) -> None:
    call.arm()
    on_wait()
