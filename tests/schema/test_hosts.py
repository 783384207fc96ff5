"""The input schemas that `tools/list` shows: golden files, and the rules of the model providers that get them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcptrio import Server
from mcptrio._schema.build import schema_of
from mcptrio._schema.listing import MAX_INLINED, for_models, inlined
from tests.schema.host_rules import HOSTS
from tests.schema.signatures import TYPES, Point, function_for

GOLDEN = Path(__file__).with_name("golden") / "input_schemas.json"
RECURSIVE = {"recursive dataclass", "recursive pydantic model"}


def listed(annotation: Any) -> dict[str, Any]:
    """The input schema in `tools/list`."""
    server = Server("golden")
    server.add_tool(function_for(annotation), name="tool")
    entry = server._app.tools.registry.get("tool")
    assert entry is not None
    return json.loads(msgspec.json.encode(entry.wire["inputSchema"]))


def write_golden() -> None:
    """Write the golden file again: python -c "from tests.schema.test_hosts import write_golden; write_golden()"."""
    schemas = {name: listed(annotation) for name, annotation in TYPES.items()}
    GOLDEN.write_text(json.dumps(schemas, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def test_there_are_sixty_signatures_and_a_golden_schema_for_each() -> None:
    assert len(TYPES) >= 60
    assert json.loads(GOLDEN.read_text(encoding="utf-8")).keys() == TYPES.keys()


@pytest.mark.parametrize("name", TYPES)
def test_a_signature_is_listed_as_its_golden_file_says(name: str) -> None:
    assert listed(TYPES[name]) == json.loads(GOLDEN.read_text(encoding="utf-8"))[name]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("host", HOSTS)
def test_no_host_refuses_a_schema(host: str, name: str) -> None:
    assert HOSTS[host](listed(TYPES[name])) == []


@pytest.mark.parametrize("name", TYPES)
def test_only_recursive_types_keep_references(name: str) -> None:
    assert ("$ref" in json.dumps(listed(TYPES[name]))) == (name in RECURSIVE)


@pytest.mark.parametrize(
    ("host", "schema", "fault"),
    [
        ("gemini", {"type": "integer", "exclusiveMinimum": 0}, "unknown field exclusiveMinimum"),
        ("gemini", {"const": "a"}, "unknown field const"),
        ("gemini", {"type": "string", "format": "date"}, "format date"),
        ("gemini", {"type": ["string", "null"]}, "a list of types"),
        ("gemini", {"type": "integer", "enum": [1]}, "enum of other values than strings"),
        ("gemini", {"anyOf": [{"type": "string"}], "type": "string"}, "type next to anyOf"),
        ("gemini", {"$ref": "#/$defs/A", "title": "A"}, "title next to $ref"),
        ("gemini", {"type": "array"}, "array without items"),
        ("openai", {"type": "array", "prefixItems": []}, "prefixItems"),
        ("openai", {"type": "array"}, "array schema missing items"),
        ("openai", {"type": "string", "format": "path"}, "format path"),
        ("openai", {"oneOf": [{"type": "string"}]}, "oneOf"),
        ("bedrock", {"oneOf": [{"type": "string"}]}, "oneOf"),
    ],
)
def test_the_rules_refuse_what_the_providers_refuse(host: str, schema: dict[str, Any], fault: str) -> None:
    found = HOSTS[host]({"type": "object", "properties": {"a": schema}})
    assert any(text.endswith(fault) for text in found), found


@pytest.mark.parametrize("host", ["openai", "bedrock"])
def test_the_rules_refuse_a_root_that_is_no_object(host: str) -> None:
    assert "the root is no object" in HOSTS[host]({"type": "string"})
    assert HOSTS[host]({"type": "object", "properties": {}, "anyOf": []}) != []


def test_a_schema_written_by_hand_is_listed_unchanged() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"const": 1, "exclusiveMinimum": 0, "format": "date"}},
        "$defs": {"A": {"type": "string", "examples": ["x"]}},
    }
    server = Server("golden")
    server.add_tool(lambda args: None, name="tool", input_schema=schema, output_schema=schema, inline=True)
    entry = server._app.tools.registry.get("tool")
    assert entry is not None
    assert entry.wire["inputSchema"] == entry.wire["outputSchema"] == schema


def test_an_output_schema_is_inlined_and_keeps_its_keywords() -> None:
    assert schema_of(tuple[Point, int])["prefixItems"][0]["properties"].keys() == {"x", "y"}


@pytest.mark.parametrize("levels", [10, 40])
def test_a_schema_that_would_be_large_keeps_its_definitions(levels: int) -> None:
    type_: Any = Point
    for n in range(levels):  # each record has the one before it twice: 2 ** levels points without references
        type_ = dataclasses.make_dataclass(f"Level{n}", [("left", type_), ("right", type_)])
    schema = schema_of(type_)
    assert schema["properties"]["left"] == {"$ref": f"#/$defs/Level{levels - 2}"}
    assert len(msgspec.json.encode(schema)) < MAX_INLINED


def test_a_reference_inside_a_value_is_no_reference() -> None:
    value = {"$ref": "#/$defs/A"}
    schema = {
        "properties": {"$ref": {"$ref": "#/$defs/A"}, "b": {"default": value, "enum": [value]}},
        "$defs": {"A": {}},
    }
    assert inlined(schema) == {"properties": {"$ref": {}, "b": {"default": value, "enum": [value]}}}


def test_removed_keywords_are_described_in_the_description() -> None:
    schema = {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5, "description": "A price", "examples": [1.5]}
    assert for_models(schema) == {
        "type": "number",
        "minimum": 0,
        "description": "A price. More than 0. A multiple of 0.5. For example 1.5.",
    }
