"""A running task: a call whose response is stored instead of sent.

The call runs in an `Exchange`, as any stateless request does: the supervisor guards and drains it and notices a handler
that ignores its cancellation. The task is the link of that exchange, so the final response becomes the result of the
task, and `TaskAsks` is its way to ask. Until `begin` it is an ordinary call, which the request waits for.
"""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager, nullcontext
from math import inf
from typing import Any, Final

import msgspec
import trio
from msgspec import field

from mcptrio._actors.call import Call
from mcptrio._actors.exchange import Exchange
from mcptrio._actors.extension import Proceed
from mcptrio._actors.router import failure, pass_on_interrupt
from mcptrio._actors.runtime import Runtime
from mcptrio._peer.link import RequestHead
from mcptrio._peer.messages import Answered, Cause, Failed, Outcome
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Error, Notification, Request, Response, decode, encode_value
from mcptrio._wire.sized import SizedObject, size_of
from mcptrio.errors import INTERNAL_ERROR, LocalProtocolError
from mcptrio.extensions.tasks.asks import TaskAsks
from mcptrio.extensions.tasks.note import LEFT_OUT, EarlierRun, TaskNote
from mcptrio.extensions.tasks.running import STOPPED, RunningTasks, StoredTask
from mcptrio.extensions.tasks.types import TIME_OVER, Status, failed, iso, milliseconds
from mcptrio.server.context import Context

GRACE: Final = 60.0
"""Seconds for which a task is known after its end in any case, so that a client that follows it learns how it ended."""


