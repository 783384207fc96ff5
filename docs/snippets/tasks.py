"""Calling tools that run as tasks. `target` is anything that `connect` takes."""

from __future__ import annotations

from typing import Any

from mcptrio import connect
from mcptrio.extensions.client import Peer, extended
from mcptrio.extensions.tasks import Tasks, follow_task


async def person(params: Any) -> dict[str, Any]:
    """Stands for a form on a screen."""
    return {"agreed": True, "pages": 2}


async def wait(target: Any) -> str:
    """A call that became a task looks like any other: it is followed, and its questions are answered."""
    async with extended(connect(target, elicit=person), Tasks()) as client:
        survey = await client.call_tool("survey", {"village": "Ely"}, into=dict)
        result = await client.call_tool("publish", {"village": "Ely"})
        return f"{survey['people']}: {result.content[0].text}"


async def keep(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """What to do with a result of the type `task`: nothing."""
    return result


async def begin(target: Any) -> str:
    """Take the handle and leave."""
    async with extended(connect(target), Tasks()) as client:
        client.result_types["task"] = keep
        call = {"name": "survey", "arguments": {"village": "Ely"}}
        handle: str = (await client.request("tools/call", call))["taskId"]
        return handle


async def finish(target: Any, handle: str) -> dict[str, Any]:
    """Come back another day."""
    async with extended(connect(target), Tasks()) as client:
        return await follow_task(Peer(client), handle, cancel_on_cancel=False)
