"""The tasks extension of a server and of a client."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import trio
from attrs import define, field
from msgspec.structs import replace

from mcptrio._actors.extension import (
    Around,
    ClientPeer,
    CompleteResult,
    Extension,
    Heard,
    Notify,
    Proceed,
    declared,
    require,
)
from mcptrio._actors.router import Route
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.shares import Owners, Shares
from mcptrio._settings import check_fields
from mcptrio._wire.jsonrpc import Error
from mcptrio._wire.sized import size_of
from mcptrio.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    DeclarationError,
    MCPError,
    Overloaded,
    RemoteProtocolError,
)
from mcptrio.extensions.tasks.follow import follow_task
from mcptrio.extensions.tasks.note import EARLIER
from mcptrio.extensions.tasks.run import TaskRun, topic
from mcptrio.extensions.tasks.running import RunningTasks, StoredTask
from mcptrio.extensions.tasks.takeover import Takeover
from mcptrio.extensions.tasks.types import (
    IDENTIFIER,
    NOTIFICATION,
    TERMINAL,
    GetTaskParams,
    UpdateTaskParams,
)
from mcptrio.server.context import Context
from mcptrio.server.features.scopes import require_scopes
from mcptrio.server.features.tool_declaration import ToolEntry

if TYPE_CHECKING:
    from mcptrio.auth.server.principal import Principal

UNKNOWN: Final = "there is no such task; its time to live may be over"
MAX_LISTENED: Final = 1000


@define(eq=False, repr=False, kw_only=True)
class Tasks(Extension):
    """Tools that run as tasks. One instance serves one server."""

    identifier: ClassVar[str] = IDENTIFIER
    tool_options: ClassVar[frozenset[str]] = frozenset({"task"})

    ttl: float | None = 3600.0
    """Seconds from its creation for which a task is known; one that still runs then is ended. None: no limit."""
    poll: float = 1.0
    """Seconds between two polls of a client; raise it for work that takes hours."""
    max_running: int = 1000
    """Maximum running tasks; further calls wait for `Limits.busy_timeout` and then get an overload error. One client
    gets at most three quarters of them, because tasks may run for hours."""
    max_result: int = 4 * 2**20
    """Maximum size of a result in bytes; a task with a larger one fails."""
    _running: dict[Runtime, RunningTasks] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        check_fields(self, positive=("ttl", "poll", "max_running", "max_result"))

    # -- declared to the server

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        running = self._running[runtime] = RunningTasks(Shares(self.max_running, owners=Owners(several=True)))
        runtime.store.tasks.when_lost(running.lose)
        runtime.takeovers.append(Takeover(runtime).take_all)

        def detach() -> None:
            running.end_all()
            del self._running[runtime]

        return detach

    def routes(self) -> Iterable[Route]:
        return (
            Route("tasks/get", GetTaskParams, self.get),
            Route("tasks/update", UpdateTaskParams, self.update, home=self._home),
            Route("tasks/cancel", GetTaskParams, self.cancel, home=self._home),
        )

    def tool(self, entry: ToolEntry, option: str, value: Any) -> ToolEntry:
        ways: Mapping[Any, Around | None] = {
            False: None,
            True: partial(self._at_once, entry),
            "auto": partial(self._if_known, entry),
            "later": partial(self._when_it_says, entry),
        }
        if not isinstance(value, bool | str) or value not in ways:
            raise DeclarationError(f'tool {entry.name!r}: task= is True, False, "auto" or "later", not {value!r}')
        return replace(entry, around=ways[value])

    # -- tools/call

    async def _at_once(self, entry: ToolEntry, ctx: Context, proceed: Proceed) -> Any:
        run = self._new(entry, ctx, proceed)
        try:
            await run.begin()
        except BaseException:
            run.discard()
            raise
        run.launch()
        return {"resultType": "task", **run.summary()}

    async def _if_known(self, entry: ToolEntry, ctx: Context, proceed: Proceed) -> Any:
        return await (self._at_once(entry, ctx, proceed) if knows_tasks(ctx) else proceed(ctx))

    async def _when_it_says(self, entry: ToolEntry, ctx: Context, proceed: Proceed) -> Any:
        run = self._new(entry, ctx, proceed)
        if entry.timeout is not None:
            ctx._call.limit(entry.timeout)
        run.launch()
        try:
            await run.ready.wait()
        finally:
            if not run.begun and run.exchange.ended is None:
                run.stop()
        if run.begun:
            return {"resultType": "task", **run.summary()}
        if isinstance(run.outcome, Error):
            raise MCPError(run.outcome.code, run.outcome.message, run.outcome.data)
        if run.outcome is None:
            raise MCPError(INTERNAL_ERROR, "the call failed")
        return run.outcome.result

    def _new(self, entry: ToolEntry, ctx: Context, proceed: Proceed) -> TaskRun:
        if not knows_tasks(ctx):
            require({}, IDENTIFIER, "this tool")
        earlier = ctx._session.data.get(EARLIER)
        if earlier is not None:
            ctx._call.use(earlier.journal)
        return TaskRun(
            running=self._running[ctx._session.runtime],
            task=secrets.token_urlsafe(24) if earlier is None else earlier.task,  # 192 bits: the id grants access
            earlier=earlier,
            owner=owner_of(ctx._session.principal),
            scopes=entry.scopes,
            ttl=self.ttl,
            poll=self.poll,
            max_result=self.max_result,
            origin=ctx,
            proceed=proceed,
        )

    def _run_of(self, ctx: Context, task: str) -> TaskRun | None:
        return self._running[ctx._session.runtime].get(task)

    async def _home(self, runtime: Runtime, params: Mapping[str, Any]) -> str | None:
        """Return the other worker that runs the task of a request."""
        task = params.get("taskId")
        if type(task) is not str or self._running[runtime].get(task) is not None:
            return None
        return await runtime.store.tasks.home(task)

    # -- tasks/*

    async def get(self, ctx: Context, params: GetTaskParams) -> Any:
        self._check(ctx)
        return await self._find(ctx, params.task_id)

    async def update(self, ctx: Context, params: UpdateTaskParams) -> Any:
        self._check(ctx)
        run = await self._find_run(ctx, params.task_id)
        if run is not None:
            run.asks.update(params.input_responses, size_of(ctx._call.start.params))
        return {}

    async def cancel(self, ctx: Context, params: GetTaskParams) -> Any:
        self._check(ctx)
        run = await self._find_run(ctx, params.task_id)
        if run is not None:
            run.cancel()
        return {}

    async def _find_run(self, ctx: Context, task: str) -> TaskRun | None:
        """Return a task that runs here; None if it is over, or another worker has answered the request.

        Raises:
            MCPError: there is no such task.
            Overloaded: it runs in another process, which cannot be asked.
        """
        found = await self._find(ctx, task)
        run = self._run_of(ctx, task)
        if run is None and found["status"] not in TERMINAL:
            # Requests over HTTP are routed before; one over a WebSocket is here because its socket is.
            runtime = ctx._session.runtime
            worker = await runtime.store.tasks.home(task)
            if worker is None or runtime.forward is None:
                raise Overloaded("the task runs in another process of this server; repeat the request", limit="store")
            await runtime.forward(worker, ctx._call.start)
        return run

    def _check(self, ctx: Context) -> None:
        if ctx._call.start.era.stateful:
            raise MCPError(METHOD_NOT_FOUND, f"method not found: {ctx.method!r}")
        require(ctx._declared, IDENTIFIER, ctx.method)

    async def _find(self, ctx: Context, task: str) -> dict[str, Any]:
        """Return the task as the caller may see it. A task of another principal is unknown to the caller.

        Raises:
            MCPError: there is no such task.
            RemoteProtocolError: the caller lacks a scope of the tool.
        """
        found = await self._look_up(ctx, task)
        if found is None:
            raise MCPError(INVALID_PARAMS, UNKNOWN)
        return found

    async def _look_up(self, ctx: Context, task: str) -> dict[str, Any] | None:
        owner = owner_of(ctx.principal)
        run = self._run_of(ctx, task)
        if run is not None and run.begun:
            await trio.lowlevel.checkpoint()
            if not _same(run.owner, owner):
                return None
            require_scopes(ctx, run.scopes)
            run.expire()
            return run.view()
        stored = await self._read(ctx, task)
        if stored is None or not _same(stored.owner, owner):
            return None
        require_scopes(ctx, stored.scopes)
        if stored.task["status"] not in TERMINAL:  # the process that ran it may have been killed
            await Takeover(ctx._session.runtime).take(task)
            stored = await self._read(ctx, task)
        return None if stored is None else stored.task

    async def _read(self, ctx: Context, task: str) -> StoredTask | None:
        record = await ctx._session.runtime.store.tasks.get(task)
        return None if record is None else StoredTask.read(record)

    # -- subscriptions/listen

    async def listen(self, ctx: Context, wanted: Mapping[str, Any]) -> Heard | None:
        ids = wanted.get("taskIds")
        if ids is None:
            return None
        require(ctx._declared, IDENTIFIER, "listening to tasks")
        if not isinstance(ids, list) or len(ids) > MAX_LISTENED or not all(isinstance(task, str) for task in ids):
            fault = f"params.notifications.taskIds: expected an array of at most {MAX_LISTENED} strings"
            raise MCPError(INVALID_PARAMS, fault)
        found = {task: seen for task in dict.fromkeys(ids) if (seen := await self._look_up(ctx, task)) is not None}
        bus = ctx._session.runtime.bus

        def begin(notify: Notify) -> Callable[[], None]:
            handle = bus.subscribe([topic(task) for task in found], lambda _topic, task: notify(NOTIFICATION, task))
            for task, seen in found.items():  # the present state of each, so that no change is missed in between
                run = self._run_of(ctx, task)
                notify(NOTIFICATION, seen if run is None else run.view())
            return handle.close

        return Heard(honoured={"taskIds": list(found)}, begin=begin)

    # -- in a client

    def results(self, peer: ClientPeer) -> Mapping[str, CompleteResult]:
        async def complete(method: str, result: dict[str, Any]) -> dict[str, Any]:
            if method != "tools/call":
                # SEP-2663: a task in answer to any other request MUST be treated as an invalid response
                raise RemoteProtocolError(f"{method} was answered with a task")
            return await follow_task(peer, result)

        return {"task": complete}


def knows_tasks(ctx: Context) -> bool:
    """Return whether this request may be answered with a task. Older revisions have no results of other types."""
    return not ctx._call.start.era.stateful and declared(ctx._declared, IDENTIFIER) is not None


def owner_of(principal: Principal | None) -> str:
    return "" if principal is None else str(principal.key)


def _same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(), other.encode())
