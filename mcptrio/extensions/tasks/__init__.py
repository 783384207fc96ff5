"""Tasks (`io.modelcontextprotocol/tasks`): a call of a tool is answered with a handle, and its result is fetched later.

    @server.tool(task="auto")          # a task if the client supports tasks, otherwise a plain call
    async def render(scene: str, ctx: Context) -> str:
        answer = await ctx.elicit("Which size?", Size)      # asked through the task
        ...

`task=True` refuses clients without support for tasks. With `task="later"` the call is an ordinary one (it may ask)
until the function calls `await begin_task(ctx)`: then the client gets the handle, and the function continues.
`server.add_extension(Tasks(ttl=600))` sets the lifetime of tasks, and their limits.

For clients: `async with extended(connect(url), Tasks()) as client` (`mcptrio.extensions.client`); a call that became a
task then looks like any other. `call_as_task` returns its handle instead of waiting.
"""

from typing import TYPE_CHECKING, Any

from mcptrio.extensions.tasks.asks import begin_task
from mcptrio.extensions.tasks.extension import Tasks
from mcptrio.extensions.tasks.follow import TaskCancelled
from mcptrio.extensions.tasks.types import IDENTIFIER, CancelTaskParams, GetTaskParams, Task, UpdateTaskParams

if TYPE_CHECKING:
    from mcptrio.extensions.tasks.handle import TaskHandle, call_as_task

__all__ = [
    "IDENTIFIER",
    "CancelTaskParams",
    "GetTaskParams",
    "Task",
    "TaskCancelled",
    "TaskHandle",
    "Tasks",
    "UpdateTaskParams",
    "begin_task",
    "call_as_task",
]


def __getattr__(name: str) -> Any:
    """Import the names that only clients need on first use, so that a server starts faster."""
    if name not in ("TaskHandle", "call_as_task"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mcptrio.extensions.tasks import handle

    value = globals()[name] = getattr(handle, name)
    return value
