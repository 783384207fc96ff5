"""Schemas whose references multiply, and values that would take too long to check."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._schema.budget import MAX_WORK, SchemaBudget
from mcptrio._schema.check import Checker, SchemaLimits
from mcptrio.errors import DeclarationError


def chain(length: int, link: Any) -> dict[str, Any]:
    """A chain of definitions; `link` makes one from the reference to the next."""
    defs = {f"d{n}": link({"$ref": f"#/$defs/d{n + 1}"}) for n in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{length}": {"type": "string"}}}


def nested(length: int, around: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(length):
        schema = around(schema)
    return schema


def deep(depth: int, around: Any) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = around(value)
    return value


EXPLOSIONS = {
    "allOf": chain(14, lambda ref: {"allOf": [ref, ref]}),
    "a longer chain": chain(60, lambda ref: {"allOf": [ref, ref]}),
    "anyOf": chain(14, lambda ref: {"anyOf": [ref, ref]}),
    "oneOf": chain(40, lambda ref: {"oneOf": [ref, ref]}),
    "not and if": chain(40, lambda ref: {"not": ref, "if": ref, "then": ref}),
    "$ref next to allOf": chain(40, lambda ref: {**ref, "allOf": [ref]}),
    "dependentSchemas": chain(40, lambda ref: {"dependentSchemas": {"a": ref, "b": ref}}),
    "unevaluated": nested(20, lambda inner: {"unevaluatedProperties": {"type": "object"}, "oneOf": [inner]}),
    "a decoy with the same id": {
        "$defs": {"bomb": {"$id": "http://x/a", **chain(30, lambda ref: {"allOf": [ref, ref]})}},
        "const": {"$id": "http://x/a"},
        "$ref": "http://x/a",
    },
}


@pytest.mark.defect("S3")
@pytest.mark.parametrize("name", EXPLOSIONS)
def test_a_schema_that_expands_too_far_is_refused(name: str) -> None:
    with pytest.raises(DeclarationError, match=r"expand too far|too complex"):
        Checker(EXPLOSIONS[name], limits=SchemaLimits())


CIRCLES: dict[str, dict[str, Any]] = {
    "itself": {"$ref": "#"},
    "itself in a circle": {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#"}}},
    "itself by an anchor": {"$anchor": "me", "allOf": [{"$ref": "#me"}]},
    "itself by an id": {"$id": "http://x/y", "allOf": [{"$ref": "y"}]},
    "itself dynamically": {"$dynamicAnchor": "me", "allOf": [{"$dynamicRef": "#me"}]},
    "itself recursively": {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveAnchor": True,
        "allOf": [{"$recursiveRef": "#"}],
    },
    "itself below a property": {"properties": {"a": {"$ref": "#/properties/a"}}},
    "itself twice": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "each other twice": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}] * 2}, "b": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}},
    },
}


@pytest.mark.parametrize("name", CIRCLES)
def test_a_circle_of_references_is_followed_once(name: str) -> None:
    Checker(CIRCLES[name], limits=SchemaLimits()).faults({"a": 1})


@pytest.mark.defect("S3")
def test_many_ways_through_a_circle_are_refused() -> None:
    everyone = [{"$ref": f"#/$defs/d{n}"} for n in range(12)]
    schema = {"$defs": {f"d{n}": {"anyOf": everyone} for n in range(12)}, "$ref": "#/$defs/d0"}
    with pytest.raises(DeclarationError, match="expand too far"):
        Checker(schema, limits=SchemaLimits())


PAIR = {"patternProperties": {"a": {"$ref": "#"}, "^a": {"$ref": "#"}}}
EXPRESSION = {
    "anyOf": [
        {"type": "number"},
        {"properties": {"op": {"const": "add"}, "left": {"$ref": "#"}, "right": {"$ref": "#"}}, "required": ["op"]},
        {"properties": {"op": {"const": "mul"}, "left": {"$ref": "#"}, "right": {"$ref": "#"}}, "required": ["op"]},
    ]
}
STEPS = chain(40, lambda ref: {"properties": {"a": ref}, "additionalProperties": False, "patternProperties": {"": ref}})


@pytest.mark.defect("S3")
@pytest.mark.parametrize(
    ("schema", "around"),
    [
        (PAIR, lambda value: {"a": value}),
        (EXPRESSION, lambda value: {"op": "mul", "left": value}),
        (STEPS, lambda value: {"a": value}),
        ({"items": {"$ref": "#"}, "contains": {"$ref": "#"}}, lambda value: [value]),
    ],
)
def test_a_cycle_that_multiplies_is_for_flat_values_only(schema: dict[str, Any], around: Any) -> None:
    checker = Checker(schema, limits=SchemaLimits())
    checker.faults(deep(4, around))
    assert "too large" not in str(checker.faults(deep(4, around)))
    assert checker.faults(deep(60, around)) == ["arguments: too large to be checked against its schema"]


@pytest.mark.defect("S3")
def test_a_value_over_the_budget_is_a_fault() -> None:
    wide = {"items": {"anyOf": [{"const": f"option {n}"} for n in range(500)]}}
    checker = Checker(wide, limits=SchemaLimits())
    assert checker.faults(["option 1"] * 500) == []
    assert checker.faults(["option 1"] * 5_000) == ["arguments: too large to be checked against its schema"]


@pytest.mark.defect("S3")
def test_a_pattern_that_backtracks_counts_for_more() -> None:
    plain, backtracking = ({"items": {"pattern": pattern}} for pattern in ("^a+b$", "^(?:(?=a)a|a)+$"))
    values = ["a" * 30 + "c"] * 6_000
    assert "too large to report" in str(Checker({**plain, "maxItems": 1}, limits=SchemaLimits()).faults(values * 2))
    assert "too large to be checked" in str(Checker(backtracking, limits=SchemaLimits()).faults(values))


@pytest.mark.defect("S3")
def test_of_a_large_value_the_first_fault_is_reported() -> None:
    schema = {"items": {"anyOf": [{"const": n} for n in range(100)]}}
    assert len(Checker(schema).faults(["x"] * 15)) == 15
    first, rest = Checker(schema).faults(["x"] * 1_000)
    assert first.startswith("arguments[0]: ")
    assert rest == "and perhaps more: the value is too large to report every fault"


TREE = {"type": "object", "properties": {"value": {"type": "number"}, "children": {"items": {"$ref": "#"}}}}
JSON = {
    "$defs": {
        "json": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/json"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/json"}},
            ]
        }
    },
    "$ref": "#/$defs/json",
}
SHARED = {
    "properties": {f"p{n}": {"$ref": "#/$defs/one"} for n in range(100)},
    "$defs": {
        "one": {"properties": {f"q{n}": {"$ref": "#/$defs/two"} for n in range(100)}},
        "two": {"properties": {f"r{n}": {"$ref": "#/$defs/three"} for n in range(100)}},
        "three": {"type": "string"},
    },
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TREE, deep(60, lambda value: {"value": 1, "children": [value] if value != 1 else []})),
        (JSON, deep(60, lambda value: [value])),
        (JSON, deep(60, lambda value: {"a": value})),
        (SHARED, {f"p{n}": {f"q{n}": {f"r{n}": "x"} for n in range(100)} for n in range(100)}),
        (EXPRESSION, deep(8, lambda value: {"op": "mul", "left": value, "right": 2})),
        ({"enum": [f"{n}" for n in range(300)]}, "7"),
        ({"items": {"enum": [f"{n}" for n in range(300)]}}, ["7"] * 20_000),
    ],
)  # fmt: skip
def test_ordinary_recursive_and_large_schemas_are_used(schema: dict[str, Any], value: Any) -> None:
    assert Checker(schema, limits=SchemaLimits()).faults(value) == []


def test_alternatives_by_name_count_once_and_what_meets_counts_together() -> None:
    one = {"type": "string"}
    apart = SchemaBudget({"properties": {"a": one, "b": one}, "additionalProperties": one})
    together = SchemaBudget(
        {"properties": {"a": one}, "patternProperties": {"": one}, "allOf": [{"properties": {"a": one}}]}
    )
    assert [apart.work_at(depth) for depth in range(3)] == [1, 1, 0]
    assert [together.work_at(depth) for depth in range(3)] == [2, 3, 0]


def test_a_reference_out_of_the_schema_is_refused_for_a_peer() -> None:
    meta = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    assert Checker(meta).faults({"type": "string"}) == []
    with pytest.raises(DeclarationError, match="leads outside"):
        Checker(meta, limits=SchemaLimits())


NAMES = ["a", "b", "c"]
refs = st.sampled_from([{"$ref": f"#/$defs/{name}"} for name in NAMES])
schemas = st.recursive(
    refs | st.just({"type": "string"}) | st.just({"type": "object"}),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)}),
        st.fixed_dictionaries({"patternProperties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)}),
        st.fixed_dictionaries({"additionalProperties": inner, "properties": st.dictionaries(st.just("a"), inner)}),
        st.fixed_dictionaries({"items": inner, "contains": inner}),
        st.fixed_dictionaries({"prefixItems": st.lists(inner, min_size=1, max_size=2), "items": inner}),
    ),
    max_leaves=6,
)
values = st.recursive(
    st.integers(0, 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)


@given(defs=st.fixed_dictionaries(dict.fromkeys(NAMES, schemas)), root=schemas, value=values)
def test_a_validator_reports_no_more_faults_than_the_budget_foresees(
    defs: dict[str, Any], root: dict[str, Any], value: Any
) -> None:
    """Every applied schema here reports at most one fault of its own, or two for an array."""
    schema = {"allOf": [root], "$defs": defs}
    try:
        cost = SchemaBudget(schema).measure(value)
    except DeclarationError:
        return
    assert cost is not None
    assert cost[1] < MAX_WORK
    assert sum(1 for _ in jsonschema_rs.validator_for(schema).iter_errors(value)) <= cost[0]
