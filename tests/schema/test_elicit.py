"""Forms: what may be asked, how it is written, how the answer is read."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import attrs
import jsonschema
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._schema.elicit import Form, Format, Titles, fill_defaults, form_of
from mcptrio._schema.faults import ArgumentFaults
from mcptrio.errors import DeclarationError
from tests.schema.names import shown


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


COLOURS = {"#f00": "Red", "#00f": "Blue"}


@dataclasses.dataclass
class Everything:
    """Not sent: a form has no description of its own."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=9, title="Name", description="Yours.")]
    email: Annotated[str, Format("email")]
    age: Annotated[int, msgspec.Meta(ge=18, le=99)]
    untitled: Literal["a", "b"]
    titled: Annotated[Size, Titles({"s": "Small", "l": "Large"})]
    free: Annotated[str, Titles(COLOURS)]
    legacy: Annotated[Literal["a", "b"], Titles({"a": "First", "b": "Second"}, legacy=True)]
    many: list[Size]
    many_titled: Annotated[list[Literal["a", "b"]], Titles({"a": "A", "b": "B"}), msgspec.Meta(max_length=1)]
    many_free: Annotated[list[str], Titles(COLOURS)]
    score: float = 95.5
    sure: bool = True
    day: datetime.date = datetime.date(2026, 1, 31)
    status: Literal["active", "pending"] = "active"
    note: str | None = None


FIELDS = {
    "name": {"type": "string", "minLength": 1, "maxLength": 9, "title": "Name", "description": "Yours."},
    "email": {"type": "string", "format": "email"},
    "age": {"type": "integer", "minimum": 18, "maximum": 99},
    "untitled": {"type": "string", "enum": ["a", "b"]},
    "titled": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
    "free": {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#00f", "title": "Blue"}]},
    "legacy": {"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"]},
    "many": {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}},
    "many_titled": {
        "type": "array",
        "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]},
        "maxItems": 1,
    },
    "many_free": {
        "type": "array",
        "items": {"anyOf": [{"const": "#f00", "title": "Red"}, {"const": "#00f", "title": "Blue"}]},
    },
    "score": {"type": "number", "default": 95.5},
    "sure": {"type": "boolean", "default": True},
    "day": {"type": "string", "format": "date", "default": "2026-01-31"},
    "status": {"type": "string", "enum": ["active", "pending"], "default": "active"},
    "note": {"type": "string"},
}
ANSWER: dict[str, Any] = {
    "name": "Ann",
    "email": "a@b.c",
    "age": 30,
    "untitled": "a",
    "titled": "l",
    "free": "#f00",
    "legacy": "b",
    "many": ["s", "l"],
    "many_titled": ["a"],
    "many_free": [],
}


def test_every_kind_of_field_is_written_as_the_specification_says() -> None:
    schema = form_of(Everything).schema
    assert schema["properties"] == FIELDS
    assert schema.keys() == {"type", "properties", "required"}
    assert schema["required"] == list(ANSWER)


def test_an_answer_is_read_as_the_type_with_its_defaults() -> None:
    value = form_of(Everything).parse(ANSWER)
    assert (value.titled, value.many, value.day) == (Size.LARGE, [Size.SMALL, Size.LARGE], datetime.date(2026, 1, 31))


@pytest.mark.parametrize(
    ("field", "wrong", "fault"),
    [
        ("name", "", 'content.name: must have at least 1 characters, got ""'),
        ("age", 17, "content.age: must be at least 18, got 17"),
        ("titled", "x", 'content.titled: expected "s" or "l", got "x"'),
        ("free", "x", 'content.free: expected "#f00" or "#00f", got "x"'),
        ("many_titled", ["a", "b"], "content.many_titled: must have at most 1 items, got an array"),
        ("many_free", ["x"], 'content.many_free: expected "#f00" or "#00f", got an array'),
        ("sure", "yes", 'content.sure: expected boolean, got "yes"'),
    ],
)
def test_a_wrong_answer_is_named(field: str, wrong: Any, fault: str) -> None:
    with pytest.raises(ArgumentFaults) as caught:
        form_of(Everything).parse({**ANSWER, field: wrong})
    assert caught.value.faults == (fault,)
    if field != "free":
        assert not jsonschema.Draft202012Validator(form_of(Everything).schema).is_valid({**ANSWER, field: wrong})


def test_all_wrong_answers_are_named_at_once() -> None:
    with pytest.raises(ArgumentFaults) as caught:
        form_of(Everything).parse({**{k: v for k, v in ANSWER.items() if k != "name"}, "age": "x"})
    assert caught.value.faults == ("content.name: required", 'content.age: expected integer, got "x"')


class Dict(TypedDict):
    a: str
    b: NotRequired[int]


class Struct(msgspec.Struct):
    a: str
    b: int = 1


@attrs.frozen
class Attrs:
    a: str
    b: int = 1


