"""Calling tools that run as tasks. `target` is anything that `connect` takes."""

from __future__ import annotations

from typing import Any

from mcptrio import connect
from mcptrio.extensions.client import extended
from mcptrio.extensions.tasks import TaskHandle, Tasks, call_as_task


async def show_form(params: Any) -> dict[str, Any]:
    """A stand-in for a form on a screen."""
    return {"agreed": True, "pages": 2}


async def wait(target: Any) -> str:
    """A call that became a task looks like any other: it is followed, and its questions are answered."""
    async with extended(connect(target, elicit=show_form), Tasks()) as client:
        survey = await client.call_tool("survey", {"village": "Ely"}, into=dict)
        result = await client.call_tool("publish", {"village": "Ely"})
        return f"{survey['people']}: {result.text}"


async def begin(target: Any) -> str:
    """Take the handle and leave."""
    async with extended(connect(target), Tasks()) as client:
        task = await call_as_task(client, "survey", {"village": "Ely"})
        return task.id


async def finish(target: Any, task_id: str) -> list[str]:
    """Come back another day: see how it goes, and take the result."""
    async with extended(connect(target, elicit=show_form), Tasks()) as client:
        task = TaskHandle(client, task_id)
        seen = [state.status async for state in task]
        survey = await task.result(into=dict)
        return [*seen, str(survey["people"])]
