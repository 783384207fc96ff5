"""The client's side of a task: look, answer what it asks, until it is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import trio

from mcptrio._actors.extension import ClientPeer
from mcptrio._wire.converter import StructureError, structure
from mcptrio.errors import INTERNAL_ERROR, McpError, MCPTrioException, RemoteProtocolError
from mcptrio.extensions.tasks.shapes import Task

FASTEST: Final = 0.05
SLOWEST: Final = 60.0
USUAL: Final = 1.0


class TaskCancelled(MCPTrioException):
    """The task that was waited for was cancelled."""


async def follow_task(
    peer: ClientPeer, task: str | Mapping[str, Any], *, cancel_on_cancel: bool = True
) -> dict[str, Any]:
    """Wait for the result of a task: its handle, or what the call was answered with.

    Questions are answered with the client's callbacks, each once. If the caller is cancelled, so is the task, unless
    `cancel_on_cancel` is False: then its handle can be followed again later.

    Raises:
        McpError: the call failed with it.
        TaskCancelled: somebody cancelled the task.
    """
    handle = task if isinstance(task, str) else _read(task).task_id
    pause = 0.0 if isinstance(task, str) else _pause(_read(task))
    answered: set[str] = set()
    try:
        while True:
            await trio.sleep(pause)
            seen = _read(await peer.request("tasks/get", {"taskId": handle}))
            match seen.status:
                case "completed":
                    return dict(seen.result or {})
                case "failed":
                    error = seen.error or {}
                    text = str(error.get("message", seen.status_message or "the task failed"))
                    raise McpError(error.get("code", INTERNAL_ERROR), text, error.get("data"))
                case "cancelled":
                    raise TaskCancelled(seen.status_message or "the task was cancelled")
                case "input_required":
                    new = {key: q for key, q in (seen.input_requests or {}).items() if key not in answered}
                    if new:
                        answers = await peer.answer(new)
                        await peer.request("tasks/update", {"taskId": handle, "inputResponses": answers})
                        answered.update(new)
            pause = _pause(seen)
    except trio.Cancelled:
        if cancel_on_cancel:
            with trio.move_on_after(1, shield=True):
                await _cancel(peer, handle)
        raise


async def _cancel(peer: ClientPeer, handle: str) -> None:
    try:
        await peer.request("tasks/cancel", {"taskId": handle})
    except MCPTrioException:
        return  # it is over, or the server is gone


def _pause(task: Task) -> float:
    seconds = USUAL if task.poll_interval_ms is None else task.poll_interval_ms / 1000
    return min(SLOWEST, max(FASTEST, seconds))


def _read(result: Mapping[str, Any]) -> Task:
    try:
        return structure(result, Task, at="result")
    except StructureError as error:
        raise RemoteProtocolError(f"the task cannot be read: {error}") from error
