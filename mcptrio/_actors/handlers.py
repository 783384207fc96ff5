"""The running handlers of a session: started, cancelled, timed out, and noticed when they ignore a cancellation.

Each handler runs in a task of its session's nursery, named after its call, or in the task of a reader (`lending`). It
runs inside the cancel scope of its call and reports by posting `Finished`; the session's loop never waits for it.
A retry that brings answers is led back to the parked call that asked (`parking`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.call import Call, fitting
from mcptrio._actors.cancellation import abandon_nurseries, is_cancelled
from mcptrio._actors.journal import Journal
from mcptrio._actors.parking import refusal
from mcptrio._actors.relay import Relay
from mcptrio._actors.reports import LONGEST_NAME, call_parked, call_resumed, call_started
from mcptrio._actors.router import Finish, Route, failure, foreign_cancelled, pass_on_interrupt
from mcptrio._peer.effects import Effect, Start
from mcptrio._peer.messages import Answered, Asked, Cause, Expired, Failed, Finished, HandedOver, Outcome, Resumed
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Error, Response, encode
from mcptrio.auth.request_state import StateRefused
from mcptrio.errors import INTERNAL_ERROR, INVALID_PARAMS, ConnectionLost, LocalProtocolError, Overloaded

if TYPE_CHECKING:
    from mcptrio._actors.lending import Lendable, Loan
    from mcptrio._actors.service import Actor

logger = logging.getLogger("mcptrio.session")

_CAUSES = {Cause.CLIENT_CANCEL: "client", Cause.DISCONNECT: "disconnected", Cause.DRAIN: "shutdown"}
"""The origin of a cancellation, for telemetry; any other cause ended the session of the call."""
_SUPPRESSED = Failed(INTERNAL_ERROR, "the session function suppressed an exception")


class Handlers(Entity):
    """The running calls of one session or exchange.

    Owns: the calls.   Borrows: the session, the loan that its reader offers with the present message.
    """

    session: Actor
    handle: Callable[[Call], Awaitable[Outcome]] | None = None
    """Runs the handler of a call, if it is not the one of the routing table."""
    on_left: Callable[[], None] | None = None
    """Called when the session is over and its last handler has ended."""
    loan: Loan | None = None
    """The offer of the reader to run the handler in its own task; set while it delivers a request."""
    zombies: int = 0
    """Handlers that were cancelled and still run."""
    _running: dict[int, Call] = field(default_factory=dict)
    _last_left: trio.Event | None = None
    """Set when no handler runs any more, for the tasks that wait for it."""
    _elsewhere: dict[int, Relay] | None = None
    """Calls that another session answers, because they were parked there."""

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Call]:
        return iter(tuple(self._running.values()))

    @property
    def left_behind(self) -> int:
        """How many handlers still run, wanted or not."""
        return len(self._running) + self.zombies

    async def wait_until_left(self) -> None:
        """Wait until no handler runs any more."""
        if self.left_behind:
            if self._last_left is None:
                self._last_left = trio.Event()
            await self._last_left.wait()

    # -- starting

    def start(self, start: Start) -> list[Effect]:
        """Start the handler of a request; return what follows at once."""
        journal: Journal | None = None
        if start.method in start.era.may_ask and ("inputResponses" in start.params or "requestState" in start.params):
            taken = self._take_up(start)
            if not isinstance(taken, Journal):
                return taken
            journal = taken
        session = self.session
        service, hub = session.service, session.service.telemetry
        route = service.router.routes[start.method]
        inline = route.inline and service.router.chain is None
        now, limits = trio.current_time(), service.limits
        scope = trio.CancelScope(deadline=now + limits.call_timeout)
        call = Call(start, session, scope, now, now + limits.call_timeout_hard, limits.call_timeout)
        if journal is not None:
            call.use(journal)
        if inline and (start.era.stateful or service.request_scope(session, call) is None):
            if hub.wants(telemetry.CallStarted):
                call_started(session, call)
            context = service.make_context(session, call)
            outcome = service.router.run_inline(start.method, start.params, context, self._finish(start))
            if hub:
                self._report(call, outcome)
            return session.peer.step(Finished(start.call, outcome))
        self._running[start.call] = call
        if route.long:
            session.peer.make_room_for(start.call)
        else:
            call.charge()
        self._launch(call, route)
        return []

    def _launch(self, call: Call, route: Route) -> None:
        """Give the handler a task: the reader's if it offers its own and the handler has never waited, or a new one."""
        start, session = call.start, self.session
        target = None if route.named_by is None else start.params.get(route.named_by)
        call.name = _task_name(start.method, target, session.label)
        if self.loan is not None:
            entry: Lendable = route
            if route.entries is not None and type(target) is str:
                entry = route.entries.get(target, route)
            if not entry.waits:
                self.loan.accept(call, self, entry)
                self.loan = None
                return
        start_soon: Callable[..., None] = session.spawn if session.nursery is None else session.nursery.start_soon
        if start.context is None:
            start_soon(self.run, call, name=call.name)
        else:
            start.context.run(start_soon, self.run, call, name=call.name)

    # A Ctrl-C belongs to the main task, not to the handler that happens to run.
    @trio.lowlevel.enable_ki_protection
    async def run(self, call: Call) -> None:
        """Run a handler inside its cancel scope, and report how it ended."""
        start = call.start
        telemetry.current_call.set((self.session.id, start.request_id))
        if self.session.service.telemetry.wants(telemetry.CallStarted):
            call_started(self.session, call)
        outcome: Outcome | None = None
        try:
            with call.scope:
                outcome = await self._handle(call, start)
                if call.held_back is not None and call.start.progress_token is not None:
                    with suppress(ConnectionLost):
                        held_back = call.with_token(call.held_back)
                        await self.session.asks.notify("notifications/progress", held_back, call=call)
        except Exception as error:  # noqa: BLE001 - the call guard: for example a cancel scope that was left open
            outcome = failure(error, start.method)
            abandon_nurseries()
        except (trio.Cancelled, BaseExceptionGroup) as error:
            if is_cancelled():
                raise
            pass_on_interrupt(error)
            outcome = foreign_cancelled(error, start.method)
        finally:
            self._ended(call, outcome)

    def _handle(self, call: Call, start: Start) -> Awaitable[Outcome]:
        if self.handle is not None:
            return self.handle(call)
        session = self.session
        manager = None if start.era.stateful else session.service.request_scope(session, call)
        if manager is None and call.ticket is None:
            finish = self._finish(start)
            context = session.service.make_context(session, call)
            return session.service.router.run(start.method, start.params, context, finish)
        return self._handle_inside(call, start, manager or nullcontext())

    async def _handle_inside(self, call: Call, start: Start, manager: AbstractAsyncContextManager[Any]) -> Outcome:
        """Run a stateless handler inside the user's session function, or one that is replayed."""
        service = self.session.service
        if call.ticket and not await self.session.runtime.parking.is_new(call.ticket, self.session.owner):
            call.refused = True
            return refusal(start, "it was used before")
        outcome: Outcome = _SUPPRESSED
        try:
            async with manager as call.state:
                context = service.make_context(self.session, call)
                outcome = await service.router.run(start.method, start.params, context, self._finish(start))
        except Exception as error:
            if outcome is _SUPPRESSED:
                return failure(error, start.method)
            logger.exception("the session function failed after %s", start.method)
        return outcome

    def _finish(self, start: Start) -> Finish | None:
        return None if start.era.stateful else partial(self.session.service.finish, era=start.era)

    def _ended(self, call: Call, outcome: Outcome | None) -> None:
        session, number = self.session, call.start.call
        hub = session.service.telemetry
        if self._running.pop(number, None) is None:
            self.zombies -= 1
        if outcome is None:
            if call.stopped is None:
                call.stopped = Cause.TIMEOUT if call.scope.cancel_called else Cause.SESSION_END
                if call.stopped is Cause.TIMEOUT and hub:
                    name = "call_timeout_hard" if trio.current_time() >= call.hard else "call_timeout"
                    hub.emit(telemetry.LimitHit(name=name, session=session.id))
            outcome = self._unfinished(call, call.stopped)
        call.over = True
        call.release()
        if call.background:
            call.end_tasks()
        if hub:
            self._report(call, outcome)
        if not self._running and not self.zombies:
            self._notice_end()
        if "requestState" in call.start.params and call.stopped is None and not call.refused:
            session.runtime.parking.answered(call.start, session.owner)
        # The machine ignores calls that were stopped. When the whole session is being cancelled, no reply is possible.
        if call.stopped is not Cause.SESSION_END:
            session.inbox.post_soon(Finished(number, fitting(session, number, outcome)))
        if call.ends_session is not None:
            session.reason = call.ends_session
            session.close_nowait(Cause.SESSION_END)

    def _notice_end(self) -> None:
        """Handle the end of the last handler."""
        if self._last_left is not None:
            self._last_left.set()
        if self.on_left is not None and self.session.ended is not None:
            self.on_left()

    def _unfinished(self, call: Call, cause: Cause) -> Outcome:
        """Return the outcome of a call that was stopped."""
        router, start = self.session.service.router, call.start
        timed_out = router.routes[start.method].timed_out
        if cause is Cause.TIMEOUT and timed_out is not None:
            return router.answer(timed_out(call), self._finish(start))
        return Failed(INTERNAL_ERROR, cause.value)

    # -- telemetry

    def _report(self, call: Call, outcome: Outcome) -> None:
        start, session, stopped = call.start, self.session, call.stopped
        hub, route = session.service.telemetry, session.service.router.routes[start.method]
        target = None if route.named_by is None else start.params.get(route.named_by)
        name = target[:LONGEST_NAME] if type(target) is str else None
        failed = outcome if type(outcome) is Failed else None
        if stopped is not None:
            word = "timeout" if stopped is Cause.TIMEOUT else "cancelled"
        elif failed is not None:
            word = "overloaded" if type(failed.data) is dict and "retryAfter" in failed.data else "error"
        else:
            word = "tool_error" if type(outcome) is Answered and outcome.is_error else "ok"
        queued = 0.0 if start.link is None else start.link.queued
        hub.emit(
            telemetry.CallEnded(
                session=session.id,
                call=call.serial,
                request_id=start.request_id,
                method=start.method,
                outcome=word,
                seconds=trio.current_time() - call.began + queued,
                code=None if failed is None else failed.code,
                name=name,
                entry=name if route.entries is not None and name in route.entries else call.entry,
                queued=call.queued + queued,
                asking=call.asked,
                cause=_CAUSES.get(stopped, "session") if stopped is not None and word == "cancelled" else None,
                message=None if failed is None else failed.message,
                principal=session.principal.key if hub.principals and session.principal is not None else None,
            )
        )

    # -- parked calls

    def _take_up(self, start: Start) -> Journal | list[Effect]:
        """Lead a retry to the parked call that waits for it, or return the journal to replay the call with."""
        session = self.session
        answers = start.params.get("inputResponses", {})
        if type(answers) is not dict:
            fault = Failed(INVALID_PARAMS, "params.inputResponses: expected an object")
            return session.peer.step(Finished(start.call, fault))
        if "requestState" not in start.params:
            return Journal(given=answers)
        parking = session.runtime.parking
        try:
            taken = parking.take(start, session)
        except StateRefused as why:
            return session.peer.step(Finished(start.call, refusal(start, why)))
        if isinstance(taken, Journal):
            return taken
        # The parked call answers this request from now on.
        resumed = msgspec.structs.replace(start, call=taken.call)
        if taken.session is session:
            return [*session.peer.step(Resumed(taken.call, resumed)), *session.peer.step(HandedOver(start.call))]
        relay = Relay(start.link or session.link, session, start.call, taken.session)
        if self._elsewhere is None:
            self._elsewhere = {}
        self._elsewhere[start.call] = relay
        if not taken.session.inbox.post_nowait(Resumed(taken.call, msgspec.structs.replace(resumed, link=relay))):
            parking.put_back(taken)
            self.take_back(start.call)
            full = failure(Overloaded("the call cannot be reached now", retry_after=1), start.method)
            return session.peer.step(Finished(start.call, full))
        return []

    def take_back(self, call: int) -> None:
        """Forget that another session answers this call."""
        if self._elsewhere:
            self._elsewhere.pop(call, None)

    def attach(self, call: int, start: Start) -> None:
        """Let a parked call serve the request that repeats its own."""
        if call in self._running:
            self._running[call].start = start
            self._running[call].charge(retry=True)
            if self.session.service.telemetry.wants(telemetry.CallResumed):
                call_resumed(self.session, self._running[call])
        else:
            self.session.runtime.parking.answered(start, self.session.owner)  # it had ended, and its result was waiting

    def keep(self, call: int, size: int) -> None:
        """Count an answer that a running call keeps."""
        if call in self._running:
            self._running[call].keep(size)

    def ask_in_result(self, start: Start, questions: dict[str, Asked]) -> list[Effect]:
        """Park a call: answer its request with the open questions."""
        session, link = self.session, start.link or self.session.link
        parking = session.runtime.parking
        try:
            result = parking.leave(self._running[start.call], questions)
        except LocalProtocolError as error:
            logger.error("%s (id %r): %s", start.method, start.request_id, error)
            refusal = Error(start.request_id, INTERNAL_ERROR, str(error))
            link.post(encode(refusal), final=True)
            return session.peer.step(Expired(start.call))
        parking.answered(start, session.owner)
        if session.service.telemetry.wants(telemetry.CallParked):
            call_parked(session, self._running[start.call])
        if start.request_id is not None:
            response = Response(start.request_id, session.service.finish(result, start.era))
            link.post(encode(response), final=True)
        return []

    # -- stopping

    def stop(self, number: int, cause: Cause) -> None:
        """Cancel the handler of a call."""
        if number in self._running:
            self._stop(self._running[number], cause)
        elif self._elsewhere and number in self._elsewhere:
            self._elsewhere.pop(number).cancel()

    def stop_all(self, cause: Cause) -> None:
        """Cancel every handler that is not being cancelled yet."""
        for call in self:
            if call.stopped is None and not call.scope.cancel_called:
                self._stop(call, cause)

    def _stop(self, call: Call, cause: Cause) -> None:
        if isinstance(call.start.link, Relay):
            call.start.link.abandon(cause)
        call.stopped = cause
        call.stopped_at = trio.current_time()
        call.scope.cancel()

    def find_zombies(self, now: float) -> None:
        """Give up handlers that were cancelled, or timed out, and still run: free and answer their ids, name them.

        Called by the supervisor at intervals.
        """
        session, limits = self.session, self.session.service.limits
        for call in self:
            if not call.scope.cancel_called:
                continue
            if not call.stopped_at:
                call.stopped_at = now
                continue
            if now - call.stopped_at < limits.ignore_cancel:
                continue
            start = call.start
            cause = call.stopped or Cause.TIMEOUT
            report = Finished(start.call, self._unfinished(call, cause))
            if not session.inbox.post_nowait(report) and session.ended is None:
                continue  # the inbox is full: next time
            del self._running[start.call]
            self.zombies += 1
            about = (session.id[:8], start.method, start.request_id, cause.value)
            logger.error("session %s: %s (id %r) ignores its cancellation: %s", *about)
            if hub := session.service.telemetry:
                hub.emit(telemetry.Zombie(session=session.id, method=start.method, request_id=start.request_id))
        if self.zombies >= limits.zombies:
            session.close_nowait(Cause.CRASH)


def _task_name(method: str, target: Any, label: str) -> str:
    """Return the name of a call's task: method, tool (or prompt, or URI) and session."""
    return f"{method} {target[:LONGEST_NAME]} · {label}" if type(target) is str else f"{method} · {label}"
