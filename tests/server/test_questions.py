"""The parameters of a question, at every date: messages for a model, forms for a person, files that are read."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from mcptrio import CapabilityMissing, Context, Server, assistant, connect, user
from mcptrio._eras.choose import ERAS
from mcptrio._eras.shape import lower_form
from mcptrio._peer.era import Era
from mcptrio._schema.elicit import Titles, form_of
from mcptrio.server.features.sampling import listed, to_messages
from mcptrio.types import (
    Audio,
    CreateMessageParams,
    CreateMessageResult,
    Image,
    Message,
    PromptMessage,
    ResourceLink,
    SamplingMessage,
    TextContent,
    ToolUseContent,
    helpers,
)

every_date = pytest.mark.parametrize("era", ERAS.values(), ids=list(ERAS))
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
PICTURE = {"type": "image", "data": "iVBORw0KGgoAAAAAAAAAAA==", "mimeType": "image/png"}


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def says(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


MESSAGES: list[tuple[str, Any, list[dict[str, Any]]]] = [
    ("a text", "Hi", [says("user", text("Hi"))]),
    ("texts", ["Hi", "there"], [says("user", text("Hi")), says("user", text("there"))]),
    ("user", [user("Hi")], [says("user", text("Hi"))]),
    ("user alone", user("Hi"), [says("user", text("Hi"))]),
    ("assistant", [user("Hi"), assistant("Hello")], [says("user", text("Hi")), says("assistant", text("Hello"))]),
    ("Message", [Message("assistant", TextContent(text="Hm"))], [says("assistant", text("Hm"))]),
    ("PromptMessage", [PromptMessage(role="user", content=TextContent(text="a"))], [says("user", text("a"))]),
    ("SamplingMessage", [SamplingMessage(role="user", content=TextContent(text="a"))], [says("user", text("a"))]),
    (
        "an earlier answer",
        ["a", CreateMessageResult(role="assistant", content=TextContent(text="b"), model="m"), "c"],
        [says("user", text("a")), says("assistant", text("b")), says("user", text("c"))],
    ),
    ("as on the wire", [{"role": "assistant", "content": text("a")}], [says("assistant", text("a"))]),
    ("a picture", [user(Image(PNG))], [says("user", PICTURE)]),
    ("a tuple", (user("a"), "b"), [says("user", text("a")), says("user", text("b"))]),
]


@every_date
@pytest.mark.parametrize(("given", "sent"), [row[1:] for row in MESSAGES], ids=[row[0] for row in MESSAGES])
def test_every_form_of_a_message_is_accepted(given: Any, sent: list[dict[str, Any]], era: Era) -> None:
    assert to_messages(listed(given), era) == sent


@every_date
@pytest.mark.parametrize(
    "given", [[7], [None], [object()], [b"bytes"], [["nested"]], [{"text": "no role"}], [{"role": "system"}], 7, {}]
)
def test_a_wrong_message_is_refused_with_a_hint(given: Any, era: Era) -> None:
    with pytest.raises(TypeError, match=r"sample\(\): .*pass texts, content, user\(…\) and assistant"):
        to_messages(listed(given), era)


@every_date
def test_a_resource_link_cannot_be_sent_to_a_model(era: Era) -> None:
    with pytest.raises(TypeError, match="cannot be sent content of type 'resource_link'"):
        to_messages([user(ResourceLink("orders://7"))], era)


@every_date
def test_several_blocks_are_several_messages_where_a_message_has_one(era: Era) -> None:
    message = SamplingMessage(role="user", content=[TextContent(text="a"), TextContent(text="b")])
    sent = to_messages([message], era)
    if era.features.sampling_tools:
        assert sent == [says("user", [text("a"), text("b")])]
    else:
        assert sent == [says("user", text("a")), says("user", text("b"))]


@every_date
def test_content_that_a_date_lacks_is_not_sent(era: Era) -> None:
    use = SamplingMessage(role="assistant", content=ToolUseContent(id="1", name="add", input={}))
    sound = user(Audio(b"ID3" + b"\0" * 8))
    for message, known in ((use, era.features.sampling_tools), (sound, "audio" in era.content)):
        if known:
            assert len(to_messages([message], era)) == 1
        else:
            with pytest.raises(CapabilityMissing, match=f"at protocol version {era.date}"):
                to_messages([message], era)


@pytest.mark.parametrize("date", list(ERAS))
async def test_a_model_is_asked_with_messages_of_every_kind(date: str, tmp_path: Path) -> None:
    """Over the wire and back: the client can read what was sent."""
    (tmp_path / "a.png").write_bytes(PNG)
    server = Server("s")
    heard: list[CreateMessageParams] = []

    @server.tool
    async def think(ctx: Context) -> str:
        said = await ctx.sample([user("Hi"), assistant("Hello"), user(Image(path=tmp_path / "a.png"))])
        again = await ctx.sample([user("Hi"), said, "And now?"], key="again")
        return again.model

    def answer(params: CreateMessageParams) -> str:
        heard.append(params)
        return "said"

    async with connect(server, protocol=date, sample=answer) as client:
        await client.call_tool("think")
    first, second = heard
    assert [message.role for message in first.messages] == ["user", "assistant", "user"]
    assert [block.type for message in first.messages for block in message.content] == ["text", "text", "image"]
    assert [message.role for message in second.messages] == ["user", "assistant", "user"]


# -- forms


@dataclass
class Shirt:
    size: Literal["s", "m"] = "m"
    colour: Annotated[str, Titles({"#f00": "Red", "#00f": "Blue"})] = "#f00"
    number: int = 7
    gift: bool = True


@dataclass
class Extras:
    extras: list[Literal["logo", "name"]] = field(default_factory=list)


@every_date
def test_a_form_is_written_in_the_words_of_its_date(era: Era) -> None:
    properties = lower_form(era, form_of(Shirt).schema)["properties"]
    if era.features.elicitation_url:
        assert properties["colour"]["oneOf"][0] == {"const": "#f00", "title": "Red"}
        assert properties["number"]["default"] == 7
    else:
        assert properties == {
            "size": {"type": "string", "enum": ["s", "m"]},
            "colour": {"type": "string", "enum": ["#f00", "#00f"], "enumNames": ["Red", "Blue"]},
            "number": {"type": "integer"},
            "gift": {"type": "boolean", "default": True},
        }


@every_date
def test_a_form_by_hand_is_written_in_the_words_of_its_date(era: Era) -> None:
    given = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"a": {"type": "string", "title": "A", "default": "x", "maxLength": 3}},
        "required": ["a"],
    }
    lowered = {
        "type": "object",
        "properties": {"a": {"type": "string", "title": "A", "maxLength": 3}},
        "required": ["a"],
    }
    assert lower_form(era, given) == (given if era.features.elicitation_url else lowered)


@every_date
def test_a_choice_of_several_is_not_asked_for_where_it_does_not_exist(era: Era) -> None:
    if era.features.elicitation_url:
        assert lower_form(era, form_of(Extras).schema)["properties"]["extras"]["type"] == "array"
    else:
        with pytest.raises(CapabilityMissing, match=r"extras: a choice of several does not exist at protocol version"):
            lower_form(era, form_of(Extras).schema)


@pytest.mark.parametrize("date", [date for date, era in ERAS.items() if "elicitation/create" in era.requests])
async def test_a_form_that_is_left_as_it_is_gives_the_defaults_at_every_date(date: str) -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        return repr((await ctx.elicit("Which shirt?", Shirt)).value)

    async with connect(server, protocol=date, elicit=lambda _: {}) as client:
        result = await client.call_tool("ask")
    assert result.content[0].text == repr(Shirt())  # type: ignore[union-attr]


# -- files


@pytest.mark.parametrize("date", list(ERAS))
async def test_files_are_read_in_a_thread(date: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(PNG)
    readers: list[threading.Thread] = []
    read = helpers._Media._read

    def watched(self: Any, kind: str) -> Any:
        if self.path is not None:
            readers.append(threading.current_thread())
        return read(self, kind)

    monkeypatch.setattr(helpers._Media, "_read", watched)
    server = Server("s")

    @server.tool
    async def one() -> Image:
        return Image(path=path)

    server.add_tool(lambda: ["look", Image(path=path), Image(PNG)], name="several")

    @server.tool
    async def missing() -> Image:
        return Image(path=tmp_path / "none.png")

    @server.prompt
    def prompt() -> list[Any]:
        return [user(Image(path=path)), "what is this?"]

    async with connect(server, protocol=date) as client:
        assert [block.type for block in (await client.call_tool("one")).content] == ["image"]
        assert [block.type for block in (await client.call_tool("several")).content] == ["text", "image", "image"]
        messages = (await client.get_prompt("prompt")).messages
        assert [message.content.type for message in messages] == ["image", "text"]
        failed = await client.call_tool("missing")
        assert failed.is_error
    assert len(readers) == 4
    assert threading.main_thread() not in readers
