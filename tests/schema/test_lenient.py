"""Lenient reading: what models write is read as a person would, or refused with a path; strings stay strings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._schema import lenient
from mcptrio._schema.build import ArgumentFaults, describe
from mcptrio._schema.lenient import coerced
from tests.schema.names import shown
from tests.schema.spellings import LEFT_OUT, OPTIONAL, SPELLINGS, Item, no
from tests.schema.test_agreement import any_json, any_type


def signature(annotation: Any, *default: Any, closed: bool = False) -> Any:
    def tool(v: Any) -> None: ...

    tool.__annotations__["v"] = annotation
    tool.__defaults__ = default or None
    return describe(tool, injected=lambda cls: False, closed=closed)


def read(described: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Read as a tool does: exactly, then leniently."""
    try:
        return described.bind(arguments)
    except ArgumentFaults:
        return described.bind(coerced(described.input_schema, arguments))


def same(one: Any, other: Any) -> bool:
    return one == other and repr(one) == repr(other)  # 1 is not True


def test_the_corpus_has_two_hundred_spellings() -> None:
    assert len(SPELLINGS) + len(OPTIONAL) >= 200


@pytest.mark.parametrize(("annotation", "given", "expected"), SPELLINGS, ids=shown)
def test_a_spelling_is_read_as_a_person_would_or_refused(annotation: Any, given: Any, expected: Any) -> None:
    described = signature(annotation)
    if isinstance(expected, no):
        with pytest.raises(ArgumentFaults) as refused:
            read(described, {"v": given})
        assert refused.value.faults[0] == f"arguments.{expected}"
    else:
        assert same(read(described, {"v": given})["v"], expected)


@pytest.mark.parametrize(("annotation", "default", "given", "expected"), OPTIONAL, ids=shown)
def test_null_for_a_parameter_that_is_never_null_counts_as_left_out(
    annotation: Any, default: Any, given: Any, expected: Any
) -> None:
    found = read(signature(annotation, default), {"v": given})
    assert found == ({} if expected is LEFT_OUT else {"v": expected})


def test_unknown_arguments_and_fields_are_ignored() -> None:
    arguments = {"v": {"name": "a", "more": 1}, "ctx": 1, "other": None}
    assert read(signature(Item), arguments) == {"v": Item("a")}
    with pytest.raises(ArgumentFaults, match="unexpected field"):
        signature(Item, closed=True).bind(arguments)


STRINGS = st.text(max_size=12) | st.sampled_from(
    ["5", "true", "false", "null", "[]", "{}", '["a"]', '{"f0": 1}', "1e3", "-0", "NaN", " 5 ", '"x"', "[[]]"]
)


@given(type_=any_type, text=STRINGS)
def test_no_string_parameter_is_ever_turned_into_something_else(type_: Any, text: str) -> None:
    for annotation in (str, str | type_, list[str | type_], dict[str, str | type_], Item):
        value: Any = {list[str | type_]: [text], dict[str, str | type_]: {"k": text}, Item: {"name": text}}.get(
            annotation, text
        )
        described = signature(annotation)
        assert coerced(described.input_schema, {"v": value}) == {"v": value}


@given(type_=any_type, value=any_json)
def test_exact_values_are_left_alone(type_: Any, value: Any) -> None:
    described = signature(type_)
    try:
        exact = described.bind({"v": value})
    except ArgumentFaults:
        return
    assert same(read(described, {"v": value}), exact)


HAND_WRITTEN = st.recursive(
    st.sampled_from(
        [True, False, {}, {"type": "integer"}, {"type": ["integer", "null"]}, {"$ref": "#/$defs/a"}, {"const": 1}]
    ),
    lambda inner: (
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner)
        | st.builds(lambda a: {"type": "array", "items": a, "prefixItems": [a]}, inner)
        | st.builds(lambda a, b: {"type": "object", "properties": {"f0": a}, "additionalProperties": b}, inner, inner)
    ),
    max_leaves=5,
)


@given(value=any_json, schema=HAND_WRITTEN)
def test_no_schema_written_by_hand_makes_it_fail(value: Any, schema: Any) -> None:
    root = {
        "type": "object",
        "properties": {"v": schema},
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}},
    }
    coerced(root, {"v": value})
    coerced(root, {"v": str(value)})


@pytest.mark.parametrize(
    "text",
    [
        "[" * 2_000_000,
        "[[]," + "[]," * 1_000_000 + "1]",
        '{"a":' * 500_000,
        "[" + "1," * 1_000_000 + "1]",
        "9" * 4_000_000,
    ],
    ids=["deep", "wide", "objects", "numbers", "digits"],
)
def test_a_hostile_text_is_refused_without_being_decoded(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    described = signature(list[list[int]])
    decoded, real = list[Any](), lenient._Coercion._decoded
    monkeypatch.setattr(lenient._Coercion, "_decoded", lambda *args: decoded.append(real(*args)) or decoded[-1])
    assert coerced(described.input_schema, {"v": text})["v"] is text
    assert decoded == [lenient._NOTHING]
    with pytest.raises(ArgumentFaults, match=r"arguments\.v: expected array"):
        read(described, {"v": text})


def test_many_texts_share_one_budget() -> None:
    texts = ["[" + "1," * 2_000 + "1]"] * 30
    out = coerced(signature(list[list[int]]).input_schema, {"v": texts})["v"]
    assert 0 < sum(isinstance(one, list) for one in out) <= 5


def test_a_long_list_of_values_of_a_wide_union_takes_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [{"type": "object", "properties": {"k": {"const": str(n)}}, "required": ["k"]} for n in range(500)]
    schema = {"type": "object", "properties": {"v": {"type": "array", "items": {"anyOf": members}}}}
    looks = []
    real = lenient._Coercion._has_tags
    monkeypatch.setattr(lenient._Coercion, "_has_tags", lambda *args: looks.append(1) or real(*args))
    coerced(schema, {"v": [{"k": "499", "x": "5"}] * 2_000})
    assert 0 < len(looks) <= lenient.MAX_STEPS


@pytest.mark.defect("S2")
def test_more_values_than_a_model_writes_are_read_exactly_only() -> None:
    schema = signature(list[int]).input_schema
    few, many = {"v": ["1"] * 1000}, {"v": ["1"] * 20_000}
    assert coerced(schema, few) == {"v": [1] * 1000}
    assert coerced(schema, many) is many
