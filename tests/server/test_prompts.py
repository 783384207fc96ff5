"""Prompts and completion."""

from __future__ import annotations

import enum
from typing import Any, Literal

import pytest

from mcptrio import Audio, Context, Image, Message, ResourceLink, Server, assistant, user
from mcptrio._peer.era import Era
from mcptrio.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from mcptrio.types import Completion, GetPromptResult, PromptMessage, TextContent
from tests.server.talk import Json, Talk, eras_where, every_era, open_server, refusal, talking


class Mood(enum.Enum):
    CALM = "calm"
    COLD = "cold"
    FIRM = "firm"


def desk() -> Server:
    server = Server("desk")

    @server.prompt(title="Complain", meta={"m": 1})
    async def complaint(order_id: int, tone: Literal["calm", "cold", "firm"] = "calm", cc: bool = False) -> str:
        """A letter.

        Args:
            order_id: The number on the receipt.
        """
        return f"{order_id + 1} {tone} {cc}"

    @complaint.complete("order_id")
    async def order_ids(prefix: str) -> list[str]:
        return [str(number) for number in range(1000) if str(number).startswith(prefix)]

    @server.prompt
    def talk() -> list[Message | str]:
        return [user("Hi"), assistant("Hello"), "And now?"]

    @server.prompt
    async def media() -> list[Message]:
        return [user(Image(b"GIF8")), user(Audio(b"OggS")), user(ResourceLink("notes://today"))]

    @server.prompt
    async def whole() -> GetPromptResult:
        return GetPromptResult(
            description="as it is", messages=[PromptMessage(role="user", content=TextContent(text="x"))]
        )

    @server.prompt
    async def mood(mood: Mood, ctx: Context) -> str:
        return f"{mood.name} {ctx.method}"

    return server


@every_era
async def test_prompts_are_listed_with_what_the_date_knows(era: Era) -> None:
    async with talking(desk(), era) as talk:
        prompts = (await talk.request("prompts/list"))["prompts"]
    assert [prompt["name"] for prompt in prompts] == ["complaint", "talk", "media", "whole", "mood"]
    assert all(set(prompt) <= era.shapes["prompt"] for prompt in prompts)
    assert prompts[0]["arguments"] == [
        {"name": "order_id", "description": "The number on the receipt.", "required": True},
        {"name": "tone", "required": False},
        {"name": "cc", "required": False},
    ]
    assert "arguments" not in prompts[1]
    assert [argument["name"] for argument in prompts[4]["arguments"]] == ["mood"]


async def text_of(talk: Talk, name: str, **arguments: str) -> str:
    (message,) = (await talk.request("prompts/get", name=name, arguments=arguments))["messages"]
    return str(message["content"]["text"])


@every_era
async def test_arguments_come_as_text_and_are_bound_to_their_types(era: Era) -> None:
    async with talking(desk(), era) as talk:
        assert await text_of(talk, "complaint", order_id="6") == "7 calm False"
        assert await text_of(talk, "complaint", order_id="6", tone="firm", cc="true") == "7 firm True"
        assert await text_of(talk, "mood", mood="cold") == "COLD prompts/get"


async def test_every_fault_of_a_prompts_arguments_is_reported_at_once() -> None:
    async with talking(desk()) as talk:
        arguments = {"order_id": "six", "tone": "rude", "to": "Bob"}
        error = await refusal(talk, "prompts/get", name="complaint", arguments=arguments)
    assert error.code == INVALID_PARAMS
    lines = error.message.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["arguments.order_id", "arguments.tone", "arguments"]
    assert "six" in lines[0]


@every_era
async def test_an_unknown_prompt_is_an_invalid_parameter(era: Era) -> None:
    async with talking(desk(), era) as talk:
        assert (await refusal(talk, "prompts/get", name="none")).code == INVALID_PARAMS


@every_era
async def test_messages_keep_their_roles_and_fit_the_date(era: Era) -> None:
    async with talking(desk(), era) as talk:
        messages = (await talk.request("prompts/get", name="talk"))["messages"]
        assert [(m["role"], m["content"]["text"]) for m in messages] == [
            ("user", "Hi"),
            ("assistant", "Hello"),
            ("user", "And now?"),
        ]
        media = (await talk.request("prompts/get", name="media"))["messages"]
        assert all(message["content"]["type"] in era.content for message in media)
        assert (await talk.request("prompts/get", name="whole"))["description"] == "as it is"


def test_a_system_message_is_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match="instructions of the server"):
        Message("system", "Be brief.")  # type: ignore[arg-type]


