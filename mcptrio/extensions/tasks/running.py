"""A task at work: the exchange of one call whose answer is kept instead of sent.

It is an `Exchange` like any request without a session: its handler runs under the supervisor, is guarded, drained, and
buried if it ignores a cancel. Three things are different. Its final frame becomes the outcome of the task. Questions
wait in a table that `tasks/get` shows and `tasks/update` answers. And it may begin its life as an ordinary call: until
`begin`, questions go to the request that it works for, which waits for it.
"""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager, nullcontext
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.call import Call
from mcptrio._actors.exchange import Exchange
from mcptrio._actors.extension import Proceed
from mcptrio._actors.journal import MISSING, Check
from mcptrio._actors.reply import Reply
from mcptrio._actors.router import failure
from mcptrio._peer.asks import usable_answers
from mcptrio._peer.effects import Send, Start
from mcptrio._peer.messages import Answered, Asked, Failed, Outcome, Received
from mcptrio._wire.jsonrpc import ErrorResponse, Notification, Request, Response, encode_value
from mcptrio._wire.request_state import digest
from mcptrio.errors import INTERNAL_ERROR, CapabilityMissing, LinkClosed, RequestTimeout
from mcptrio.extensions.tasks.shapes import Status, failed, iso, milliseconds
from mcptrio.server.context import Context
from mcptrio.stores.base import TaskStore

if TYPE_CHECKING:
    from mcptrio.extensions.tasks.extension import Tasks


class Nowhere:
    """The link of a task: there is nobody at its other end."""

    shared = False

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        pass

    def end(self) -> None:
        pass

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()


