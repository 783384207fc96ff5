"""The part of a session that runs handlers: it starts them, stops them, and notices those that will not stop.

A handler runs in a task among the session's others, or, until it first waits, in the task that brought its request
(`eager`). Either way it runs inside the scope of its call and reports by posting `Finished`; the loop never waits for
it. Repeated requests that bring answers are led back to the call that asked (`parking`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Container
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from contextvars import copy_context
from typing import Any, Protocol

import msgspec
import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.call import Call, Limits
from mcptrio._actors.eager import run_eagerly
from mcptrio._actors.journal import Journal
from mcptrio._actors.parking import REFUSED
from mcptrio._actors.relay import Relay
from mcptrio._actors.router import Router, failure
from mcptrio._peer.effects import Effect, Start
from mcptrio._peer.era import Era, Role
from mcptrio._peer.machine import Eras, Peer
from mcptrio._peer.messages import Answered, Cause, Expired, Failed, Finished, HandedOver, Message, Outcome, Resumed
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import ErrorResponse, Response, encode
from mcptrio.errors import INTERNAL_ERROR, INVALID_PARAMS, LinkClosed, LocalProtocolError, McpError, Overloaded

logger = logging.getLogger("mcptrio.session")

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

    def make_context(self, session: Any, call: Call) -> Any: ...

    def finish(self, result: dict[str, Any], era: Era) -> dict[str, Any]:
        """What every result of this date carries."""
        ...

    def may_replay(self, start: Start) -> bool:
        """Whether the handler of this request may be run again from the top."""
        ...

    def request_scope(self, session: Any, call: Call) -> AbstractAsyncContextManager[Any] | None:
        """What is entered around a request that has no session."""
        ...

    def offers_now(self) -> Container[str]:
        """The capabilities that would be declared now."""
        ...


class Carrier(Protocol):
    """A task that brings requests to a session and lends itself to their handlers."""

    scope: trio.CancelScope
    """Entered around the whole task. It becomes the scope of the handler that keeps the task."""

    def pass_on(self) -> None:
        """A handler keeps the task: another one has to take the carrier's place."""
        ...


