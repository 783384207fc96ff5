"""Elicitation, sampling and roots: a server asks the client only what it declared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import trio
from trio.testing import MockClock

from mcptrio import CapabilityMissing, Context, Server
from mcptrio._actors.limits import Limits
from mcptrio._peer.era import Era
from mcptrio.errors import MISSING_CLIENT_CAPABILITY
from mcptrio.types import ModelPreferences, SamplingMessage, TextContent, Tool, ToolChoice
from tests.server.talk import EVERYTHING, NEWEST, Refused, Silence, eras_where, every_era, refusal, talking

SAID = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Paris"}, "stopReason": "endTurn"}


@dataclass
class Shirt:
    size: Literal["s", "m", "l"]
    name: str | None = None


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def shirt(ctx: Context) -> str:
        answer = await ctx.elicit("Which size?", Shirt)
        return f"{answer.action} {answer.value}"

    @server.tool
    async def free(ctx: Context) -> str:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        answer: Any = await ctx.elicit("How many?", schema)
        return f"{answer.action} {answer.value} {answer.content}"

    @server.tool
    async def page(ctx: Context) -> str:
        answer = await ctx.elicit_url("Please pay", "https://example.org/pay", elicitation_id="e1")
        await ctx.elicitation_complete("e1")
        return answer.action

    @server.tool
    async def think(ctx: Context) -> str:
        said = await ctx.sample("Capital of France?", max_tokens=9)
        (block,) = said.content
        assert isinstance(block, TextContent)
        return f"{block.text} {said.model} {said.stop_reason}"

    @server.tool
    async def think_hard(ctx: Context) -> str:
        await ctx.sample(
            [SamplingMessage(role="assistant", content=TextContent(text="Hm.")), "Well?"],
            system_prompt="Be brief.",
            temperature=0.5,
            stop_sequences=["."],
            model_preferences=ModelPreferences(speed_priority=1),
            metadata={"k": 1},
        )
        return "done"

    @server.tool
    async def think_with_tools(ctx: Context) -> str:
        await ctx.sample(
            "x", tools=[Tool(name="t", input_schema={"type": "object"})], tool_choice=ToolChoice(mode="auto")
        )
        return "done"

    @server.tool
    async def roots(ctx: Context) -> str:
        return ", ".join(root.uri for root in await ctx.list_roots())

    @server.prompt
    async def ask_in_prompt(ctx: Context) -> str:
        return (await ctx.elicit("Which size?", Shirt)).action

    @server.resource("ask://roots")
    async def ask_in_resource(ctx: Context) -> str:
        return ", ".join(root.uri for root in await ctx.list_roots())

    return server


def person(**answer: Any) -> dict[str, Any]:
    return {"elicitation/create": lambda params: answer}


# -- elicitation


@eras_where(lambda era: "elicitation/create" in era.requests)
async def test_a_person_is_asked_with_a_form_and_the_answer_is_typed(era: Era) -> None:
    script = person(action="accept", content={"size": "m"})
    async with talking(asking(), era, {"elicitation": {}}, script) as talk:
        assert await talk.text("shirt") == "accept Shirt(size='m', name=None)"
        assert (await talk.request("prompts/get", name="ask_in_prompt"))["messages"][0]["content"]["text"] == "accept"
    method, params = talk.asked[0]
    assert (method, params["message"]) == ("elicitation/create", "Which size?")
    schema = params["requestedSchema"]
    assert (schema["type"], schema["required"]) == ("object", ["size"])
    assert schema["properties"]["size"] == {"type": "string", "enum": ["s", "m", "l"]}


@eras_where(lambda era: "elicitation/create" in era.requests)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_may_decline_a_form(era: Era, action: str) -> None:
    async with talking(asking(), era, {"elicitation": {}}, person(action=action)) as talk:
        assert await talk.text("shirt") == f"{action} None"


async def test_a_schema_by_hand_gives_the_plain_object() -> None:
    async with talking(asking(), NEWEST, EVERYTHING, person(action="accept", content={"n": 3})) as talk:
        assert await talk.text("free") == "accept {'n': 3} {'n': 3}"
        assert talk.asked[0][1]["requestedSchema"] == {"type": "object", "properties": {"n": {"type": "integer"}}}


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "accept", "content": {"size": "xl"}},
        {"action": "accept"},
        {"content": {"size": "m"}},
        {"action": "accept", "content": [1]},
    ],
)
async def test_an_answer_that_does_not_fit_fails_the_tool_and_not_the_session(answer: dict[str, Any]) -> None:
    async with talking(asking(), NEWEST, EVERYTHING, person(**answer)) as talk:
        await talk.fault("shirt")
        assert await talk.request("ping") == {}


@eras_where(lambda era: era.features.elicitation_url)
async def test_a_person_is_sent_to_a_page_and_the_client_hears_when_that_is_done(era: Era) -> None:
    async with talking(asking(), era, EVERYTHING, person(action="accept")) as talk:
        assert await talk.text("page") == "accept"
        assert talk.asked[0][1] == {
            "mode": "url",
            "message": "Please pay",
            "url": "https://example.org/pay",
            "elicitationId": "e1",
        }
        assert talk.heard("notifications/elicitation/complete") == [{"elicitationId": "e1"}]


# -- sampling and roots


@every_era
async def test_the_clients_model_is_asked(era: Era) -> None:
    async with talking(asking(), era, {"sampling": {}}, {"sampling/createMessage": lambda params: SAID}) as talk:
        assert await talk.text("think") == "Paris m endTurn"
        await talk.text("think_hard")
    plain, hard = (params for _, params in talk.asked)
    message = {"role": "user", "content": {"type": "text", "text": "Capital of France?"}}
    assert plain == {"messages": [message], "maxTokens": 9}
    assert [m["role"] for m in hard["messages"]] == ["assistant", "user"]
    assert set(hard) <= era.shapes["sampling"]
    assert (hard["systemPrompt"], hard["temperature"], hard["stopSequences"]) == ("Be brief.", 0.5, ["."])


async def test_a_refused_sampling_request_is_an_error_that_a_tool_can_handle() -> None:
    server = Server("polite")

    @server.tool
    async def think(ctx: Context) -> str:
        from mcptrio import MCPError

        try:
            await ctx.sample("x")
        except MCPError as error:
            return f"{error.code} {error.message}"
        raise AssertionError

    script = {"sampling/createMessage": lambda params: Refused(-1, "the person said no")}
    async with talking(server, NEWEST, EVERYTHING, script) as talk:
        assert await talk.text("think") == "-1 the person said no"


async def test_an_unhandled_error_of_the_client_is_the_calls_error() -> None:
    script = {"sampling/createMessage": lambda params: Refused(-1, "no")}
    async with talking(asking(), NEWEST, EVERYTHING, script) as talk:
        error = await refusal(talk, "tools/call", name="think")
        assert (error.code, error.message) == (-1, "no")


@every_era
async def test_roots_come_in_the_clients_order(era: Era) -> None:
    script = {"roots/list": lambda params: {"roots": [{"uri": "file:///b"}, {"uri": "file:///a", "name": "A"}]}}
    async with talking(asking(), era, {"roots": {}}, script) as talk:
        assert await talk.text("roots") == "file:///b, file:///a"
        (one,) = (await talk.request("resources/read", uri="ask://roots"))["contents"]
        assert one["text"] == "file:///b, file:///a"


async def test_a_change_of_roots_reaches_the_servers_function() -> None:
    server = asking()
    seen: list[str] = []

    @server.on_roots_changed
    async def changed(ctx: Context) -> None:
        seen.extend(root.uri for root in await ctx.list_roots())

    script = {"roots/list": lambda params: {"roots": [{"uri": "file:///new"}]}}
    async with talking(server, NEWEST, EVERYTHING, script) as talk:
        await talk.notify("notifications/roots/list_changed")
        await talk.settled()
        assert seen == ["file:///new"]


# -- what a client cannot do


def needs(tool: str) -> str:
    return {"shirt": "elicitation", "page": "elicitation", "roots": "roots"}.get(tool, "sampling")


@every_era
@pytest.mark.parametrize("tool", ["shirt", "page", "think", "think_with_tools", "roots"])
async def test_a_client_is_never_asked_for_what_it_did_not_declare(era: Era, tool: str) -> None:
    others = {key: value for key, value in EVERYTHING.items() if key != needs(tool)}
    async with talking(asking(), era, others) as talk:
        text = await talk.fault(tool)
        assert talk.asked == []
    assert "did not declare" in text or "exist at protocol version" in text


@every_era
@pytest.mark.parametrize("tool", ["shirt", "page", "think_with_tools"])
async def test_a_date_that_lacks_a_feature_is_not_asked_for_it_whatever_it_declares(era: Era, tool: str) -> None:
    has = {
        "shirt": "elicitation/create" in era.requests,
        "page": era.features.elicitation_url,
        "think_with_tools": era.features.sampling_tools,
    }[tool]
    script = {**person(action="accept", content={"size": "s"}), "sampling/createMessage": lambda params: SAID}
    async with talking(asking(), era, EVERYTHING, script) as talk:
        result = await talk.call(tool)
        assert bool(result.get("isError")) != has
        assert bool(talk.asked) == has


@pytest.mark.parametrize(
    ("declared", "tool", "asked"),
    [
        ({}, "shirt", True),  # client/elicitation: an empty object means form mode
        ({"form": {}}, "shirt", True),
        ({"url": {}}, "shirt", False),
        ({}, "page", False),
        ({"form": {}}, "page", False),
        ({"url": {}}, "page", True),
    ],
)
async def test_the_modes_of_elicitation_are_kept_apart(declared: dict[str, Any], tool: str, asked: bool) -> None:
    script = person(action="accept", content={"size": "s"})
    async with talking(asking(), NEWEST, {"elicitation": declared}, script) as talk:
        await talk.call(tool)
        assert bool(talk.asked) == asked


async def test_a_tool_can_handle_a_missing_capability() -> None:
    server = Server("modest")

    @server.tool
    async def modest(ctx: Context) -> dict[str, Any]:
        try:
            await ctx.sample("x")
        except CapabilityMissing as missing:
            return missing.required
        raise AssertionError

    async with talking(server) as talk:
        assert json.loads(await talk.text("modest")) == {"sampling": {}}


async def test_a_prompt_or_resource_that_cannot_ask_is_an_error_that_says_what_is_missing() -> None:
    async with talking(asking()) as talk:
        error = await refusal(talk, "resources/read", uri="ask://roots")
        assert (error.code, error.data) == (MISSING_CLIENT_CAPABILITY, {"requiredCapabilities": {"roots": {}}})


# -- time


async def test_a_question_that_is_never_answered_is_withdrawn(autojump_clock: MockClock) -> None:
    server = asking()
    server._app.limits = Limits(ask_timeout=30)
    script = {"roots/list": lambda params: Silence()}
    async with talking(server, NEWEST, EVERYTHING, script) as talk:
        began = trio.current_time()
        assert await talk.fault("roots") == "roots/list was not answered in time"
        assert trio.current_time() - began == pytest.approx(30, abs=0.1)
        assert [params["reason"] for params in talk.heard("notifications/cancelled")] == ["timeout"]


async def test_the_clock_of_a_call_stands_still_while_it_waits_for_a_person(autojump_clock: MockClock) -> None:
    server = Server("patient")

    @server.tool(timeout=5)
    async def patient(ctx: Context) -> str:
        await trio.sleep(3)
        try:
            await ctx.list_roots(timeout=100)
        except Exception as error:
            await trio.sleep(3)
            return type(error).__name__
        raise AssertionError

    script = {"roots/list": lambda params: Silence()}
    async with talking(server, NEWEST, EVERYTHING, script) as talk:
        assert await talk.text("patient") == "RequestTimeout"


async def test_several_questions_may_be_open_at_once(autojump_clock: MockClock) -> None:
    server = Server("curious")

    @server.tool
    async def curious(ctx: Context) -> str:
        found: dict[str, str] = {}

        async def ask(name: str) -> None:
            answer = await ctx.elicit(name, {"type": "object", "properties": {}})
            found[name] = answer.content["said"] if answer.content else ""

        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(ask, name)
        return " ".join(found[name] for name in "abc")

    def say(params: dict[str, Any]) -> dict[str, Any]:
        return {"action": "accept", "content": {"said": params["message"].upper()}}

    async with talking(server, NEWEST, EVERYTHING, {"elicitation/create": say}) as talk:
        assert await talk.text("curious") == "A B C"


async def test_a_cancelled_call_withdraws_its_questions() -> None:
    async with talking(asking(), NEWEST, EVERYTHING, {"roots/list": lambda params: Silence()}) as talk:
        request_id = await talk.begin("tools/call", name="roots")
        await talk.settled()
        assert len(talk.asked) == 1
        await talk.notify("notifications/cancelled", requestId=request_id)
        await talk.settled()
        assert len(talk.heard("notifications/cancelled")) == 1


async def test_an_unreadable_answer_of_the_client_is_reported_as_such() -> None:
    async with talking(asking(), NEWEST, EVERYTHING, {"roots/list": lambda params: {"roots": "none"}}) as talk:
        await talk.fault("roots")
        error = await refusal(talk, "resources/read", uri="ask://roots")
        assert error.message.startswith("the client's answer to roots/list cannot be read")