class TaskRun(Entity, kw_only=True):
    """One task, until its call has ended, was cancelled, or is past its time to live.

    Owns: the exchange of the call.   Borrows: the request that it began as, the table of running tasks.
    """

    running: RunningTasks
    task: str
    owner: str
    scopes: tuple[str, ...]
    ttl: float | None
    poll: float
    max_result: int
    origin: Context
    """The context of the request. Until the task has begun, the user is asked through it."""
    proceed: Proceed
    earlier: EarlierRun | None = None
    """The run that it continues, in a worker that died."""
    begun: bool = False
    outcome: Response | Error | None = None
    """How a call ended that never became a task."""
    ready: trio.Event = field(default_factory=trio.Event)
    """The request can be answered: the task has begun, or the call is done."""
    status_message: str | None = None
    final: dict[str, Any] | None = None
    """The task on the wire once it is over; it is not shown before it is stored."""
    lost: bool = False
    """Whether another worker continues it: nothing that happens here is stored or shown."""
    created: float = field(default_factory=time.time)
    updated: float = field(default_factory=time.time)
    until: float = inf
    """When its time to live is over, in Trio's time."""
    _request: int | str | None = None
    """The id of the call in its exchange; the request that it works for may have been repeated under another id."""
    _beginning: trio.Lock = field(default_factory=trio.Lock)
    _scope: trio.CancelScope | None = None
    _shared: tuple[float, tuple[str, ...], int] = (0.0, (), 0)
    """When its state was last stored for other processes, with which questions, and with how many answers."""
    asks: TaskAsks = None  # type: ignore[assignment]  # set in `__post_init__`
    exchange: Exchange = None  # type: ignore[assignment]  # set in `__post_init__`
    per_request = True
    queued = 0.0

    def __post_init__(self) -> None:
        session = self.origin._session
        self.asks = TaskAsks(self)
        self.exchange = Exchange(
            id="task",
            service=session.service,
            link=self,
            outgoing=self.asks,
            runtime=self.runtime,
            origin=session,
            transport=session.transport,
            principal=session.principal,
            owner=session.owner,
            waits_for_client=lambda: bool(self.asks.pending),
        )
        self.exchange.handlers.handle = self._handle
        if self.earlier is not None:
            self.asks.avoid(self.earlier.note.answered)

    @property
    def runtime(self) -> Runtime:
        return self.origin._session.runtime

    @property
    def head(self) -> RequestHead | None:
        """The head of the HTTP request that it began as, for its context; None elsewhere."""
        return self.origin._call.start.head

    # -- life cycle

    def launch(self) -> None:
        """Start the handler."""
        start = self.origin._call.start
        kept = {key: value for key, value in start.params.items() if key not in LEFT_OUT}
        # With a token of its own progress is always reported; it becomes the status message.
        params: dict[str, Any] = {**kept, "_meta": {**self.origin.meta, "progressToken": self.task}}
        if size := size_of(start.params):
            params = SizedObject(params, size)
        if start.request_id is None:
            raise LocalProtocolError("a notification cannot become a task")
        self._request = start.request_id
        self.exchange.on_end.append(self._lost)
        self.exchange.deliver_nowait(Request(start.request_id, start.method, params), start.context)
        for call in self.exchange.handlers:
            call._journal = self.origin._call.journal
            call.soft = call.hard = call.scope.deadline = inf  # the time to live is the limit

    async def begin(self) -> None:
        """Become a task: it is stored, and the request may be answered with its handle.

        Raises:
            Overloaded: too many tasks are running.
        """
        async with self._beginning:
            if not self.begun:  # another Trio task of the call may have been first
                await self._begin()

    async def _begin(self) -> None:
        await self.running.admit(self)
        self.updated = time.time()
        self.created = self.updated if self.earlier is None else self.earlier.note.created
        self.until = inf if self.ttl is None else trio.current_time() + self.ttl - (self.updated - self.created)
        try:
            self._store(self.summary())
            await self.runtime.store.flush()  # the handle must not be sent before tasks/get would find the task
        except BaseException:
            self.running.forget(self)
            self.runtime.store.tasks.drop(self.task)
            raise
        self.begun = True
        if self.earlier is not None:
            self.earlier.begun = True
        if self._scope is not None:
            self._scope.deadline = self.until
        self.ready.set()

    def cancel(self) -> None:
        """End it at the client's request."""
        if self.final is None:
            self._end({**self.summary(), "status": "cancelled"})
            self.stop()

    def expire(self) -> None:
        """End it if its time to live is over and its handler ignores that."""
        if self.final is None and self.until <= trio.current_time():
            self.fail(TIME_OVER)
            self.stop()

    def give_up(self) -> None:
        """Stop without storing anything: another worker continues the task."""
        self.lost = True
        if self.final is None:
            self.final = self.summary()
            self.asks.pending.clear()
            self.running.forget(self)
            self.stop()

    def leave_to_others(self) -> bool:
        """Leave a task that may run again as it is, because this worker ends; return False if it must be ended."""
        if self.final is not None or not self.runtime.worker or not self._note():
            return False
        self.runtime.store.tasks.let_go(self.task)
        self.give_up()
        return True

    def fail(self, reason: str) -> None:
        """End it with an error; it does not stop the handler."""
        self._end(failed(self.summary(), INTERNAL_ERROR, reason))

    def stop(self) -> None:
        """Cancel the handler."""
        self.exchange.deliver_nowait(Notification("notifications/cancelled", {"requestId": self._request}))

    def discard(self) -> None:
        """Drop a task that was never launched."""
        self.exchange.close_nowait(Cause.SESSION_END)

    async def _handle(self, call: Call) -> Outcome:
        service = self.exchange.service
        scope: AbstractAsyncContextManager[Any] | None = service.request_scope(self.exchange, call)
        try:
            async with scope if scope is not None else nullcontext() as call.state:
                ctx = service.make_context(self.exchange, call)
                ctx.data.update(self.origin.data)
                return await self._proceed(ctx)
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - the call guard
            pass_on_interrupt(error)
            return failure(error, call.start.method)

    async def _proceed(self, ctx: Context) -> Outcome:
        with trio.CancelScope() as scope:
            self._scope = scope
            if self.begun:
                scope.deadline = self.until
            result = encode_value(await self.proceed(ctx))
            if len(result) > self.max_result:
                return Failed(INTERNAL_ERROR, f"the result is larger than {self.max_result} bytes")
            return Answered(msgspec.Raw(result))
        return Failed(INTERNAL_ERROR, TIME_OVER)

    # -- the link of its exchange

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        """Take the response of the call as the result of the task."""
        frame = decode(data)
        if isinstance(frame, Response | Error):
            self._finished(frame)

    def end(self) -> None:
        pass

    @property
    def full(self) -> bool:
        return False

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()

    def close_connection(self) -> None:
        pass

    def _finished(self, frame: Response | Error) -> None:
        if not self.begun:
            self.outcome = frame
            self.ready.set()
        elif isinstance(frame, Response):
            self._end({**self.summary(), "status": "completed", "result": frame.result})
        elif frame.message != Cause.DRAIN.value or not self.leave_to_others():
            self._end(failed(self.summary(), frame.code, frame.message, frame.data))

    def _lost(self) -> None:
        """Handle the end of the exchange. If the task has no outcome, its call crashed."""
        # Without reference cycles the task does not wait for the garbage collector.
        self.exchange.link = self.origin._session.link
        if self.exchange.outgoing is None:  # no handler is left that could ask
            del self.asks.run
        if not self.begun:
            if self.outcome is None:
                self.outcome = Error(self.origin.request_id, INTERNAL_ERROR, "the call failed")
            self.ready.set()
        elif self.final is None and self.exchange.ended is not Cause.DRAIN:
            self.fail("the task failed")
        elif self.final is None and not self.leave_to_others():
            self.fail(STOPPED)

    def _end(self, task: dict[str, Any]) -> None:
        if self.final is not None:
            return
        self.asks.pending.clear()
        self.updated = time.time()
        self.final = {**task, "lastUpdatedAt": iso(self.updated)}
        self._store(self.final)
        self.runtime.supervisor.nursery.start_soon(self._settle, name=f"task {self.task[:8]}")

    async def _settle(self) -> None:
        """Free its slot and show how it ended, once that is stored."""
        await self.runtime.store.flush()
        self.running.forget(self)
        if not self.lost:  # another worker reports how it goes on
            self.notify_listeners()

    def _store(self, task: dict[str, Any]) -> None:
        until = None
        if self.ttl is not None:
            left = self.until - trio.current_time()
            until = time.time() + (left if self.final is None else max(left, GRACE))
        note = self._note() if self.final is None else None
        StoredTask(owner=self.owner, scopes=self.scopes, until=until, task=task).put(
            self.runtime.store.tasks, self.exchange.owner, note
        )

    def _note(self) -> bytes:
        """Return what another worker needs to run the task again; empty if it may not."""
        origin, store = self.origin, self.runtime.store
        if not store.shared or not self.exchange.service.may_replay(origin._call.start):
            return b""
        return TaskNote.make(origin, self.created, self.exchange.owner, self.asks.answered)

    # -- on the wire

    @property
    def status(self) -> Status:
        return "input_required" if self.asks.pending else "working"

    def summary(self) -> dict[str, Any]:
        """Return the task on the wire without questions, result or error."""
        task: dict[str, Any] = {
            "taskId": self.task,
            "status": self.status,
            "createdAt": iso(self.created),
            "lastUpdatedAt": iso(self.updated),
            "ttlMs": None if self.ttl is None else milliseconds(self.ttl),
            "pollIntervalMs": milliseconds(self.poll),
        }
        if self.status_message is not None:
            task["statusMessage"] = self.status_message
        return task

    def view(self) -> dict[str, Any]:
        """Return the task as `tasks/get` shows it while it runs."""
        if not self.asks.pending:
            return self.summary()
        questions = {key: {"method": q.method, "params": q.params} for key, q in self.asks.pending.items()}
        return {**self.summary(), "inputRequests": questions}

    def notify_listeners(self) -> None:
        """Send its state on the listen streams."""
        self.runtime.bus.publish(topic(self.task), self.final if self.final is not None else self.view())

    def touch(self) -> None:
        """Note that its status, its message or its questions have changed."""
        if self.final is None and self.begun:
            self.updated = time.time()
            self.share()
            self.notify_listeners()

    def share(self) -> None:
        """Store its state for the other processes of a shared store: questions at once, messages now and then."""
        if self.final is not None or not self.runtime.store.shared:
            return
        questions, answers = tuple(self.asks.pending), len(self.origin._call.journal.answers)
        stored, *known = self._shared
        if [questions, answers] != known or self.updated > stored + self.poll / 2:
            self._shared = (self.updated, questions, answers)
            self._store(self.view())


def topic(task: str) -> str:
    return f"task {task}"
