"""Long-running tools: a client that supports tasks gets a handle at once, and fetches the result later.

    mcptrio run examples/tasks.py
    mcptrio run examples/tasks.py --transport http --store sqlite:///tasks.db      results outlive a restart

A client without tasks calls `survey` like any other tool, and waits. `publish` requires tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import trio

from mcptrio import Context, Server, ToolError
from mcptrio.extensions.tasks import Tasks, begin_task

server = Server("surveyor", version="1.0.0", instructions="Survey a village, then publish what was found.")
server.add_extension(Tasks(ttl=3600, poll=0.1))  # only for the settings: `task=` adds the extension by itself
FOUND: dict[str, int] = {}


@dataclass
class Survey:
    village: str
    houses: int
    people: int


@dataclass
class Wish:
    """The form that the user fills in."""

    agreed: bool
    pages: int = 3


@server.tool(task="auto", read_only=True)
async def survey(village: str, ctx: Context, houses: int = 10) -> Survey:
    """Count the people of a village, house by house.

    Args:
        village: Its name.
        houses: How many houses to visit.
    """
    people = 0
    for house in range(houses):
        await trio.sleep(0.02)  # knocking at the door
        people += (len(village) * (house + 1)) % 5
        await ctx.progress(house + 1, houses, "visiting")  # the status message of the task
    FOUND[village] = people
    return Survey(village, houses, people)


@server.tool(task="later")
async def publish(village: str, ctx: Context) -> str:
    """Print what was found about a village, after the user has agreed."""
    if village not in FOUND:
        raise ToolError(f"{village} was not surveyed yet. Call survey first.")
    answer = await ctx.elicit(f"Publish the numbers of {village}?", Wish)  # an ordinary question of an ordinary call
    if answer.value is None or not answer.value.agreed:
        raise ToolError("The user does not want it published. Do not try again.")
    await begin_task(ctx)  # the client gets its handle here; the function goes on
    for page in range(answer.value.pages):
        await trio.sleep(0.02)  # printing
        await ctx.progress(page + 1, answer.value.pages, "printing")
    return f"{village} has {FOUND[village]} people, on {answer.value.pages} pages."


if __name__ == "__main__":
    server.run()
