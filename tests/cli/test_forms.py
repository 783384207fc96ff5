"""Forms at a terminal: what is shown of a field, and what a typed line means."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._schema.check import Checker
from mcptrio.cli.forms import FormField, fields_of

SIZES = {"type": "string", "enum": ["s", "l"]}
NAMED = {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]}
TITLED = {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]}
DIGITS = {"type": "string", "enum": ["3", "2", "1"]}
SEVERAL = {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "maxItems": 2}
SEVERAL_TITLED = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "First"}]}}


def field(schema: dict[str, Any], *, required: bool = True) -> FormField:
    (found,) = fields_of({"properties": {"x": schema}, "required": ["x"] if required else []})
    return found


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "hello", "hello"),
        ({"type": "integer"}, "-3", -3),
        ({"type": "number"}, "3", 3),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "boolean"}, "Y", True),
        ({"type": "boolean"}, "no", False),
        (SIZES, "l", "l"),
        (SIZES, "2", "l"),
        (NAMED, "large", "l"),
        (TITLED, "Small", "s"),
        (TITLED, "2", "l"),
        (DIGITS, "3", "3"),  # the value, not the third choice
        (SEVERAL, "a, 3", ["a", "c"]),
        (SEVERAL_TITLED, "first", ["a"]),
        ({"type": "string", "format": "date"}, "2026-01-01", "2026-01-01"),
        ({}, "[1]", [1]),
        ({}, "words", "words"),
    ],
)
def test_a_line_is_read_as_the_field_wants_it(schema: dict[str, Any], text: str, value: Any) -> None:
    found = field(schema).read(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer"}, "1.5"),
        ({"type": "integer"}, "ten"),
        ({"type": "integer", "maximum": 9}, "10"),
        ({"type": "number"}, "nan"),
        ({"type": "number"}, "inf"),
        ({"type": "number"}, "x"),
        ({"type": "boolean"}, "perhaps"),
        ({"type": "string", "minLength": 3}, "ab"),
        (SIZES, "m"),
        (SIZES, "3"),
        (SIZES, "0"),
        (SEVERAL, "a, b, c"),
        (SEVERAL, "d"),
        ({"type": "strin"}, "x"),
    ],
)
def test_a_line_that_does_not_fit_is_refused_with_a_reason(schema: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:
        field(schema).read(text)
    assert str(caught.value)


@given(
    st.sampled_from([SIZES, NAMED, TITLED, SEVERAL, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}]),
    st.text(),
)
def test_no_line_breaks_a_field(schema: dict[str, Any], text: str) -> None:
    with suppress(ValueError):
        assert not fault(schema, field(schema).read(text))


def fault(schema: dict[str, Any], value: Any) -> str:
    return "; ".join(Checker(schema).faults(value))


@pytest.mark.parametrize(
    ("schema", "required", "hint"),
    [
        ({"type": "string"}, True, ""),
        ({"type": "string"}, False, "Enter: nothing"),
        ({"type": "string", "default": "x"}, True, "Enter: x"),
        ({"type": "string", "default": ""}, True, "Enter: nothing"),
        ({"type": "boolean", "default": False}, False, "y/n, Enter: no"),
        ({"type": "integer", "minimum": 1, "maximum": 9}, True, "whole number, at least 1, at most 9"),
        ({**TITLED, "default": "l"}, True, "number or name, Enter: Large"),
        ({**SEVERAL, "default": ["a", "b"]}, True, "numbers or names, with commas, at most 2, Enter: a, b"),
        ({"type": "string", "format": "email"}, True, "email"),
    ],
)
def test_the_hint_says_what_can_be_typed(schema: dict[str, Any], required: bool, hint: str) -> None:
    found = field(schema, required=required)
    assert found.hint(found.default) == hint


@pytest.mark.defect("E29")
@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("email", "ada@example.org", "ada"),
        ("uri", "https://example.org/x", "example"),
        ("date", "2026-01-31", "31.01.2026"),
        ("date-time", "2026-01-31T12:00:00Z", "2026-01-31"),
    ],
)
def test_a_format_is_checked_at_the_field(name: str, text: str, wrong: str) -> None:
    found = field({"type": "string", "format": name})
    assert found.read(text) == text
    with pytest.raises(ValueError, match=r"^expected an? .* such as "):
        found.read(wrong)


def test_a_default_is_checked_like_an_answer() -> None:
    with pytest.raises(ValueError, match="expected a date"):
        field({"type": "string", "format": "date", "default": "soon"}).check("soon")


def test_a_form_keeps_its_order_and_its_words() -> None:
    fields = fields_of(
        {
            "properties": {"b": {"type": "string", "title": "Bee", "description": "buzz"}, "a": {"type": "string"}},
            "required": ["a"],
        }
    )
    assert [(one.name, one.title, one.description, one.required) for one in fields] == [
        ("b", "Bee", "buzz", False),
        ("a", "a", "", True),
    ]


@pytest.mark.parametrize("schema", [{}, {"properties": []}, {"properties": {"x": 1}}, {"type": "object"}])
def test_a_form_without_fields_has_none(schema: dict[str, Any]) -> None:
    assert fields_of(schema) == ()
