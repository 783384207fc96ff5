"""Tools and a prompt that ask under keys that are known beforehand, and others that only make sense without sessions.

Nothing here knows which revision is spoken: the same functions serve clients that are asked with a request, and clients
that are asked with a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import trio

from mcptrio import Context, Header, Server
from mcptrio.types import CreateMessageResult, TextContent

server = Server("rounds")


@dataclass
class Name:
    name: str


@dataclass
class Color:
    color: str


@dataclass
class Confirmation:
    ok: bool


@dataclass
class Topic:
    context: str


def text_of(said: CreateMessageResult) -> str:
    return "".join(block.text for block in said.content if isinstance(block, TextContent))


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Asks the person for a name."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.value.name}!" if answer.value else f"The person chose to {answer.action}."


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Asks the client's model a question."""
    said = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model says: {text_of(said)}"


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Asks for the client's roots."""
    roots = await ctx.list_roots(key="client_roots")
    return f"The client has {len(roots)} roots: {', '.join(root.uri for root in roots)}"


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Asks for a confirmation and remembers, meanwhile, what it was about."""
    about = "state-ok"
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"{about}: {answer.action}"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Asks the person, the model and for the roots, all at the same time."""
    told: dict[str, str] = {}

    async def name() -> None:
        answer = await ctx.elicit("What is your name?", Name, key="user_name")
        told["name"] = answer.value.name if answer.value else answer.action

    async def greeting() -> None:
        told["greeting"] = text_of(await ctx.sample("Generate a greeting", max_tokens=50, key="greeting"))

    async def roots() -> None:
        told["roots"] = str(len(await ctx.list_roots(key="client_roots")))

    async with trio.open_nursery() as nursery:
        for ask in (name, greeting, roots):
            nursery.start_soon(ask)
    return ", ".join(f"{key}: {told[key]}" for key in ("name", "greeting", "roots"))


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Asks one thing, then another."""
    name = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    color = await ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")
    if not name.value or not color.value:
        return f"The person chose to {name.action} and to {color.action}."
    return f"{name.value.name} likes {color.value.color}."


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Asks for a confirmation; a state that was changed on the way is refused."""
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"The person chose to {answer.action}."


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Asks only what the client said it can answer."""
    able = ctx.client_capabilities
    told = []
    if able.sampling is not None:
        told.append(text_of(await ctx.sample("Say hello", max_tokens=50, key="hello")))
    if able.elicitation is not None:
        answer = await ctx.elicit("What is your name?", Name, key="user_name")
        told.append(answer.value.name if answer.value else answer.action)
    return f"Told: {', '.join(told) or 'nothing, since nothing can be asked'}"


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Says how far it is, then asks."""
    await ctx.progress(0, 1)
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"The person chose to {answer.action}."


@server.tool(requires=["sampling"])
async def test_missing_capability() -> str:
    """Cannot be called by a client without sampling."""
    return "This client has sampling."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Sends log messages to a client that asked for them."""
    await ctx.debug("A debug message")
    await ctx.info("An info message")
    await ctx.error("An error message")
    return "Messages were logged."


@server.tool
async def test_x_mcp_header(region: Annotated[str, Header("Region")] = "") -> str:  # noqa: PT028 - no test
    """Takes an argument that HTTP clients repeat in the header Mcp-Param-Region."""
    return f"region: {region}"


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks the person before it is made."""
    answer = await ctx.elicit("What context should the prompt use?", Topic, key="user_context")
    return f"Use this context: {answer.value.context if answer.value else 'none'}"
