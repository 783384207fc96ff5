"""Protocol extensions: tools that run as tasks, skills, a tool with its own page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trio

from mcptrio import Context, MCPError, Server, ToolError
from mcptrio.extensions.apps import Csp, Ui
from mcptrio.extensions.skills import Skills
from mcptrio.extensions.tasks import Tasks, begin_task

server = Server("extensions")
server.add_extension(Tasks(poll=0.2))
server.add_extension(Skills.from_folder(Path(__file__).with_name("skills")))


# -- tasks


@server.tool
async def greet(name: str) -> str:
    """Greets; never a task."""
    return f"Hello, {name}!"


@server.tool(task="auto")
async def slow_compute(seconds: float = 1.0, label: str = "slow") -> str:
    """Sleeps, then says so; a task where the client knows tasks."""
    await trio.sleep(seconds)
    return f"{label}: done after {seconds:g} s"


@server.tool(task=True)
async def failing_job() -> str:
    """Works for a second, then fails as a tool does. Always a task."""
    await trio.sleep(1)
    raise ToolError("The job failed, as it should.")


@server.tool(task="auto")
async def protocol_error_job() -> str:
    """Fails with an error of the protocol."""
    await trio.sleep(0.1)
    raise MCPError(-32603, "The job ended with a protocol error.")


@dataclass
class Confirm:
    confirm: bool


@server.tool(task="auto")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Asks before it deletes."""
    answer = await ctx.elicit(f"Delete {filename}?", Confirm)
    return f"Deleted {filename}" if answer.accepted and answer.value and answer.value.confirm else "Kept"


@dataclass
class Name:
    name: str


@server.tool(task="auto")
async def multi_input(ctx: Context) -> str:
    """Asks two things at once."""
    said: list[str] = []

    async def ask_name() -> None:
        answer = await ctx.elicit("What is your name?", Name, key="name")
        said.append(answer.value.name if answer.value else answer.action)

    async def ask_leave() -> None:
        answer = await ctx.elicit("Go on?", Confirm, key="confirm")
        said.append(str(answer.value.confirm) if answer.value else answer.action)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_name)
        nursery.start_soon(ask_leave)
    return ", ".join(sorted(said))


@server.tool(task="later")
async def test_tool_with_task(ctx: Context) -> str:
    """Asks first, in the call itself, and becomes a task when it knows the name."""
    answer = await ctx.elicit("What is your name?", Name)
    await begin_task(ctx)
    await trio.sleep(0.2)
    return f"Hello from a task, {answer.value.name if answer.value else 'stranger'}!"


# -- apps

CLOCK = """<!DOCTYPE html>
<html><head><title>Clock</title></head><body><p id="time"></p>
<script>document.getElementById("time").textContent = new Date().toISOString()</script></body></html>
"""


@server.tool(ui=Ui("ui://conformance/clock", html=CLOCK, name="clock", csp=Csp(), prefers_border=True))
async def test_app() -> str:
    """Shown with a page in hosts that know apps; a text elsewhere."""
    return "The page shows the time."
