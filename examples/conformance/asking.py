"""Tools that ask the client while they work: its model, its person, its roots."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from mcptrio import Context, Elicited, Server
from mcptrio.types import TextContent

server = Server("asking")


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Asks the client's model."""
    said = await ctx.sample(prompt, max_tokens=100)
    text = "".join(block.text for block in said.content if isinstance(block, TextContent))
    return f"LLM response: {text}"


def told(answer: Elicited[Any]) -> str:
    return f"action={answer.action}, content={json.dumps(answer.content or {})}"


@dataclass
class Account:
    username: str
    email: str


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the person for a name and an address."""
    return f"User response: {told(await ctx.elicit(message, Account))}"


@dataclass
class Defaults:
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks with a default for every kind of field."""
    return f"Elicitation completed: {told(await ctx.elicit('Please look these over', Defaults))}"


def titled(*values: str) -> list[dict[str, str]]:
    return [{"const": value, "title": value.replace("value", "Option ")} for value in values]


# Written by hand, since one form here is in no class's nature: every way in which a choice was ever spelled.
CHOICES = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": titled("value1", "value2", "value3")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("value1", "value2", "value3")}},
    },
}


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks with every form of a choice."""
    return f"Elicitation completed: {told(await ctx.elicit('Please choose', CHOICES))}"


@server.tool
async def test_elicitation_url(url: str, ctx: Context) -> str:
    """Sends the person to a page."""
    answer = await ctx.elicit_url("Please visit the link", url, key="visit")
    return f"URL elicitation: action={answer.action}"


@server.tool
async def test_list_roots(ctx: Context) -> str:
    """Says which roots the client has."""
    return f"Roots: {', '.join(root.uri for root in await ctx.list_roots(key='roots'))}"
