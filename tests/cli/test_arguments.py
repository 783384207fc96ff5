"""Arguments of tools and prompts from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio.cli.arguments import as_texts, read_object, read_pairs, typed
from mcptrio.cli.exit_codes import UsageError


def test_an_object_is_read_from_json_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert read_object('{"a": [1]}') == {"a": [1]}
    assert read_object(f"@{tmp_path / 'a.json'}") == {"a": 1}
    assert read_object(None) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "null", "@/nowhere", '{"a": \ud800}'])
def test_anything_else_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--args"):
        read_object(text)


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert read_pairs(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1", ""):
        with pytest.raises(UsageError, match="write name=value"):
            read_pairs([wrong])
    with pytest.raises(UsageError, match="UTF-8"):
        read_pairs(["a=\udcff"])


def test_a_name_that_comes_twice_is_refused_with_the_form_of_a_list() -> None:
    """The last one used to win silently."""
    with pytest.raises(UsageError, match=r"""--arg ids is given twice; .* --arg 'ids=\["a", "b"\]'"""):
        read_pairs(["ids=1", "ids=2"])


def test_a_name_that_the_tool_does_not_have_is_refused_with_those_that_it_has() -> None:
    """The server would ignore it, and the typo would be lost."""
    schema: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    with pytest.raises(UsageError, match="--arg dyas: no such argument; there are: city, days"):
        typed({"city": "Oslo", "dyas": "2"}, schema)
    with pytest.raises(UsageError, match="no such argument"):
        typed({"dyas": "2"}, {**schema, "additionalProperties": False})
    for more in ({"additionalProperties": True}, {"patternProperties": {"^d": {}}}, {"anyOf": [{}]}):
        assert typed({"dyas": "2"}, {**schema, **more}) == {"dyas": 2}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("3", {"type": "integer"}, 3),
        ("3", {"type": "string"}, "3"),
        ('"3"', {"type": "string"}, '"3"'),
        ("3", {"type": "number"}, 3),
        ("-1.5", {"type": "number"}, -1.5),
        ("true", {"type": "boolean"}, True),
        ("true", {"type": "string"}, "true"),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("null", {"type": ["string", "null"]}, None),
        ("3", {"type": ["string", "null"]}, "3"),
        ("3", {"anyOf": [{"type": "string"}, {"type": "number"}]}, 3),
        ("x", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "x"),
        ("metric", {"enum": ["metric", "imperial"]}, "metric"),
        ("1", {"enum": ["1", "2"]}, "1"),
        ("1", {"enum": [1, 2]}, 1),
        ("1", {"const": "1"}, "1"),
        ("x", {}, "x"),
        ("3", {}, 3),
        ("x", {"$ref": "#/$defs/X"}, "x"),
        ("3", None, 3),
        ("x y", None, "x y"),
    ],
)
def test_a_text_becomes_what_the_schema_wants(text: str, schema: dict[str, Any] | None, value: Any) -> None:
    whole = {"type": "object", "properties": {} if schema is None else {"a": schema}}
    found = typed({"a": text}, whole)["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("kind", ["integer", "number", "boolean", "array", "object", "null"])
def test_a_text_that_cannot_be_that_is_a_usage_error(kind: str) -> None:
    with pytest.raises(UsageError, match=f"--arg a=few: expected {kind}"):
        typed({"a": "few"}, {"properties": {"a": {"type": kind}}})


@given(st.dictionaries(st.text(), st.text()), st.recursive(st.none() | st.text(), lambda inner: st.lists(inner)))
def test_no_schema_breaks_the_reading(texts: dict[str, str], schema: Any) -> None:
    assert typed(texts, {"properties": schema}).keys() == texts.keys()


def test_arguments_of_prompts_are_texts() -> None:
    assert as_texts({"a": "x", "b": 1, "c": [True]}) == {"a": "x", "b": "1", "c": "[true]"}
    assert msgspec.json.decode(as_texts({"a": {"b": "é"}})["a"]) == {"b": "é"}
