"""The client's side of a task: look, answer what it asks, until it is over."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import trio
from attrs import define, field

from mcptrio._actors.extension import ClientPeer
from mcptrio._wire.converter import StructureError, structure
from mcptrio.errors import INTERNAL_ERROR, McpError, MCPTrioException, RemoteProtocolError
from mcptrio.extensions.tasks.shapes import Task

FASTEST: Final = 0.05
SLOWEST: Final = 60.0
USUAL: Final = 1.0


class TaskCancelled(MCPTrioException):
    """The task that was waited for was cancelled."""


@define(eq=False, repr=False)
class Watch:
    """Somebody who looks at a task now and then."""

    peer: ClientPeer
    task: str
    seen: Task | None = None
    """As it was when it was last looked at."""
    _answered: set[str] = field(factory=set)

    async def look(self) -> Task:
        """How it stands now."""
        self.seen = read_task(await self.peer.request("tasks/get", {"taskId": self.task}))
        return self.seen

    async def next(self) -> Task:
        """How it stands after the pause that the server wants. What it asks is answered with the client's callbacks."""
        if self.seen is not None:
            await trio.sleep(_pause(self.seen))
        seen = await self.look()
        if seen.status == "input_required":
            new = {key: asked for key, asked in (seen.input_requests or {}).items() if key not in self._answered}
            if new:
                answers = await self.peer.answer(new)
                await self.peer.request("tasks/update", {"taskId": self.task, "inputResponses": answers})
                self._answered.update(new)
        return seen

    async def result(self) -> dict[str, Any]:
        """Wait for the result.

        Raises:
            McpError: the call failed with it.
            TaskCancelled: somebody cancelled the task.
        """
        seen = self.seen
        while seen is None or not seen.over:
            seen = await self.next()
        if seen.status == "cancelled":
            raise TaskCancelled(seen.status_message or "the task was cancelled")
        if seen.status == "failed":
            error = seen.error or {}
            text = str(error.get("message", seen.status_message or "the task failed"))
            raise McpError(error.get("code", INTERNAL_ERROR), text, error.get("data"))
        return dict(seen.result or {})

    async def cancel(self) -> None:
        await self.peer.request("tasks/cancel", {"taskId": self.task})


async def follow_task(peer: ClientPeer, result: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for the task that a call was answered with, as if it were the call: whoever is cancelled cancels it.

    Raises:
        McpError, TaskCancelled
    """
    task = read_task(result)
    watch = Watch(peer, task.task_id, task)
    try:
        return await watch.result()
    except trio.Cancelled:
        with trio.move_on_after(1, shield=True), suppress(MCPTrioException):  # it is over, or the server is gone
            await watch.cancel()
        raise


def read_task(result: Mapping[str, Any]) -> Task:
    """A task from the wire.

    Raises:
        RemoteProtocolError: it is none.
    """
    try:
        return structure(result, Task, at="result")
    except StructureError as error:
        raise RemoteProtocolError(f"the task cannot be read: {error}") from error


def _pause(task: Task) -> float:
    seconds = USUAL if task.poll_interval_ms is None else task.poll_interval_ms / 1000
    return min(SLOWEST, max(FASTEST, seconds))
