"""Which marks of headers are allowed in an input schema, for servers that declare them and clients that read them."""

from __future__ import annotations

from typing import Any

import pytest

from mcptrio import DeclarationError, Server
from mcptrio._schema.header_marks import InvalidHeaderMark, find_marks


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(mark: Any, kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": mark}


REGION = marked("Region")
BAD = [
    schema(a=marked("")),
    schema(a=marked("has space")),
    schema(a=marked("co:lon")),
    schema(a=marked("umläut")),
    schema(a=marked("line\nbreak")),
    schema(a=marked(7)),
    schema(a=marked("X", "number")),
    schema(a=marked("X", "object")),
    schema(a=marked("X", "array")),
    schema(a=marked("X", "null")),
    schema(a=marked("X", ["string", "null"])),
    schema(a={"x-mcp-header": "X"}),
    schema(a=marked("Same"), b=marked("SAME")),
    schema(a={"type": "array", "items": marked("X")}),
    schema(a={"oneOf": [marked("X")]}),
    {**schema(), "allOf": [schema(a=marked("X"))]},
    {**schema(), "$defs": {"d": marked("X")}},
    {**schema(), "if": schema(a=marked("X"))},
    {**schema(), "x-mcp-header": "X"},
    schema(a=REGION, b={"type": "array", "items": REGION}),  # one object of Python at an allowed place and another
]


@pytest.mark.parametrize("bad", BAD)
def test_a_mark_that_is_not_allowed_makes_the_tool_unusable(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidHeaderMark):
        find_marks(bad)


@pytest.mark.parametrize("bad", BAD)
def test_a_server_refuses_to_declare_such_a_tool(bad: dict[str, Any]) -> None:
    async def probe(arguments: dict[str, Any]) -> str:
        return "never called"

    with pytest.raises(DeclarationError, match=r"^tool 'probe': .*header"):
        Server("marks").add_tool(probe, input_schema=bad)


def test_a_tool_has_at_most_a_hundred_marks() -> None:
    many = {f"a{number}": marked(f"H{number}") for number in range(101)}
    with pytest.raises(InvalidHeaderMark, match="more than 100 arguments have a header"):
        find_marks(schema(**many))
    del many["a100"]
    assert len(find_marks(schema(**many))) == 100


def test_a_mark_inside_a_value_is_no_mark() -> None:
    assert find_marks(schema(a={"type": "object", "default": {"x-mcp-header": "X"}})) == {}


def test_a_schema_of_a_peer_has_a_bound() -> None:
    wide = schema(**{f"a{number}": {"type": "string"} for number in range(10)})
    assert find_marks(wide, max_nodes=23) == {}
    for most in (5, 22):
        with pytest.raises(InvalidHeaderMark, match="too large"):
            find_marks(wide, max_nodes=most)