class Handling(Entity, kw_only=True):
    """Owns: the handlers at work.   Lent: the service, the runtime, the machine."""

    id: str
    service: Service
    runtime: Any = None
    """The runtime that the session belongs to."""
    principal: Any = None
    ended: Cause | None = None
    last_used: float = 0.0
    """When the peer last sent something."""
    peer: Peer = None  # type: ignore[assignment]  # there when it is built
    _nursery: trio.Nursery | None = None
    _running: dict[int, Call] = field(default_factory=dict)
    _elsewhere: dict[int, Relay] | None = None
    """Calls that other sessions answer, because they were parked there."""
    _zombies: int = 0
    _lender: Carrier | None = None
    """It delivers a message just now, and will run the handler that this starts."""
    _borrower: Call | None = None

    # -- what the rest of the session does

    def post_nowait(self, message: Message) -> bool:
        raise NotImplementedError

    def post_soon(self, message: Message) -> None:
        raise NotImplementedError

    def close_nowait(self, cause: Cause) -> None:
        raise NotImplementedError

    async def notify(self, method: str, params: dict[str, Any], *, call: Call | None = None) -> None:
        raise NotImplementedError

    def _left_late(self) -> None:
        """A handler is gone, later than its session."""
        raise NotImplementedError

    def _crash(self, error: Exception) -> None:
        """Something other than a handler failed in a carrier's task: the session ends because of it."""
        raise NotImplementedError

    def _launch(self, call: Call) -> None:
        """Give the handler of a call a task of its own."""
        raise NotImplementedError

    # -- what others may look at

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

    # -- a call begins

    def _begin(self, start: Start) -> list[Effect] | None:
        journal, method = None, start.method
        if method in start.era.may_ask and ("inputResponses" in start.params or "requestState" in start.params):
            answers = start.params.get("inputResponses", {})
            if type(answers) is not dict:
                fault = Failed(INVALID_PARAMS, "params.inputResponses: expected an object")
                return self.peer.step(Finished(start.call, fault))
            taken = self._take_up(start) if "requestState" in start.params else Journal(given=answers)
            if not isinstance(taken, Journal):
                return taken
            journal = taken
        service = self.service
        lender, router, limits, hub = self._lender, service.router, service.limits, service.telemetry
        route = router[method]
        inline = router.is_inline(route)
        # A scope is dear: what cannot be cancelled has none, and what runs in a carrier's task has the carrier's.
        scope = lender.scope if lender is not None else None if inline else trio.CancelScope()
        now = trio.current_time() if lender is None else self.last_used
        call = Call(start, self, scope, now, now + limits.call_timeout_hard, limits.call_timeout, journal)  # type: ignore[arg-type]  # this is a session, and `inline` handlers never look at the scope
        if hub.wants(telemetry.CallStarted):
            hub.emit(
                telemetry.CallStarted(session=self.id, call=start.call, request_id=start.request_id, method=method)
            )
        if inline and (start.era.stateful or service.request_scope(self, call) is None):
            outcome = router.run_inline(method, start.params, service.make_context(self, call))
            if hub:
                self._report(call, outcome)
            return self.peer.step(Finished(start.call, outcome))
        self._running[start.call] = call
        if route.long:
            self.peer.make_room_for(start.call)
        if lender is not None:
            self._lender = None
            self._borrower = call
            return None
        if scope is None:
            call.scope = trio.CancelScope()
        call.arm()
        self._launch(call)
        return None

    async def _lend(self, carrier: Carrier) -> None:
        """Run the handler that was just started in the carrier's task."""
        call, self._borrower = self._borrower, None
        if call is None:
            return
        # Not the context of what was delivered: that may have made room for a request that waited.
        context, kept = call.start.context, False
        context = copy_context() if context is None else context.copy()

        def keep() -> None:
            nonlocal kept
            kept = True
            call.arm()
            carrier.pass_on()

        try:
            await run_eagerly(self._work(call), context, keep)
        except Exception as error:  # noqa: BLE001 - it is the session's fault and not the carrier's
            self._crash(error)
        finally:
            if not kept and call.stopped is not None:
                carrier.pass_on()  # its scope was cancelled: no other handler can be run in it

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
        relay = Relay(start.link, self, start.call, taken.session)  # type: ignore[arg-type]  # this is a session
        if self._elsewhere is None:
            self._elsewhere = {}
        self._elsewhere[start.call] = relay
        if not taken.session.post_nowait(Resumed(taken.call, msgspec.structs.replace(resumed, link=relay))):
            parking.put_back(taken)
            self.take_back(start.call)
            full = failure(Overloaded("the call cannot be reached now", retry_after=1), start.method)
            return self.peer.step(Finished(start.call, full))
        return []

    def take_back(self, call: int) -> None:
        """No other session answers this call any more."""
        if self._elsewhere:
            self._elsewhere.pop(call, None)

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

    # -- a handler at work

    @trio.lowlevel.enable_ki_protection
    async def _handle(self, call: Call) -> None:
        with call.scope:
            await self._work(call)

    # A Ctrl-C belongs to whoever runs the program, not to the handler that happens to run: see the call guard.
    @trio.lowlevel.enable_ki_protection
    async def _work(self, call: Call) -> None:
        """Run the handler inside the scope of its call, and report how it ended."""
        start = call.start
        telemetry.current_call.set((self.id, start.request_id))
        outcome: Outcome | None = None
        try:
            outcome = await self._run(call, start)
            if call.held_back is not None:
                with suppress(LinkClosed):
                    await self.notify(*call.held_back, call=call)
        finally:
            self._worked(call, outcome)

    def _worked(self, call: Call, outcome: Outcome | None) -> None:
        hub, number = self.service.telemetry, call.start.call
        if self._running.pop(number, None) is None:
            self._zombies -= 1
        if outcome is None:
            if call.stopped is None:
                call.stopped = Cause.TIMEOUT if call.scope.cancel_called else Cause.SESSION_END
                if call.stopped is Cause.TIMEOUT and hub:
                    name = "call_timeout_hard" if trio.current_time() >= call.hard else "call_timeout"
                    hub.emit(telemetry.LimitHit(name=name, session=self.id))
            outcome = Failed(INTERNAL_ERROR, call.stopped.value)
        if hub:
            self._report(call, outcome)
        if self.ended is not None:
            self._left_late()
        if "requestState" in call.start.params and call.stopped is None:
            self.runtime.parking.answered(call.start)
        # A call that was stopped is no longer in the ledger, and this is ignored. When everything around it ends there
        # is nobody to tell.
        if call.stopped is not Cause.SESSION_END:
            self.post_soon(Finished(number, outcome))

    def _run(self, call: Call, start: Start) -> Awaitable[Outcome]:
        service = self.service
        manager = None if start.era.stateful else service.request_scope(self, call)
        if manager is None and not call.ticket:
            return service.router.run(start.method, start.params, service.make_context(self, call))
        return self._run_inside(call, start, manager or nullcontext())

    async def _run_inside(self, call: Call, start: Start, manager: AbstractAsyncContextManager[Any]) -> Outcome:
        """Run a handler that has to wait for something first."""
        if call.ticket and not await self.runtime.parking.is_new(call.ticket, start):
            return Failed(INVALID_PARAMS, REFUSED)
        outcome: Outcome | None = None
        try:
            async with manager as call.state:
                context = self.service.make_context(self, call)
                outcome = await self.service.router.run(start.method, start.params, context)
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

    # -- the end of a call that nobody wants any more

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

    def bury(self, now: float) -> None:
        """Find handlers that were cancelled, or whose time is up, and that go on nevertheless: zombies.

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