class Model(pydantic.BaseModel):
    a: str
    b: int = 1
    size: Size = Size.SMALL
    maybe: str | None = None


@pytest.mark.parametrize("type_", [Dict, Struct, Attrs, Model])
def test_every_kind_of_record_can_be_a_form(type_: Any) -> None:
    schema = form_of(type_).schema
    assert schema["required"] == ["a"]
    assert schema["properties"]["a"]["type"] == "string"
    assert schema["properties"]["b"]["type"] == "integer"
    value = form_of(type_).parse({"a": "x", "more": 1})
    assert (value["a"] if isinstance(value, dict) else value.a) == "x"


def test_a_pydantic_model_is_made_flat() -> None:
    assert form_of(Model).schema["properties"]["size"] == {
        "type": "string",
        "enum": ["s", "l"],
        "title": "Size",
        "default": "s",
    }
    assert form_of(Model).schema["properties"]["maybe"] == {"type": "string", "title": "Maybe"}


@pytest.mark.parametrize(
    ("type_", "field", "content", "value"),
    [
        (bool, {"type": "boolean"}, True, True),
        (Size, {"type": "string", "enum": ["s", "l"]}, "s", Size.SMALL),
        (Annotated[int, msgspec.Meta(ge=1)], {"type": "integer", "minimum": 1}, 3, 3),
        (list[Literal["a", "b"]], {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, ["a"], ["a"]),
    ],
    ids=shown,
)
def test_a_single_value_becomes_a_form_with_one_field(type_: Any, field: Any, content: Any, value: Any) -> None:
    assert form_of(type_).schema == {"type": "object", "properties": {"value": field}, "required": ["value"]}
    assert form_of(type_).parse({"value": content}) == value
    with pytest.raises(ArgumentFaults, match=r"content\.value: required"):
        form_of(type_).parse({})


def test_a_field_that_may_be_none_may_be_left_out() -> None:
    @dataclasses.dataclass
    class Maybe:
        a: int | None

    form = Form(Maybe)
    assert "required" not in form.schema
    assert form.parse({}) == Maybe(None)
    assert form.parse(None) == Maybe(None)


@dataclasses.dataclass
class Inner:
    x: int


@pytest.mark.parametrize(
    "type_", [Inner, dict[str, int], list[str], list[Inner], int | str, Any, tuple[int, int], None], ids=shown
)
def test_a_nested_form_is_refused_with_a_hint(type_: Any) -> None:
    holder = dataclasses.make_dataclass("Holder", [("field", type_)])
    with pytest.raises(DeclarationError, match="may only hold flat fields"):
        form_of(holder)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: form_of(Literal[1, 2]).schema, "choices that are strings"),
        (lambda: form_of(Annotated[Size, Titles({"x": "X"})]).schema, "cannot be chosen"),
        (lambda: form_of(Annotated[int, Titles({"x": "X"})]).schema, "need a choice"),
        (lambda: form_of(Annotated[list[Size], Titles({"s": "S"}, legacy=True)]).schema, "leave `legacy` out"),
        (lambda: Titles({}), "nothing to choose"),
        (lambda: Format("colour"), "knows no format"),
    ],
)
def test_contradictory_annotations_are_refused(make: Any, text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        make()


def test_titles_left_out_are_the_values_themselves() -> None:
    schema = form_of(Annotated[Size, Titles({"s": "Small"})]).schema
    assert schema["properties"]["value"]["oneOf"] == [{"const": "s", "title": "Small"}, {"const": "l", "title": "l"}]


def test_the_client_fills_in_defaults_and_keeps_given_values() -> None:
    filled = fill_defaults(form_of(Everything).schema, {"score": 1.0})
    assert filled == {"score": 1.0, "sure": True, "day": "2026-01-31", "status": "active"}
    assert fill_defaults({"type": "object"}, {"a": 1}) == {"a": 1}
    assert fill_defaults({"properties": {"a": True, "b": {"default": None}}}, {}) == {"b": None}


FLAT = st.sampled_from([str, int, bool, Size, Literal["a", "b"], list[Size], Annotated[str, Titles(COLOURS)]])
ANSWERS = st.one_of(
    st.sampled_from(["s", "a", "#f00", "zz"]), st.integers(), st.booleans(), st.just(["s"]), st.just(["q"])
)


@given(types=st.lists(FLAT, min_size=1, max_size=3), data=st.data())
def test_an_answer_is_taken_when_the_schema_takes_it(types: list[Any], data: st.DataObject) -> None:
    form = Form(dataclasses.make_dataclass("Drawn", [(f"f{i}", t) for i, t in enumerate(types)]))
    jsonschema.Draft202012Validator.check_schema(form.schema)
    content = data.draw(st.fixed_dictionaries({}, optional={f"f{i}": ANSWERS for i in range(len(types))}))
    if jsonschema.Draft202012Validator(form.schema).is_valid(content):
        form.parse(content)
    else:
        with pytest.raises(ArgumentFaults):
            form.parse(content)
