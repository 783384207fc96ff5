"""The types of the tasks extension (SEP-2663): parameters, and a task on the wire."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, Literal

from attrs import frozen

from mcptrio.types import JsonObject, Params, Result

IDENTIFIER: Final = "io.modelcontextprotocol/tasks"
NOTIFICATION: Final = "notifications/tasks"

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
TIME_OVER: Final = "the task's time to live is over"


@frozen(kw_only=True)
class GetTaskParams(Params):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


CancelTaskParams = GetTaskParams


@frozen(kw_only=True)
class UpdateTaskParams(Params):
    """The parameters of `tasks/update`: answers to questions of a task."""

    task_id: str
    input_responses: Mapping[str, JsonObject]


@frozen(kw_only=True)
class Task(Result):
    """A task on the wire: the answer to a call, or the result of `tasks/get` with its questions, result or error."""

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None
    status_message: str | None = None
    input_requests: Mapping[str, JsonObject] | None = None
    result: JsonObject | None = None
    error: JsonObject | None = None

    @property
    def over(self) -> bool:
        return self.status in TERMINAL


def iso(moment: float) -> str:
    """Format a wall-clock time in ISO 8601, in UTC with milliseconds."""
    whole, milliseconds = divmod(round(moment * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{milliseconds:03d}Z"


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def failed(task: Mapping[str, Any], code: int, message: str, data: Any = None) -> dict[str, Any]:
    """Return a task on the wire that a protocol error has ended."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    kept = {key: value for key, value in task.items() if key not in ("inputRequests", "result")}
    return {**kept, "status": "failed", "statusMessage": message, "lastUpdatedAt": iso(time.time()), "error": error}
