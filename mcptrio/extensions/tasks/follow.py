"""Following a task from the client: poll it, answer its questions, until it is over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any, Final

import trio
from attrs import define, field

from mcptrio._actors.extension import ClientPeer
from mcptrio._wire.objects.converter import StructureError, structure
from mcptrio.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MCPError,
    MCPTrioError,
    Overloaded,
    RemoteProtocolError,
)
from mcptrio.extensions.tasks.types import TIME_OVER, Task

FASTEST: Final = 0.05
SLOWEST: Final = 60.0
USUAL: Final = 1.0
REFUSALS: Final = 20
"""Refusals in a row, each with the time to wait, after which a task is given up."""


class TaskCancelled(MCPTrioError):
    """A task was cancelled while its result was awaited."""


@define(eq=False, repr=False)
class Watch:
    """The polling of one task."""

    peer: ClientPeer
    task: str
    seen: Task | None = None
    """The task at the last poll."""
    _answered: set[str] = field(factory=set)
    """The keys of questions that are being answered, or were."""
    _until: float = inf
    """When its time to live is over at the latest, in Trio's time."""

    def __attrs_post_init__(self) -> None:
        if self.seen is not None:
            self._saw(self.seen)

    def _saw(self, task: Task) -> None:
        self.seen = task
        if task.ttl_ms is not None:
            self._until = min(self._until, trio.current_time() + task.ttl_ms / 1000)

    async def look(self) -> Task:
        """Poll the task once.

        Raises:
            MCPError: the server refused, or does not know the task.
        """
        try:
            found = read_task(await self._request("tasks/get"))
        except MCPError as error:
            if error.code == INVALID_PARAMS and trio.current_time() >= self._until:
                raise MCPError(error.code, TIME_OVER, error.data) from error
            raise
        self._saw(found)
        return found

    async def next(self) -> Task:
        """Poll the task after the interval that the server wants; answer its questions with the client's callbacks."""
        if self.seen is not None:
            await trio.sleep(_pause(self.seen))
        seen = await self.look()
        if seen.status == "input_required":
            await self._answer(seen)
        return seen

    async def _answer(self, seen: Task) -> None:
        new = {key: asked for key, asked in (seen.input_requests or {}).items() if key not in self._answered}
        if not new:
            return
        self._answered.update(new)  # first: another Trio task may poll meanwhile
        try:
            await self._request("tasks/update", inputResponses=await self.peer.answer(new))
        except BaseException:
            self._answered.difference_update(new)
            raise

    async def result(self) -> dict[str, Any]:
        """Wait for the result.

        Raises:
            MCPError: the call failed with it.
            TaskCancelled: the task was cancelled.
        """
        seen = self.seen
        while seen is None or not seen.over:
            seen = await self.next()
        if seen.status == "cancelled":
            raise TaskCancelled(seen.status_message or "the task was cancelled")
        if seen.status == "failed":
            error = seen.error or {}
            text = str(error.get("message", seen.status_message or "the task failed"))
            raise MCPError(error.get("code", INTERNAL_ERROR), text, error.get("data"))
        return dict(seen.result or {})

    async def cancel(self) -> None:
        """Cancel the task at the server."""
        await self._request("tasks/cancel")

    @asynccontextmanager
    async def cancelled_on_failure(self) -> AsyncIterator[None]:
        """Cancel the task if the block raises before it is over, because the handle was not given to the caller."""
        try:
            yield
        except BaseException:
            if self.seen is None or not self.seen.over:
                with trio.move_on_after(1, shield=True), suppress(MCPTrioError):  # the server may be gone
                    await self.cancel()
            raise

    async def _request(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request about the task; retry as the server says while it is overloaded."""
        refusals = 0
        while True:
            try:
                return await self.peer.request(method, {"taskId": self.task, **params})
            except (MCPError, Overloaded) as error:
                refusals += 1
                wait = _retry_after(error)
                if wait is None or refusals >= REFUSALS:
                    raise
            await trio.sleep(wait)


async def follow_task(peer: ClientPeer, result: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for the task that a call was answered with, as if it were the call. A caller that stops cancels the task.

    Raises:
        MCPError, TaskCancelled
    """
    task = read_task(result)
    watch = Watch(peer, task.task_id, task)
    async with watch.cancelled_on_failure():
        return await watch.result()


def read_task(result: Mapping[str, Any]) -> Task:
    """Read a task from the wire.

    Raises:
        RemoteProtocolError: it is not one.
    """
    try:
        return structure(result, Task, at="result")
    except StructureError as error:
        raise RemoteProtocolError(f"the task cannot be read: {error}") from error


def _pause(task: Task) -> float:
    seconds = USUAL if task.poll_interval_ms is None else task.poll_interval_ms / 1000
    return min(SLOWEST, max(FASTEST, seconds))


def _retry_after(error: MCPError | Overloaded) -> float | None:
    """Return the seconds to wait before a retry; None if the server did not suggest one."""
    if isinstance(error, Overloaded):
        wait: object = error.retry_after
    else:
        wait = error.data.get("retryAfter") if isinstance(error.data, Mapping) else None
    if isinstance(wait, bool) or not isinstance(wait, int | float):
        return None
    return min(SLOWEST, max(FASTEST, wait))
