"""Values against schemas that were written by hand or came from a peer."""

from __future__ import annotations

import pathlib
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._schema.check import Checker, SchemaLimits
from mcptrio.errors import DeclarationError
from tests.schema.names import shown

ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "size": {"enum": ["s", "l"]},
        "kind": {"const": "order"},
        "note": {"type": ["string", "null"], "maxLength": 3},
        "code": {"pattern": "^a+$"},
    },
    "required": ["items"],
    "additionalProperties": False,
    "$defs": {
        "line": {
            "type": "object",
            "properties": {"qty": {"type": "integer", "minimum": 1}},
            "required": ["qty"],
        }
    },
}


@pytest.mark.parametrize(
    ("value", "faults"),
    [
        ({"items": []}, []),
        ({"items": [{"qty": 1}, {"qty": 2}, {"qty": "x"}]}, ['arguments.items[2].qty: expected integer, got "x"']),
        ({"items": [{}]}, ["arguments.items[0].qty: required"]),
        ({"nope": 1}, ["arguments.items: required", 'arguments: unexpected field "nope"']),
        ({"items": [], "size": "m"}, ['arguments.size: expected "s" or "l", got "m"']),
        ({"items": [], "kind": "x"}, ['arguments.kind: expected "order", got "x"']),
        ({"items": [], "note": 5}, ["arguments.note: expected null or string, got 5"]),
        ({"items": [], "note": "long"}, ['arguments.note: is longer than 3 characters, got "long"']),
        ({"items": [{"qty": 0}]}, ["arguments.items[0].qty: must be at least 1, got 0"]),
        ({"items": [], "code": "b"}, ['arguments.code: must match ^a+$, got "b"']),
        ([], ["arguments: expected object, got an array"]),
    ],
    ids=shown,
)
def test_every_fault_has_its_path(value: Any, faults: list[str]) -> None:
    assert sorted(Checker(ORDER).faults(value)) == sorted(faults)


def test_the_root_of_the_path_can_be_named() -> None:
    assert Checker({"type": "string"}).faults(1, root="result") == ["result: expected string, got 1"]


def test_long_values_and_long_lists_of_faults_are_cut() -> None:
    checker = Checker({"items": {"allOf": [{"maxLength": 1}, {"not": {"type": "string"}}]}})
    lines = checker.faults(["x" * 10_000] * 300)
    assert len(lines) == 101
    assert lines[-1] == "and more"
    assert max(map(len, lines)) < 400


@pytest.mark.parametrize(
    "target", ["http://example.org/s", "https://example.org/s", "file:///etc/passwd", "ftp://a/b", "other.json"]
)
def test_a_reference_to_the_outside_is_refused(target: str) -> None:
    for schema in (
        {"$ref": target},
        {"properties": {"a": {"$ref": target}}},
        {"$defs": {"x": {"$ref": target}}, "$ref": "#/$defs/x"},
    ):
        with pytest.raises(DeclarationError, match="leads nowhere"):
            Checker(schema)


def test_a_reference_is_not_followed_even_when_it_could_be(tmp_path: pathlib.Path) -> None:
    """The file exists and holds a good schema: only a validator that fetches nothing refuses it."""
    file = tmp_path / "schema.json"
    file.write_text('{"type": "string"}')
    with pytest.raises(DeclarationError, match="leads nowhere"):
        Checker({"$ref": file.as_uri()})


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"$ref": "#/$defs/no"}, "leads nowhere"),
        ({"$ref": "#no"}, "leads nowhere"),
        ({"type": "nope"}, r"is not valid: schema\.type"),
        ({"properties": {"a": {"minimum": "x"}}}, r"is not valid: schema\.properties\.a\.minimum"),
        ({"pattern": "("}, "is not valid"),
        ({"$schema": "https://example.org/mine"}, "names the dialect"),
        ({"$schema": 5}, "names the dialect"),
    ],
    ids=shown,
)
def test_a_schema_that_cannot_be_used_is_refused_with_a_reason(schema: Any, text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        Checker(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"a": {"type": "string"}},
            "$ref": "#/definitions/a",
        },
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "string"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$anchor": "here", "type": "string"}}},
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "string"}}},
    ],
    ids=shown,
)
def test_known_dialects_and_local_references_work(schema: Any) -> None:
    checker = Checker(schema)
    assert checker.faults("x") == []
    assert checker.faults(1) == ["arguments: expected string, got 1"]


def test_a_schema_that_refers_to_itself_is_bounded() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert Checker(tree).faults({"next": {"next": {"next": 1}}}) == ["arguments.next.next.next: expected object, got 1"]
    assert Checker({"$ref": "#"}).faults(1) == []


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(?=(a+)+$)b"])
def test_a_pattern_with_catastrophic_backtracking_ends(pattern: str) -> None:
    """Python's own `re` would need exponential time."""
    assert len(Checker({"pattern": pattern}).faults("a" * 50_000 + "c")) == 1


def test_a_value_nested_without_end_is_a_fault_and_no_crash() -> None:
    value: Any = 1
    for _ in range(50_000):
        value = [value]
    assert len(Checker({"items": {"$ref": "#"}}).faults(value)) == 1


def test_schemas_of_a_peer_are_bounded() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"not": deep}
    wide = {"properties": {f"p{i}": {"type": "string"} for i in range(20)}}
    for schema, limits, text in (
        (deep, SchemaLimits(), "nested deeper than 64"),
        (wide, SchemaLimits(max_nodes=10), "too big"),
        ({"description": "x" * 100}, SchemaLimits(max_chars=99), "too big"),
        ({"allOf": [{"$ref": "#/$defs/a"}] * 5, "$defs": {"a": {}}}, SchemaLimits(max_refs=4), "too big"),
    ):
        with pytest.raises(DeclarationError, match=text):
            Checker(schema, limits=limits)
    Checker(wide, limits=SchemaLimits())


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 2.0])
    | st.sampled_from(["", "a", "s", "order"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["items", "qty", "size", "note", "z"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=json_values)
def test_the_checker_agrees_with_the_reference_implementation(value: Any) -> None:
    assert (not Checker(ORDER).faults(value)) == jsonschema.Draft202012Validator(ORDER).is_valid(value)


@given(items=st.lists(st.fixed_dictionaries({"qty": json_values}), max_size=3))
def test_the_checker_agrees_on_nested_values(items: Any) -> None:
    value = {"items": items}
    assert (not Checker(ORDER).faults(value)) == jsonschema.Draft202012Validator(ORDER).is_valid(value)
