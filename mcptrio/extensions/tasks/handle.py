"""Handles of tasks: begun with one call, polled and awaited with others, also from another process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypeVar, Unpack, overload

import trio
from attrs import define, field

from mcptrio.client.client import Client
from mcptrio.client.requester import How
from mcptrio.extensions.client import ExtensionPeer
from mcptrio.extensions.tasks.follow import Watch, read_task
from mcptrio.extensions.tasks.types import Task, iso
from mcptrio.types import CallToolResult

T = TypeVar("T")


@define(eq=False, repr=False)
class TaskHandle:
    """A task that runs at the server; `TaskHandle(client, id)` makes one from an id.   Borrows: the client.

    `async for task in handle` yields the task each time that its status or its message has changed, until it is over;
    its questions are answered with the client's callbacks, as in `result`. Only `cancel` ends the task.
    """

    client: Client
    id: str
    """The id of the task, for another client; empty if the server answered at once, without a task."""
    tool: str = ""
    _result: dict[str, Any] | None = None
    _watch: Watch = field(init=False)
    _over: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._watch = Watch(ExtensionPeer(self.client), self.id)

    async def status(self) -> Task:
        """Poll the task once."""
        if self._result is None:
            return await self._watch.look()
        await trio.lowlevel.checkpoint()
        return self._at_once(self._result)

    @overload
    async def result(self) -> CallToolResult: ...
    @overload
    async def result(self, *, into: type[T]) -> T: ...
    async def result(self, *, into: Any = None) -> Any:
        """Wait for the result of the tool; see `Client.call_tool`.

        Raises:
            MCPError: the call failed with it, or the server does not know the task.
            TaskCancelled: the task was cancelled.
        """
        if self._result is None:
            self._result = await self._watch.result()
        else:
            await trio.lowlevel.checkpoint()
        return await self.client._tool_result(self.tool, self._result, into)

    async def cancel(self) -> None:
        """Ask the server to cancel the task. A task that is over does not change."""
        if self.id:
            await self._watch.cancel()
        else:
            await trio.lowlevel.checkpoint()

    def __aiter__(self) -> TaskHandle:
        return self

    async def __anext__(self) -> Task:
        if self._over:
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        before = self._watch.seen
        seen = await self.status() if self._result is not None else await self._watch.next()
        while before is not None and _same(seen, before):
            seen = await self._watch.next()
        self._over = seen.over
        return seen

    def _at_once(self, result: dict[str, Any]) -> Task:
        if self._watch.seen is None:
            now = iso(time.time())
            self._watch.seen = Task(
                task_id=self.id, status="completed", created_at=now, last_updated_at=now, result=result
            )
        return self._watch.seen


def _same(one: Task, other: Task) -> bool:
    return not one.over and (one.status, one.status_message) == (other.status, other.status_message)


async def call_as_task(
    client: Client, name: str, arguments: Mapping[str, Any] | None = None, **how: Unpack[How]
) -> TaskHandle:
    """Call a tool and return the handle of the task that it became, without waiting for the result.

    If the tool does not run as a task, the server answers at once, and the handle has the result already. A caller
    that is cancelled before it has the handle cancels the task.

    Args:
        client: A client with the extension: `extended(connect(...), Tasks())`.
        name: The name of the tool.
        arguments: Its arguments.
        how: See `Client.call_tool`.

    Raises:
        MCPError: the server refused the call.
    """

    async def hold(method: str, result: dict[str, Any]) -> dict[str, Any]:
        watch = Watch(ExtensionPeer(client), read_task(result).task_id)
        async with watch.cancelled_on_failure():
            await trio.lowlevel.checkpoint_if_cancelled()
        return result

    raw = await client._call(name, arguments, {**how, "result_types": {"task": hold}})
    if raw.get("resultType") == "task":
        return TaskHandle(client, raw["taskId"], name)
    return TaskHandle(client, "", name, raw)
