"""Types that need care: strict and aliased pydantic models, flags, typed dictionaries, patterns, defaults."""

from __future__ import annotations

import datetime
import enum
from typing import Annotated, Any

import jsonschema
import msgspec
import pydantic
import pytest
import typing_extensions

from mcptrio._schema.build import ArgumentFaults, describe, dump, output_schema
from mcptrio.errors import DeclarationError


class Strict(pydantic.BaseModel, strict=True):
    when: datetime.date
    pair: tuple[int, int]
    tags: set[str]


class Aliased(pydantic.BaseModel):
    id: int = pydantic.Field(validation_alias="ID", serialization_alias="Id")
    secret: str = pydantic.Field(default="s", exclude=True)

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def double(self) -> int:
        return 2 * self.id


class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    OWN = 8


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Town(typing_extensions.TypedDict):
    name: str
    people: typing_extensions.NotRequired[int]


def bind(type_: Any, value: Any) -> Any:
    def tool(v: Any) -> None: ...

    tool.__annotations__["v"] = type_
    return describe(tool, injected=lambda cls: False).bind({"v": value})["v"]


@pytest.mark.defect("C10")
def test_a_strict_model_takes_what_json_has() -> None:
    read = bind(Strict, {"when": "2026-01-31", "pair": [1, 2], "tags": ["a"]})
    assert read == Strict(when=datetime.date(2026, 1, 31), pair=(1, 2), tags={"a"})
    with pytest.raises(ArgumentFaults, match=r"arguments.v.pair\[0\]: "):
        bind(Strict, {"when": "2026-01-31", "pair": ["1", 2], "tags": []})


@pytest.mark.defect("C10")
def test_a_text_that_is_no_unicode_is_a_fault_of_the_model() -> None:
    with pytest.raises(ArgumentFaults, match=r"arguments.v"):
        bind(Strict, {"when": "\ud800", "pair": [1, 2], "tags": []})


@pytest.mark.defect("C11")
@pytest.mark.parametrize(
    ("annotation", "wrap"),
    [(list[Aliased], lambda v: [v]), (Aliased | None, lambda v: v), (dict[str, Aliased], lambda v: {"a": v})],
    ids=["list", "optional", "mapping"],
)
def test_a_model_is_checked_as_it_is_written(annotation: Any, wrap: Any) -> None:
    output = output_schema(annotation)
    assert output is not None
    value = wrap(Aliased(ID=3))
    assert output.faults(dump(value)) == []
    assert "'Id': 3" in str(dump(value))
    assert "secret" not in str(dump(value))
    jsonschema.validate(output.structured(value), output.schema, cls=jsonschema.Draft202012Validator)
    assert output.faults(dump(wrap({"Id": 3}))) != []  # the computed field is missing


@pytest.mark.defect("C12")
@pytest.mark.parametrize(("type_", "good"), [(Rights, (0, 1, 3, 9, 11)), (Bits, (0, 3))])
def test_flags_can_be_combined(type_: Any, good: tuple[int, ...]) -> None:
    def tool(v: Any) -> None: ...

    tool.__annotations__["v"] = type_
    described = describe(tool, injected=lambda cls: False)
    for number in good:
        jsonschema.validate({"v": number}, described.input_schema)
        read = described.bind({"v": number})["v"]
        assert read == type_(number)
        assert isinstance(read, type_)
        assert dump(read) == number
    for bad in (-1, 4, 16, "READ", 1.5, True):
        with pytest.raises(ArgumentFaults, match="expected a sum of 1"):
            described.bind({"v": bad})


@pytest.mark.defect("C13")
def test_a_typed_dict_of_typing_extensions_is_one() -> None:
    assert bind(Town, {"name": "a"}) == {"name": "a"}
    with pytest.raises(ArgumentFaults, match=r"arguments.v.people: expected integer"):
        bind(Town, {"name": "a", "people": "many"})
    output = output_schema(Town)
    assert output is not None
    assert output.schema["required"] == ["name"]


@pytest.mark.defect("C27")
@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^[0-9]+$", "12", "12\n"),
        (r"^\d+$", "12", "\u0661"),
        (r"^\w+$", "a", "\u00e9"),
        ("^(a+)+$", "aa", "a" * 99 + "b"),
    ],
)
def test_a_pattern_means_what_the_published_schema_means(pattern: str, good: str, bad: str) -> None:
    type_ = Annotated[str, msgspec.Meta(pattern=pattern)]
    assert bind(type_, good) == good
    with pytest.raises(ArgumentFaults, match="must match"):
        bind(type_, bad)


@pytest.mark.defect("C27")
def test_a_pattern_that_only_python_knows_is_refused() -> None:
    with pytest.raises(DeclarationError, match="ECMA 262"):
        bind(Annotated[str, msgspec.Meta(pattern=r"^a\Z")], "a")


def wrong_number(a: int = "3") -> None: ...  # type: ignore[assignment]  # the mistake


def no_none(a: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013 - the mistake


def wrong_list(a: list[int] = ["x"]) -> None: ...  # type: ignore[list-item]  # noqa: B006 - the mistake


@pytest.mark.defect("U14")
@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (wrong_number, 'parameter `a` of `wrong_number`: its default: expected integer, got "3"'),
        (no_none, "its default: expected string, got null; write `… | None` to allow None"),
        (wrong_list, "expected integer"),
    ],
)
def test_a_default_of_the_wrong_type_is_refused(fn: Any, text: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        describe(fn, injected=lambda cls: False)
    assert text in str(caught.value)


def test_a_default_without_a_json_form_is_left_alone() -> None:
    marker: Any = object()

    def tool(a: int = marker, b: float = 1, c: Rights = Rights.READ | Rights.WRITE) -> None: ...

    assert describe(tool, injected=lambda cls: False).bind({}) == {}


@pytest.mark.defect("S2")
def test_reading_stops_when_no_further_fault_would_be_reported() -> None:
    read: list[Any] = []

    class Watched:
        def __mcp_check__(self, value: Any) -> str | None:
            read.append(value)
            return "never"

    with pytest.raises(ArgumentFaults) as caught:
        bind(list[Annotated[int, Watched()]], [1] * 5000)
    assert len(read) < 200
    assert len(caught.value.faults) == 101
