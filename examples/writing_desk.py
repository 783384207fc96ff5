"""Prompts that a user picks from a menu, with completion, and a tool that asks the client's own model.

    mcptrio run examples/writing_desk.py
    mcptrio prompt examples/writing_desk.py review --arg draft=spring --arg tone=harsh
    mcptrio call examples/writing_desk.py headline --arg draft=spring --sample "It Is Spring"

`ctx.sample` uses the model of the client, so this server needs no API key; a client without a model still gets a
result.
"""

from __future__ import annotations

from typing import Literal

from mcptrio import CapabilityMissing, Context, MCPError, Message, Server, assistant, user
from mcptrio.errors import INVALID_PARAMS

server = Server("writing desk", version="1.0.0")
DRAFTS = {"spring": "The snow is gone and the buses are late for other reasons.", "sea": "The sea was there again."}


def draft_of(name: str) -> str:
    if name not in DRAFTS:
        raise MCPError(INVALID_PARAMS, f"there is no draft {name!r}; there are {', '.join(DRAFTS)}")
    return DRAFTS[name]


@server.prompt(title="Review a draft")
def review(draft: str, tone: Literal["kind", "harsh"] = "kind") -> list[Message]:
    """Have a draft reviewed. What the model said already is part of the prompt, so it goes on from there."""
    return [
        user(f"Write a {tone} review of this draft:\n\n{draft_of(draft)}"),
        assistant("I have read it. Three things stand out."),
    ]


@server.prompt(title="Go on writing")
def go_on(draft: str, sentences: int = 2) -> str:
    """Write the next sentences of a draft."""
    return f"Write {sentences} more sentences of this, in the same voice:\n\n{draft_of(draft)}"


@review.complete("draft")
@go_on.complete("draft")
async def draft_names(prefix: str) -> list[str]:
    return [name for name in DRAFTS if name.startswith(prefix)]


@server.tool(read_only=True)
async def headline(draft: str, ctx: Context) -> str:
    """Find a headline for a draft.

    Args:
        draft: The name of the draft: spring or sea.
    """
    text = draft_of(draft)
    try:
        reply = await ctx.sample(f"Find a headline for: {text}", max_tokens=30, system_prompt="Answer in five words.")
    except CapabilityMissing:
        return " ".join(text.split()[:5])  # this client lends no model
    return reply.text


if __name__ == "__main__":
    server.run()