async def test_a_hidden_prompt_is_neither_listed_nor_got_nor_completed() -> None:
    server = desk()

    @server.prompt(visible=lambda ctx: bool(ctx.client_capabilities.roots))
    async def secret(kind: Literal["a", "b"]) -> str:
        return kind

    asked = {"ref": {"type": "ref/prompt", "name": "secret"}, "argument": {"name": "kind", "value": ""}}
    async with open_server(server) as join, join() as guest, join(capabilities={"roots": {}}) as staff:
        names = [prompt["name"] for prompt in (await guest.request("prompts/list"))["prompts"]]
        assert "secret" not in names
        assert (await refusal(guest, "prompts/get", name="secret", arguments={"kind": "a"})).code == INVALID_PARAMS
        assert (await refusal(guest, "completion/complete", **asked)).code == INVALID_PARAMS
        assert await text_of(staff, "secret", kind="a") == "a"


# -- completion


async def complete(talk: Talk, name: str, argument: str, value: str, **context: Json) -> Json:
    result = await talk.request(
        "completion/complete",
        ref={"type": "ref/prompt", "name": name},
        argument={"name": argument, "value": value},
        **context,
    )
    completion: Json = result["completion"]
    return completion


@every_era
async def test_choices_complete_themselves(era: Era) -> None:
    async with talking(desk(), era) as talk:
        assert (await complete(talk, "complaint", "tone", "c"))["values"] == ["calm", "cold"]
        assert (await complete(talk, "mood", "mood", "f"))["values"] == ["firm"]
        assert (await complete(talk, "complaint", "cc", ""))["values"] == []
        assert ("completions" in talk.opening["capabilities"]) == ("completions" in era.shapes["capabilities"])


@every_era
async def test_a_long_completion_is_cut_and_says_so(era: Era) -> None:
    async with talking(desk(), era) as talk:
        found = await complete(talk, "complaint", "order_id", "")
        assert (len(found["values"]), found["total"], found["hasMore"]) == (100, 1000, True)
        found = await complete(talk, "complaint", "order_id", "99")
        assert found == {"values": ["99", *(str(n) for n in range(990, 1000))], "total": 11, "hasMore": False}


async def test_a_completion_of_ones_own_is_cut_too() -> None:
    server = desk()

    @server.prompt
    async def cities(city: str) -> str:
        return city

    @cities.complete("city")
    def many(prefix: str) -> Completion:
        return Completion(values=[f"c{n}" for n in range(150)], total=5000)

    async with talking(server) as talk:
        found = await complete(talk, "cities", "city", "")
        assert (len(found["values"]), found["total"], found["hasMore"]) == (100, 5000, True)


async def test_a_completion_sees_what_is_filled_in_already() -> None:
    server = Server("places")

    @server.resource("city://{country}/{city}")
    async def city(country: str, city: str) -> str:
        return city

    @city.complete("city")
    async def cities(prefix: str, arguments: dict[str, str], ctx: Context) -> list[str]:
        known = {"no": ["Oslo", "Otta"], "pt": ["Lisbon"]}
        return [name for name in known.get(arguments.get("country", ""), [ctx.method]) if name.startswith(prefix)]

    ref = {"type": "ref/resource", "uri": "city://{country}/{city}"}
    async with talking(server) as talk:

        async def ask(value: str, **context: Any) -> list[str]:
            argument = {"name": "city", "value": value}
            result = await talk.request("completion/complete", ref=ref, argument=argument, **context)
            values: list[str] = result["completion"]["values"]
            return values

        assert await ask("O", context={"arguments": {"country": "no"}}) == ["Oslo", "Otta"]
        assert await ask("O", context={"arguments": {"country": "pt"}}) == []
        assert await ask("") == ["completion/complete"]
        assert await ask("", context={}) == ["completion/complete"]


async def test_completion_of_what_does_not_exist_is_refused() -> None:
    async with talking(desk()) as talk:
        argument = {"name": "x", "value": ""}
        for ref in ({"type": "ref/prompt", "name": "none"}, {"type": "ref/resource", "uri": "none://"}):
            error = await refusal(talk, "completion/complete", ref=ref, argument=argument)
            assert error.code == INVALID_PARAMS
        assert (await refusal(talk, "completion/complete", ref={"type": "ref/odd"}, argument=argument)).code == (
            INVALID_PARAMS
        )


async def test_a_completion_that_fails_says_nothing_of_why() -> None:
    server = desk()

    @server.prompt
    async def cities(city: str) -> str:
        return city

    @cities.complete("city")
    async def broken(prefix: str) -> list[str]:
        raise ValueError("canary")

    async with talking(server) as talk:
        with pytest.raises(Exception, match=f"{INTERNAL_ERROR}: internal error"):
            await complete(talk, "cities", "city", "")
        assert not any(b"canary" in frame for frame in talk.raw)


@eras_where(lambda era: "completions" in era.shapes["capabilities"])
async def test_a_server_that_completes_nothing_does_not_say_it_does(era: Era) -> None:
    server = Server("plain")

    @server.prompt
    async def plain(x: str) -> str:
        return x

    async with talking(server, era) as talk:
        assert "completions" not in talk.opening["capabilities"]
        ref, argument = {"type": "ref/prompt", "name": "plain"}, {"name": "x", "value": ""}
        assert (await refusal(talk, "completion/complete", ref=ref, argument=argument)).code == METHOD_NOT_FOUND
