"""Options and functions that can only be mistakes are refused with a hint; a refusal changes nothing."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from mcptrio import Context, DeclarationError, Schema, Server, SessionHandle, types
from mcptrio.extensions.apps import Ui
from tests.server.talk import open_server, talking


async def plain() -> str:
    return "plain"


async def by_hand(arguments: dict[str, Any]) -> str:
    return str(sorted(arguments.items()))


TOOL: list[tuple[dict[str, Any], str]] = [
    ({"scopes": [1]}, "1 is not a scope"),
    ({"scopes": "orders:read orders:write"}, "write a list of several"),
    ({"requires": "sampling"}, r"requires is a list of capabilities: write requires=\['sampling'\]"),
    ({"requires": ["samplng"]}, "there is no client capability 'samplng'; there are elicitation"),
    ({"visible": True}, "visible= is a function"),
    ({"limit": 0}, "limit is a whole number of at least 1, not 0"),
    ({"limit": 2.5}, "limit is a whole number"),
    ({"limit": True}, "limit is a whole number"),
    ({"timeout": -1}, "timeout is a positive number, not -1"),
    ({"timeout": "5"}, "timeout is a positive number, not '5'"),
    ({"timeout": 0}, "timeout is a positive number"),
    ({"timeout": math.nan}, "timeout is a positive number"),
    ({"rate": 0}, "rate is a positive number"),
    ({"rate": True}, "rate is a positive number"),
    ({"title": 3}, "title is a string"),
    ({"description": ["a"]}, "description is a string"),
    ({"name": ""}, "name is empty"),
    ({"read_only": "yes"}, "read_only is True or False"),
    ({"serial": 1}, "serial is True or False"),
    ({"inline": 1}, "inline is True or False"),
    ({"meta": [1]}, "meta is a mapping"),
    ({"icons": types.Icon(src="https://a/b.png")}, "icons is a list of Icon objects"),
    ({"icons": ["https://a/b.png"]}, "icons is a list of Icon objects"),
    ({"scopes": [""]}, "is not a scope"),
    ({"input_schema": "object"}, "input_schema is a JSON Schema"),
    ({"timout": 5}, "there is no tool option 'timout'; did you mean timeout"),
]
RESOURCE: list[tuple[dict[str, Any], str]] = [
    ({"size": -1}, "size is a whole number of at least 0"),
    ({"mime_type": 3}, "mime_type is a string"),
    ({"cache": 60}, "cache is a Cache, not 60"),
    ({"annotations": {"priority": 1}}, "annotations is an Annotations object"),
    ({"any_path": "yes"}, "any_path is True or False"),
    ({"visible": True}, "visible= is a function"),
]
SERVER: list[tuple[dict[str, Any], str]] = [
    ({"instructions": 5}, "instructions is a string, not 5"),
    ({"title": b"x"}, "title is a string"),
    ({"state_audience": 1}, "state_audience is a string"),
    ({"threads": 0}, "threads is a whole number of at least 1, not 0"),
    ({"threads": 2.5}, "threads is a whole number"),
    ({"max_reply": 0}, "max_reply is a whole number of at least 1"),
    ({"page_size": {"tool": 5}}, "page_size: there is no list tool; there are tools, prompts, resources, templates"),
    ({"page_size": 2.5}, "page_size is a whole number"),
    ({"page_size": True}, "page_size is a whole number"),
    ({"name": ""}, "a server needs a name"),
    ({"version": 2}, "version is a string"),
]


@pytest.mark.defect("D15")
@pytest.mark.parametrize(("options", "text"), TOOL)
def test_a_tool_option_that_cannot_be_meant_is_refused(options: dict[str, Any], text: str) -> None:
    server = Server("x")
    with pytest.raises(DeclarationError, match=text):
        server.add_tool(plain, **options)
    assert len(server._app.tools.registry) == 0


@pytest.mark.defect("D15")
@pytest.mark.parametrize(("options", "text"), RESOURCE)
def test_a_resource_option_that_cannot_be_meant_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(DeclarationError, match=rf"resource 'a://b': .*{text}"):
        Server("x").add_resource("a://b", plain, **options)


@pytest.mark.defect("D15")
@pytest.mark.parametrize(("options", "text"), SERVER)
def test_a_server_option_that_cannot_be_meant_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        Server(**{"name": "x", **options})


@pytest.mark.defect("D15")
def test_an_option_of_a_prompt_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DeclarationError, match="prompt 'plain': there is no prompt option 'read_only'"):
        Server("x").add_prompt(plain, read_only=True)  # type: ignore[call-arg]  # the mistake


async def no_messages() -> int:
    return 3


async def nothing() -> None: ...


async def numbers() -> list[int]:
    return [3]


async def some_messages() -> list[types.Message | str] | types.GetPromptResult:
    return ["hello"]


async def a_picture() -> types.Image:
    raise NotImplementedError


@pytest.mark.defect("U14")
@pytest.mark.parametrize("fn", [no_messages, nothing, numbers])
def test_a_prompt_that_cannot_return_messages_is_refused(fn: Any) -> None:
    with pytest.raises(DeclarationError, match="which has no messages; return a str, a Message"):
        Server("x").add_prompt(fn)


@pytest.mark.parametrize("fn", [plain, some_messages, a_picture])
def test_a_prompt_may_return_texts_messages_and_content(fn: Any) -> None:
    Server("x").add_prompt(fn)


# -- D08


def sizes(server: Server) -> tuple[int, ...]:
    """How many extensions, tools, prompts and resources a server has."""
    app = server._app
    return len(app.extensions), len(app.tools.registry), len(app.prompts.registry), len(app.resources.registry)


@pytest.mark.defect("D08")
@pytest.mark.parametrize("options", [{}, {"ui": Ui("ui://page", html="<p>")}], ids=["task", "page"])
async def test_a_tool_that_is_refused_while_serving_adds_no_extension(options: Any) -> None:
    server = Server("x")
    async with open_server(server):
        for _ in range(2):  # the second try is refused as well
            with pytest.raises(DeclarationError, match="before serving begins"):
                server.add_tool(plain, task=True, **options)
        assert sizes(server) == (0, 0, 0, 0)


@pytest.mark.defect("D08")
def test_a_tool_whose_name_is_taken_adds_no_extension() -> None:
    server = Server("x")
    server.add_tool(plain)
    with pytest.raises(DeclarationError, match="there is a tool 'plain' already"):
        server.add_tool(plain, task=True, ui=Ui("ui://page", html="<p>"))
    assert sizes(server) == (0, 1, 0, 0)


@pytest.mark.defect("D08")
async def test_a_session_function_that_is_refused_while_serving_is_not_set() -> None:
    server = Server("x")

    async def session(handle: SessionHandle) -> AsyncIterator[str]:
        yield "state"

    async with open_server(server):
        for _ in range(2):
            with pytest.raises(DeclarationError, match="before serving begins"):
                server.session(session)
        assert server._app.lifecycle.session_function is None


@pytest.mark.defect("D08")
async def test_an_include_that_is_refused_while_serving_changes_nothing() -> None:
    other, server = Server("other"), Server("x")
    other.add_tool(of_x, ui=Ui("ui://page", html="<p>"))  # its extension alone could be added while serving
    other.add_tool(plain, task=True)
    other.add_prompt(plain)
    async with open_server(server):
        for _ in range(2):
            with pytest.raises(DeclarationError, match="before serving begins"):
                server.include(other)
        assert sizes(server) == (0, 0, 0, 0)


@pytest.mark.defect("D08")
@pytest.mark.parametrize(
    "options",
    [{"task": "sometimes"}, {"task": True, "ui": 3}, {"ui": Ui("ui://taken", html="<p>", name="taken")}],
    ids=["task", "both", "page"],
)
def test_a_refused_option_of_an_extension_adds_nothing(options: Any) -> None:
    server = Server("x")
    server.add_resource("a://b", plain, name="taken")
    with pytest.raises(DeclarationError):
        server.add_tool(plain, **options)
    assert sizes(server) == (0, 0, 0, 1)


# -- schemas written by hand, tools as values, names of resources


OPTIONAL = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "default": 3},
        "unit": {"type": "object", "properties": {"name": {"type": "string", "default": "C"}}},
        "tags": {"type": "array", "default": []},
    },
    "required": ["city"],
}


async def test_defaults_of_a_hand_written_schema_are_filled_in() -> None:
    server = Server("x")
    server.add_tool(by_hand, input_schema=OPTIONAL)
    async with talking(server) as talk:
        text = "[('city', 'Ulm'), ('days', 3), ('tags', []), ('unit', {'name': 'C'})]"
        assert await talk.text("by_hand", city="Ulm", unit={}) == text
        assert (
            await talk.text("by_hand", city="Ulm", days=1, tags=[1]) == "[('city', 'Ulm'), ('days', 1), ('tags', [1])]"
        )
        assert "arguments.city: required" in await talk.fault("by_hand")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "object", "properties": {"a": {}}, "required": ["b"]}, "`required` names b, which `properties`"),
        (
            {"type": "object", "properties": {"a": {"type": "object", "properties": {}, "required": ["b"]}}},
            "`required` of a names b",
        ),
        ({"type": "object", "properties": {"a": {"type": "integer", "default": "3"}}}, "the default of a property is"),
    ],
)
def test_a_hand_written_schema_that_contradicts_itself_is_refused(schema: Any, text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        Server("x").add_tool(by_hand, input_schema=schema)


def test_required_properties_may_be_described_elsewhere() -> None:
    schema = {"type": "object", "required": ["b"], "allOf": [{"properties": {"b": {"type": "string"}}}]}
    Server("x").add_tool(by_hand, input_schema=schema)


async def test_a_tool_made_as_a_value_is_listed_as_it_is() -> None:
    schema = Schema(type="object", properties={"n": Schema(type="integer", minimum=1, default=2)})
    tool = types.Tool(
        name="count",
        description="Counts.",
        input_schema=schema,  # type: ignore[arg-type]  # converted
        annotations=types.ToolAnnotations(title="Count", read_only_hint=True),
        meta={"a": 1},
    )
    server = Server("x")
    server.add_tool(tool, by_hand, timeout=5)
    async with talking(server) as talk:
        (listed,) = (await talk.request("tools/list"))["tools"]
        assert listed == {
            "name": "count",
            "description": "Counts.",
            "inputSchema": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "default": 2}}},
            "annotations": {"title": "Count", "readOnlyHint": True},
            "_meta": {"a": 1},
        }
        assert await talk.text("count") == "[('n', 2)]"
        assert "must be at least 1" in await talk.fault("count", n=0)
    with pytest.raises(DeclarationError, match="description is given twice"):
        server.add_tool(tool, by_hand, description="other")
    with pytest.raises(DeclarationError, match=r"a function, or a types.Tool and a function"):
        server.add_tool(by_hand, by_hand)  # type: ignore[call-overload]  # the mistake


def test_a_schema_becomes_json() -> None:
    schema = Schema(
        type=("object", "null"),
        properties={"a": Schema(ref="#/$defs/x"), "b": {"type": "string", "x-own": 1}},
        required=["a"],
        additional_properties=False,
        any_of=[Schema(const=1)],
        defs={"x": Schema(type="array", items=Schema(enum=["p", "q"]), min_items=1, default=types.NULL)},
    )
    assert schema.to_json() == {
        "type": ["object", "null"],
        "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"type": "string", "x-own": 1}},
        "required": ["a"],
        "additionalProperties": False,
        "anyOf": [{"const": 1}],
        "$defs": {"x": {"type": "array", "default": None, "items": {"enum": ["p", "q"]}, "minItems": 1}},
    }


async def of_x(x: str) -> str:
    return x


def test_two_resources_have_different_names() -> None:
    server = Server("x")
    server.add_resource("a://1", plain)
    with pytest.raises(DeclarationError, match="the name 'plain' is taken by 'a://1'; pass another name="):
        server.add_resource("a://2", plain)
    server.add_resource("a://2", plain, name="two")
    server.add_resource("a://{x}", of_x, name="plain")  # templates are a list of their own
    with pytest.raises(DeclarationError, match=r"taken by 'a://\{x\}'"):
        server.add_resource("b://{x}", of_x, name="plain")


async def test_a_resource_function_learns_its_uri() -> None:
    server = Server("x")

    @server.resource("notes://{x}")
    async def note(x: str, ctx: Context) -> str:
        await trio.lowlevel.checkpoint()
        return f"{x} from {ctx.uri}"

    @server.tool
    async def tool(ctx: Context, uri: str = "u") -> str:
        return str(ctx.uri)

    async with talking(server) as talk:
        (contents,) = (await talk.request("resources/read", uri="notes://a%20b"))["contents"]
        assert contents["text"] == "a b from notes://a%20b"
        assert await talk.text("tool", uri="x://y") == "None"
