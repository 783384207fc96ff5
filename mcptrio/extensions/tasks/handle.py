"""Tasks that are held: begun with one call, looked at and waited for with others, from another process if need be."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypeVar, Unpack, overload

import trio
from attrs import define, field

from mcptrio.client.asking import How
from mcptrio.client.client import Client
from mcptrio.extensions.client import Peer
from mcptrio.extensions.tasks.follow import Watch, read_task
from mcptrio.extensions.tasks.shapes import Task, iso
from mcptrio.types import CallToolResult

T = TypeVar("T")


@define(eq=False, repr=False)
class TaskHandle:
    """A call that works on by itself. `TaskHandle(client, id)` is one whose id was kept. Lent: the client.

    `async for task in handle` gives the task each time that its status or its message has changed, until it is over;
    what it asks meanwhile is answered with the client's callbacks, as in `result`. Nothing but `cancel` ends the task.
    """

    client: Client
    id: str
    """What to keep for another day; empty if the server answered at once, and there is no task."""
    tool: str = ""
    _result: dict[str, Any] | None = None
    _watch: Watch = field(init=False)
    _over: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._watch = Watch(Peer(self.client), self.id)

    async def status(self) -> Task:
        """How it stands now."""
        if self._result is None:
            return await self._watch.look()
        await trio.lowlevel.checkpoint()
        return self._at_once(self._result)

    @overload
    async def result(self) -> CallToolResult: ...
    @overload
    async def result(self, *, into: type[T]) -> T: ...
    async def result(self, *, into: Any = None) -> Any:
        """Wait for what the tool gives back; see `Client.call_tool`.

        Raises:
            McpError: the call failed with it, or the server knows no such task.
            TaskCancelled: somebody cancelled it.
        """
        if self._result is None:
            self._result = await self._watch.result()
        else:
            await trio.lowlevel.checkpoint()
        return self.client._tool_result(self.tool, self._result, into)

    async def cancel(self) -> None:
        """Ask the server to cancel it. One that is over stays as it is."""
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
    """Call a tool and do not wait for it: the handle of the task that it became.

    A server that answers at once (the tool is none that runs as a task) gives a handle whose result is there already.

    Args:
        client: One that knows tasks: `extended(connect(...), Tasks())`.
        name: Which tool.
        arguments: What with.
        how: See `Client.call_tool`.

    Raises:
        McpError: the server refused the call.
    """

    async def hold(method: str, result: dict[str, Any]) -> dict[str, Any]:
        read_task(result)
        return result

    raw = await client._call(name, arguments, {**how, "result_types": {"task": hold}})
    if raw.get("resultType") == "task":
        return TaskHandle(client, raw["taskId"], name)
    return TaskHandle(client, "", name, raw)
