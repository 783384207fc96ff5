"""Questions to users, written once: every case runs at every date that can ask, over every transport.

The server is `tests/e2e/programs/asking.py`, its handlers unchanged everywhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import define, field

from mcptrio import CapabilityMissing, MCPError, connect
from mcptrio._eras.choose import ERAS
from mcptrio.client import Client
from mcptrio.types import CallToolResult, CreateMessageParams, ElicitParams, ElicitResult, TextContent

DATES_THAT_ASK = [era.date for era in ERAS.values() if "elicitation/create" in era.requests]
every_date_that_asks = pytest.mark.parametrize("date", DATES_THAT_ASK)


@define(eq=False)
class Person:
    """Answers questions as a test tells it to, and remembers them."""

    replies: list[Any] = field(factory=list)
    asked: list[str] = field(factory=list)

    async def elicit(self, params: ElicitParams) -> Any:
        self.asked.append(params.message)
        reply = self.replies.pop(0)
        if isinstance(reply, str):
            return ElicitResult(action=reply)
        if callable(reply):
            await reply()
            return ElicitResult(action="cancel")
        return reply

    async def sample(self, params: CreateMessageParams) -> str:
        return "hello"


Reach = Callable[[], AbstractAsyncContextManager[Any]]
"""Gives the target of a client: a server object, a URL, a command."""


@asynccontextmanager
async def meet(reach: Reach, date: str, *replies: Any, **options: Any) -> AsyncIterator[tuple[Client, Person]]:
    person = Person(list(replies))
    given = {
        "elicit": person.elicit,
        "sample": person.sample,
        "roots": ["file:///a", "file:///b"],
        **options,
    }
    async with reach() as target, connect(target, protocol=date, **given) as client:
        assert client.protocol_version == date
        await client.call_tool("effects")
        yield client, person


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def answered_in_the_same_frame(reach: Reach, date: str) -> None:
    """Nothing that a handler did before it asked is done again."""
    async with meet(reach, date, {"size": "XL"}) as (client, person):
        assert text(await client.call_tool("order")) == "size XL"
        assert person.asked == ["Which size?"]
        assert text(await client.call_tool("effects")) == "begun answered"


async def asked_in_a_loop(reach: Reach, date: str) -> None:
    """A repeated question is a question of its own, even with the same words."""
    replies = [{"size": word} for word in ("a", "b", "c", "stop")]
    async with meet(reach, date, *replies) as (client, person):
        assert text(await client.call_tool("again_and_again")) == "a b c stop"
        assert person.asked == ["One more?"] * 4
        assert text(await client.call_tool("effects")) == "a b c stop"


async def asked_by_key(reach: Reach, date: str) -> None:
    async with meet(reach, date, {"count": 1}, {"count": 10}, {"count": 100}) as (client, person):
        assert text(await client.call_tool("counting")) == "111"
        assert person.asked == ["Number 0?", "Number 1?", "Number 2?"]


async def asked_three_functions_deep(reach: Reach, date: str) -> None:
    async with meet(reach, date, {"size": "very"}) as (client, _):
        assert text(await client.call_tool("nested")) == "very!"
        assert text(await client.call_tool("effects")) == "left"


async def asked_several_at_once(reach: Reach, date: str) -> None:
    async with meet(reach, date, {"size": "M"}) as (client, _):
        assert text(await client.call_tool("several")) == "M / hello / file:///a,file:///b"


async def declined_and_cancelled(reach: Reach, date: str) -> None:
    """Declining is an answer, not an error of the protocol."""
    async with meet(reach, date, "decline", "cancel", {"sure": False}, {"sure": True}) as (client, _):
        for word in ("decline", "cancel", "accept"):
            result = await client.call_tool("refund", {"order_id": "7"})
            assert result.is_error
            assert text(result) == f"The person said no: {word}"
        assert text(await client.call_tool("refund", {"order_id": "7"})) == "refunded"
        assert text(await client.call_tool("effects")) == "refunded 7"


async def asked_by_a_prompt(reach: Reach, date: str) -> None:
    async with meet(reach, date, {"size": "calm"}) as (client, _):
        prompt = await client.get_prompt("letter", {"topic": "cats"})
        (message,) = prompt.messages
        assert isinstance(message.content, TextContent)
        assert message.content.text == "Write about cats, calm."


async def asked_by_a_resource(reach: Reach, date: str) -> None:
    async with meet(reach, date, {"size": "S"}) as (client, _):
        (contents,) = (await client.read_resource("asking://report")).contents
        assert getattr(contents, "text", None) == "The report for S."


async def sent_to_a_page(reach: Reach, date: str) -> None:
    async with meet(reach, date, "accept") as (client, person):
        if ERAS[date].features.elicitation_url:
            assert text(await client.call_tool("visit")) == "accept"
            assert person.asked == ["Sign in, please"]
        else:
            assert (await client.call_tool("visit")).is_error
            assert person.asked == []


async def impossible_for_this_client(reach: Reach, date: str) -> None:
    """A client that cannot be asked gets the error of its date; the handler gets one typed error."""
    async with meet(reach, date, elicit=None) as (client, _):
        if ERAS[date].features.asks_in_results:
            with pytest.raises((MCPError, CapabilityMissing)) as caught:
                await client.call_tool("order")
            assert getattr(caught.value, "code", -32021) == -32021
        else:
            result = await client.call_tool("order")
            assert result.is_error
            assert "elicitation" in text(result)
        assert text(await client.call_tool("effects")) == "begun"


async def two_calls_at_the_same_time(reach: Reach, date: str) -> None:
    """A question of one call never reaches, or holds up, another."""
    async with meet(reach, date, {"size": "1"}, {"size": "1"}) as (client, _):
        received: list[str] = []

        async def one() -> None:
            received.append(text(await client.call_tool("order")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(one)
        assert received == ["size 1", "size 1"]
        assert sorted(text(await client.call_tool("effects")).split()) == ["answered", "answered", "begun", "begun"]


CASES: list[Callable[[Reach, str], Awaitable[None]]] = [
    answered_in_the_same_frame,
    asked_in_a_loop,
    asked_by_key,
    asked_three_functions_deep,
    asked_several_at_once,
    declined_and_cancelled,
    asked_by_a_prompt,
    asked_by_a_resource,
    sent_to_a_page,
    impossible_for_this_client,
    two_calls_at_the_same_time,
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
