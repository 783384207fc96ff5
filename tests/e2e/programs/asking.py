"""A server whose tools, prompt and resource ask in every way there is. No handler knows which revision is spoken."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from mcptrio import Context, Elicited, Server, ToolError
from mcptrio.types import CreateMessageResult, TextContent

server = Server("asking", version="1.0.0")
done: list[str] = []
"""The side effects of the handlers, in order."""


@dataclass
class Size:
    size: str


@dataclass
class Count:
    count: int


@dataclass
class Confirm:
    sure: bool


def text_of(said: CreateMessageResult) -> str:
    return "".join(block.text for block in said.content if isinstance(block, TextContent))


def size_of(answer: Elicited[Size]) -> str:
    return answer.value.size if answer.value else answer.action


@server.tool
async def order(ctx: Context) -> str:
    """Does something, asks, does something else."""
    done.append("begun")
    answer = await ctx.elicit("Which size?", Size)
    done.append("answered")
    return f"size {size_of(answer)}"


@server.tool
async def again_and_again(ctx: Context) -> str:
    """Asks the same thing until the person has had enough."""
    received = []
    while (answer := await ctx.elicit("One more?", Size)).value:
        done.append(answer.value.size)
        received.append(answer.value.size)
        if answer.value.size == "stop":
            break
    return " ".join(received)


@server.tool
async def counting(ctx: Context) -> str:
    """Asks for numbers by keys of its own."""
    total = 0
    for number in range(3):
        answer = await ctx.elicit(f"Number {number}?", Count, key=f"n{number}")
        total += answer.value.count if answer.value else 0
    return str(total)


async def outer(ctx: Context) -> str:
    return await middle(ctx) + "!"


async def middle(ctx: Context) -> str:
    try:
        return await inner(ctx)
    finally:
        done.append("left")


async def inner(ctx: Context) -> str:
    return size_of(await ctx.elicit("How deep?", Size, key="depth"))


@server.tool
async def nested(ctx: Context) -> str:
    """Asks three functions deep."""
    return await outer(ctx)


@server.tool
async def several(ctx: Context) -> str:
    """Asks the person, the model and for the roots at the same time."""
    received: dict[str, str] = {}

    async def person() -> None:
        received["person"] = size_of(await ctx.elicit("Which size?", Size, key="size"))

    async def model() -> None:
        received["model"] = text_of(await ctx.sample("Say hello", max_tokens=50, key="hello"))

    async def roots() -> None:
        received["roots"] = ",".join(root.uri for root in await ctx.list_roots(key="roots"))

    async with trio.open_nursery() as nursery:
        for task in (person, model, roots):
            nursery.start_soon(task)
    return f"{received['person']} / {received['model']} / {received['roots']}"


@server.tool
async def refund(order_id: str, ctx: Context) -> str:
    """Fails unless the person agrees."""
    answer = await ctx.elicit(f"Refund {order_id}?", Confirm)
    if not answer.accepted or answer.value is None or not answer.value.sure:
        raise ToolError(f"The person said no: {answer.action}")
    done.append(f"refunded {order_id}")
    return "refunded"


@server.tool
async def visit(ctx: Context) -> str:
    """Sends the person to a page."""
    answer = await ctx.elicit_url("Sign in, please", "https://example.org/sign-in", key="visit")
    return answer.action


@server.tool
async def impatient(ctx: Context) -> str:
    """Gives the person a moment only."""
    with trio.move_on_after(0.2):
        return size_of(await ctx.elicit("Quick!", Size))
    return "too late"


@server.prompt
async def letter(topic: str, ctx: Context) -> str:
    """A prompt that asks before it is made."""
    answer = await ctx.elicit("In which tone?", Size, key="tone")
    return f"Write about {topic}, {size_of(answer)}."


@server.resource("asking://report")
async def report(ctx: Context) -> str:
    """A resource that asks before it is read."""
    answer = await ctx.elicit("For which size?", Size, key="report")
    return f"The report for {size_of(answer)}."


@server.tool
async def effects() -> str:
    """The side effects so far; forgets them."""
    received = " ".join(done)
    done.clear()
    return received


if __name__ == "__main__":
    server.run()