class TaskRun(Exchange, kw_only=True):
    """Lives until the call is done, cancelled, or past its time to live.

    Owns: the machine, the handler's task.   Lent: the supervisor's nursery, the request that it began as.
    """

    extension: Tasks
    task: str
    owner: str
    ttl: float | None
    poll: float
    origin: Context
    """The context of the request. Until the task has begun, the person is asked through it."""
    proceed: Proceed
    begun: bool = False
    outcome: Response | ErrorResponse | None = None
    """How a call ended that never became a task."""
    ready: trio.Event = field(default_factory=trio.Event)
    """The request can be answered: the task has begun, or the call is done."""
    pending: dict[str, Asked] = field(default_factory=dict)
    """Questions that wait for `tasks/update`."""
    status_message: str | None = None
    final: dict[str, Any] | None = None
    """The task on the wire once it is over; it is not shown before it is stored."""
    created: float = field(default_factory=time.time)
    updated: float = field(default_factory=time.time)
    until: float = inf
    """When it is no longer known, in Trio's time."""
    _request: int | str | None = None
    """The id that the call has here; the request that it works for may have been repeated under another."""
    _admitted: bool = False
    _asked: set[str] = field(default_factory=set)
    _life: trio.CancelScope | None = None

    # -- life

    def launch(self) -> None:
        """Start the handler."""
        start = self.origin._call.start
        kept = {key: value for key, value in start.params.items() if key not in ("requestState", "inputResponses")}
        # With a token of our own progress is always reported; it becomes the status message.
        params = {**kept, "_meta": {**self.origin.meta, "progressToken": self.task}}
        assert start.request_id is not None
        self._request = start.request_id
        self.on_end.append(self._lost)
        self._take(Received(Request(start.request_id, start.method, params), self.link, start.context))
        for call in self._running.values():
            call._journal = self.origin._call.journal
            call.patience = call.hard = call.scope.deadline = inf  # the time to live is the limit

    async def begin(self) -> None:
        """From here on it is a task: it is known to the store, and the request may be answered with its handle.

        Raises:
            Overloaded: too many tasks are at work.
        """
        if self._admitted:  # another task of the call was first
            await self.ready.wait()
            return
        self.extension.admit(self)
        self._admitted = True
        self.created = self.updated = time.time()
        self.until = inf if self.ttl is None else trio.current_time() + self.ttl
        try:
            self._store(self.head())
            await self.runtime.store.flush()  # the handle must not be sent before tasks/get would find the task
        except BaseException:
            self._admitted = False
            self.extension.forget(self)
            self.runtime.store.tasks.drop(self.task)
            raise
        self.begun = True
        if self._life is not None:
            self._life.deadline = self.until
        self.ready.set()

    def cancel(self) -> None:
        """The client does not want it any more."""
        if self.final is None:
            self._end({**self.head(), "status": "cancelled"})
            self.stop()

    def stop(self) -> None:
        """End the handler; nobody waits for what it would give."""
        self._take(Received(Notification("notifications/cancelled", {"requestId": self._request}), self.link))

    async def wait_until_quiet(self) -> None:
        while self.peer.calls and self.ended is None and not self.pending:
            await self._watch()

    async def _run(self, call: Call, start: Start) -> Outcome:
        scope: AbstractAsyncContextManager[Any] | None = self.service.request_scope(self, call)
        try:
            async with scope if scope is not None else nullcontext() as call.state:
                ctx = self.service.make_context(self, call)
                ctx.data.update(self.origin.data)
                return await self._proceed(ctx)
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - the call guard
            return failure(error, start.method)

    async def _proceed(self, ctx: Context) -> Outcome:
        with trio.CancelScope() as life:
            self._life = life
            if self.begun:
                life.deadline = self.until
            result = encode_value(await self.proceed(ctx))
            if len(result) > self.extension.max_result:
                return Failed(INTERNAL_ERROR, f"the result is larger than {self.extension.max_result} bytes")
            return Answered(msgspec.Raw(result))
        return Failed(INTERNAL_ERROR, "the task's time to live is over")

    def _send(self, effect: Send) -> None:
        frame = effect.frame
        if isinstance(frame, Response | ErrorResponse):
            self._finished(frame)

    def _finished(self, frame: Response | ErrorResponse) -> None:
        if not self.begun:
            self.outcome = frame
            self.ready.set()
        elif isinstance(frame, Response):
            result = msgspec.json.decode(frame.result) if isinstance(frame.result, msgspec.Raw) else frame.result
            self._end({**self.head(), "status": "completed", "result": result})
        else:
            self._end(failed(self.head(), frame.code, frame.message, frame.data))

    def _lost(self) -> None:
        """The exchange is over. If nothing has said how the task ended, it crashed."""
        if not self.begun:
            if self.outcome is None:
                self.outcome = ErrorResponse(self.origin.request_id, INTERNAL_ERROR, "the call failed")
            self.ready.set()
        elif self.final is None:
            self._end(failed(self.head(), INTERNAL_ERROR, "the task failed"))

    def _end(self, task: dict[str, Any]) -> None:
        if self.final is not None:
            return
        self.pending.clear()
        self.updated = time.time()
        self.final = {**task, "lastUpdatedAt": iso(self.updated)}
        self._store(self.final)
        self.runtime.supervisor.nursery.start_soon(self._settle, name=f"task {self.task[:8]}")

    async def _settle(self) -> None:
        """Let everybody see how it ended, once that is stored."""
        await self.runtime.store.flush()
        self.extension.forget(self)
        self.tell()

    def _store(self, task: dict[str, Any]) -> None:
        ttl = None if self.ttl is None else self.until - trio.current_time()
        keep_task(self.runtime.store.tasks, self.owner, task, ttl)

    # -- what is seen of it

    @property
    def status(self) -> Status:
        return "input_required" if self.pending else "working"

    def head(self) -> dict[str, Any]:
        """The task on the wire, without what its status brings along."""
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
        """The task as `tasks/get` shows it while it is at work."""
        if not self.pending:
            return self.head()
        questions = {key: {"method": asked.method, "params": asked.params} for key, asked in self.pending.items()}
        return {**self.head(), "inputRequests": questions}

    def tell(self) -> None:
        """Tell listen streams how it stands."""
        self.runtime.bus.publish(topic(self.task), self.final if self.final is not None else self.view())

    def _touch(self) -> None:
        if self.final is None and self.begun:
            self.updated = time.time()
            self.tell()

    # -- asking

    def update(self, answers: Any) -> None:
        """Take answers. What is extra is ignored, what cannot be used goes on waiting."""
        usable = usable_answers(self.pending, answers)
        for key, answer in usable.items():
            self.pending.pop(key).reply.settle(answer)
        if usable:
            self._touch()

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        *,
        call: Call | None = None,
        timeout: float | None = None,
        reply: Reply | None = None,
        key: str | None = None,
        check: Check | None = None,
    ) -> Any:
        if call is None:
            raise LinkClosed(f"{method}: a task can only ask for its own call")
        if not self.begun:
            origin = self.origin
            return await origin._session.ask(method, params, call=origin._call, timeout=timeout, key=key, check=check)
        encode_value(params)
        self._check_capability(call.start, method, params)
        question = digest([method, params])
        key = key or call.journal.key_for(question)
        known = call.journal.look_up(key, question, check)
        if known is not MISSING:
            return known
        asked = Asked(call.start.call, method, params, Reply(), False, self._new_key(key), check)
        answer = await self._wait_for_answer(call, asked, inf if timeout is None else timeout)
        call.journal.record(key, question, answer)
        return answer

    async def _wait_for_answer(self, call: Call, asked: Asked, timeout: float) -> Any:
        method, key = asked.method, asked.key
        hub, began, outcome = self.service.telemetry, trio.current_time(), "cancelled"
        if hub:
            hub.emit(telemetry.AskSent(session=self.id, method=method))
        self.pending[key] = asked
        call.pause()
        self._touch()
        try:
            with trio.move_on_after(timeout):
                answer = await asked.reply.wait()
                outcome = "ok"
                return answer
            outcome = "timeout"
            raise RequestTimeout(f"{method} was not answered in time")
        finally:
            if self.pending.pop(key, None) is not None:
                self._touch()
            call.resume()
            if hub:
                seconds = trio.current_time() - began
                hub.emit(telemetry.AskEnded(session=self.id, method=method, outcome=outcome, seconds=seconds))

    def _check_capability(self, start: Start, method: str, params: dict[str, Any]) -> None:
        missing = start.era.missing(start.capabilities or {}, method, params)
        if missing is not None:
            wanted = msgspec.json.encode(missing).decode()
            raise CapabilityMissing(
                f"{method} needs a capability that the client did not declare: {wanted}", required=missing
            )

    def _new_key(self, key: str) -> str:
        """SEP-2663: a key MUST NOT stand for two questions in the life of a task."""
        unique, number = key, 1
        while unique in self._asked:
            number += 1
            unique = f"{key}-{number}"
        self._asked.add(unique)
        return unique

    # -- telling: SEP-2663 has no progress or log messages of tasks; progress becomes the status message

    async def notify(self, method: str, params: dict[str, Any], *, call: Call | None = None) -> None:
        if not self.begun:
            await self._notify_origin(method, params)
            return
        self.notify_nowait(method, params, call=call)
        await trio.lowlevel.checkpoint()

    async def _notify_origin(self, method: str, params: dict[str, Any]) -> None:
        origin = self.origin
        if method == "notifications/progress":
            origin._call.extend()
            token = origin._call.start.progress_token
            if token is None:
                await trio.lowlevel.checkpoint()
                return
            params = {**params, "progressToken": token}
        await origin._session.notify(method, params, call=origin._call)

    def notify_nowait(self, method: str, params: dict[str, Any], *, call: Call | None = None) -> None:
        if method == "notifications/progress":
            done, total = params["progress"], params.get("total")
            numbers = f"{done:g}" if total is None else f"{done:g} of {total:g}"
            message = params.get("message")
            self.status_message = numbers if message is None else f"{message} ({numbers})"
            self._touch()


def keep_task(tasks: TaskStore, owner: str, task: dict[str, Any], ttl: float | None) -> None:
    """Store a task as it is on the wire, for so many seconds; who may see it, and until when, is kept beside it."""
    until = None if ttl is None else time.time() + ttl
    tasks.put(task["taskId"], msgspec.json.encode({"owner": owner, "until": until, "task": task}), ttl)


def topic(task: str) -> str:
    return f"task {task}"


async def begin_task(ctx: Context) -> None:
    """Answer the request of a tool declared with `task="later"` now, and go on as a task.

    What was asked before was asked in the request itself; from here on it is asked through the task. Elsewhere (a tool
    that is a task already, a plain call) nothing happens.
    """
    run = ctx._session
    if isinstance(run, TaskRun):
        await run.begin()
    else:
        await trio.lowlevel.checkpoint()
