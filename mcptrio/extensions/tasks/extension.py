"""The tasks extension of a server and of a client."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
import trio
from attrs import define, field
from msgspec.structs import replace

from mcptrio._actors.extension import (
    Around,
    ClientPeer,
    CompleteResult,
    Extension,
    Heard,
    Proceed,
    Tell,
    declared,
    require,
)
from mcptrio._actors.router import Route
from mcptrio._peer.messages import Cause
from mcptrio._wire.jsonrpc import ErrorResponse
from mcptrio.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    DeclarationError,
    McpError,
    Overloaded,
    RemoteProtocolError,
)
from mcptrio.extensions.tasks.follow import follow_task
from mcptrio.extensions.tasks.running import Nowhere, TaskRun, keep_task, topic
from mcptrio.extensions.tasks.shapes import (
    IDENTIFIER,
    NOTIFICATION,
    TERMINAL,
    GetTaskParams,
    UpdateTaskParams,
    failed,
)
from mcptrio.server.context import Context
from mcptrio.server.features.tools import ToolEntry

UNKNOWN: Final = "there is no such task; it may have expired"
RESTARTED: Final = "the server was restarted while the task was at work"
MAX_LISTENED: Final = 1000


@define(eq=False, repr=False, kw_only=True)
class Tasks(Extension):
    """Tools that run as tasks. One instance serves one server."""

    identifier: ClassVar[str] = IDENTIFIER
    tool_options: ClassVar[frozenset[str]] = frozenset({"task"})

    ttl: float | None = 3600.0
    """Seconds from its creation for which a task is known; one that still works then is ended. None: no limit."""
    poll: float = 1.0
    """Seconds between two looks that clients are asked to keep; raise it for work of hours."""
    max_running: int = 1000
    """Tasks at work at the same time; further calls are answered that the server is overloaded."""
    max_result: int = 4 * 2**20
    """The largest result, in bytes; a task with a larger one fails."""
    _live: dict[str, TaskRun] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for name in ("ttl", "poll", "max_running", "max_result"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise DeclarationError(f"Tasks.{name} must be more than 0, not {value!r}")

    # -- what the server needs to know

    def routes(self) -> Iterable[Route]:
        return (
            Route("tasks/get", GetTaskParams, self.get),
            Route("tasks/update", UpdateTaskParams, self.update),
            Route("tasks/cancel", GetTaskParams, self.cancel),
        )

    def tool(self, entry: ToolEntry, option: str, value: Any) -> ToolEntry:
        ways: Mapping[Any, Around | None] = {
            False: None,
            True: self._at_once,
            "auto": self._if_known,
            "later": partial(self._when_it_says, entry.timeout),
        }
        if not isinstance(value, bool | str) or value not in ways:
            raise DeclarationError(f'tool {entry.name!r}: task= is True, False, "auto" or "later", not {value!r}')
        return replace(entry, around=ways[value])

    # -- tools/call

    async def _at_once(self, ctx: Context, proceed: Proceed) -> Any:
        run = self._new(ctx, proceed)
        try:
            await run.begin()
        except BaseException:
            run.close_nowait(Cause.SESSION_END)
            raise
        run.launch()
        return {"resultType": "task", **run.head()}

    async def _if_known(self, ctx: Context, proceed: Proceed) -> Any:
        return await (self._at_once(ctx, proceed) if knows_tasks(ctx) else proceed(ctx))

    async def _when_it_says(self, timeout: float | None, ctx: Context, proceed: Proceed) -> Any:
        run = self._new(ctx, proceed)
        if timeout is not None:
            ctx._call.limit(timeout)
        run.launch()
        try:
            await run.ready.wait()
        finally:
            if not run.begun and run.ended is None:
                run.stop()
        if run.begun:
            return {"resultType": "task", **run.head()}
        if isinstance(run.outcome, ErrorResponse):
            raise McpError(run.outcome.code, run.outcome.message, run.outcome.data)
        assert run.outcome is not None
        return msgspec.json.decode(run.outcome.result)

    def _new(self, ctx: Context, proceed: Proceed) -> TaskRun:
        if not knows_tasks(ctx):
            require({}, IDENTIFIER, "this tool")
        session = ctx._session
        return TaskRun(
            id="task",
            service=session.service,
            link=Nowhere(),
            transport=session.transport,
            runtime=session.runtime,
            principal=session.principal,
            extension=self,
            task=secrets.token_urlsafe(24),  # 192 bits: who has it may look
            owner=owner_of(session.principal),
            ttl=self.ttl,
            poll=self.poll,
            origin=ctx,
            proceed=proceed,
        )

    def admit(self, run: TaskRun) -> None:
        if len(self._live) >= self.max_running:
            raise Overloaded("too many tasks are at work", retry_after=10)
        self._live[run.task] = run

    def forget(self, run: TaskRun) -> None:
        self._live.pop(run.task, None)

    # -- tasks/*

    async def get(self, ctx: Context, params: GetTaskParams) -> Any:
        self._check(ctx)
        return await self._find(ctx, params.task_id)

    async def update(self, ctx: Context, params: UpdateTaskParams) -> Any:
        self._check(ctx)
        await self._find(ctx, params.task_id)
        run = self._live.get(params.task_id)
        if run is not None:
            run.update(dict(params.input_responses))
        return {}

    async def cancel(self, ctx: Context, params: GetTaskParams) -> Any:
        self._check(ctx)
        await self._find(ctx, params.task_id)
        run = self._live.get(params.task_id)
        if run is not None:
            run.cancel()
        return {}

    def _check(self, ctx: Context) -> None:
        if ctx._call.start.era.stateful:
            raise McpError(METHOD_NOT_FOUND, f"method not found: {ctx.method!r}")
        require(ctx._declared, IDENTIFIER, ctx.method)

    async def _find(self, ctx: Context, task: str) -> dict[str, Any]:
        """The task as the caller may see it. One of somebody else is as unknown as one that never was.

        Raises:
            McpError: there is no such task.
        """
        found = await self._look_up(ctx, task)
        if found is None:
            raise McpError(INVALID_PARAMS, UNKNOWN)
        return found

    async def _look_up(self, ctx: Context, task: str) -> dict[str, Any] | None:
        owner = owner_of(ctx.principal)
        run = self._live.get(task)
        if run is not None:
            await trio.lowlevel.checkpoint()
            mine = run.begun and _same(run.owner, owner) and run.until > trio.current_time()
            return run.view() if mine else None
        store = ctx._session.runtime.store.tasks
        kept = await store.get(task)
        record = None if kept is None else msgspec.json.decode(kept)
        if record is None or not _same(record["owner"], owner):
            return None
        found: dict[str, Any] = record["task"]
        if found["status"] not in TERMINAL:  # nobody works on it any more
            found = failed(found, INTERNAL_ERROR, RESTARTED)
            keep_task(store, owner, found, None if record["until"] is None else record["until"] - time.time())
        return found

    # -- subscriptions/listen

    async def listen(self, ctx: Context, wanted: Mapping[str, Any]) -> Heard | None:
        ids = wanted.get("taskIds")
        if ids is None:
            return None
        require(ctx._declared, IDENTIFIER, "listening to tasks")
        if not isinstance(ids, list) or len(ids) > MAX_LISTENED or not all(isinstance(task, str) for task in ids):
            fault = f"params.notifications.taskIds: expected an array of at most {MAX_LISTENED} strings"
            raise McpError(INVALID_PARAMS, fault)
        found = {task: seen for task in dict.fromkeys(ids) if (seen := await self._look_up(ctx, task)) is not None}
        bus = ctx._session.runtime.bus

        def begin(tell: Tell) -> Callable[[], None]:
            handle = bus.subscribe([topic(task) for task in found], lambda _topic, task: tell(NOTIFICATION, task))
            for task, seen in found.items():  # how each stands now: nothing can be missed in between
                run = self._live.get(task)
                tell(NOTIFICATION, seen if run is None else run.view())
            close: Callable[[], None] = handle.close
            return close

        return Heard(honoured={"taskIds": list(found)}, begin=begin)

    # -- as a client's

    def results(self, peer: ClientPeer) -> Mapping[str, CompleteResult]:
        async def complete(method: str, result: dict[str, Any]) -> dict[str, Any]:
            if method != "tools/call":
                # SEP-2663: a task in answer to any other request MUST be taken for an invalid response
                raise RemoteProtocolError(f"{method} was answered with a task")
            return await follow_task(peer, result)

        return {"task": complete}


def knows_tasks(ctx: Context) -> bool:
    """Whether this request may be answered with a task. Before 2026-07-28 there are no results of other types."""
    return not ctx._call.start.era.stateful and declared(ctx._declared, IDENTIFIER) is not None


def owner_of(principal: Any) -> str:
    return "" if principal is None else str(getattr(principal, "key", principal))


def _same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(), other.encode())
