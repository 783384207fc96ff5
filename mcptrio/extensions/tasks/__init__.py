"""Tasks (`io.modelcontextprotocol/tasks`): a call of a tool is answered with a handle, and its result is fetched later.

    @server.tool(task="auto")          # a task where the client knows tasks, a plain call elsewhere
    async def render(scene: str, ctx: Context) -> str:
        answer = await ctx.elicit("Which size?", Size)      # asked through the task
        ...

`task=True` refuses clients that do not know tasks. With `task="later"` the call is an ordinary one (it may ask) until
the function says `await begin_task(ctx)`: then the client gets the handle, and the function goes on where it is.
`server.add_extension(Tasks(ttl=600))` sets how long tasks live, and their bounds.

For clients: `async with extended(connect(url), Tasks()) as client` (`mcptrio.extensions.client`); a call that became a
task then looks like any other. `call_as_task` gives its handle instead of waiting.
"""

from typing import TYPE_CHECKING, Any

from mcptrio.extensions.tasks.extension import Tasks
from mcptrio.extensions.tasks.follow import TaskCancelled
from mcptrio.extensions.tasks.running import begin_task
from mcptrio.extensions.tasks.shapes import IDENTIFIER, CancelTaskParams, GetTaskParams, Task, UpdateTaskParams

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
    """What only clients need is imported when it is first used: a server does not pay for it."""
    if name not in ("TaskHandle", "call_as_task"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mcptrio.extensions.tasks import handle

    value = globals()[name] = getattr(handle, name)
    return value
