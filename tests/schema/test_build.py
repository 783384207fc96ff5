"""Schemas of a function's signature, and the binding of JSON arguments to it."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import functools
import ipaddress
import json
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
)

import annotated_types
import attrs
import jsonschema
import msgspec
import pydantic
import pytest

from mcptrio._schema.build import ArgumentFaults, Reader, Signature, describe, schema_of
from mcptrio._schema.shapes import Shapes
from mcptrio.errors import DeclarationError
from tests.schema.names import shown

T = TypeVar("T")
NO_JSON = object()


class Context(Generic[T]):
    """Stands for the server's context."""


def signature(fn: Any, **kwargs: Any) -> Signature:
    return describe(fn, injected=lambda cls: issubclass(cls, Context), **kwargs)


def faults(fn: Any, arguments: Mapping[str, Any]) -> list[str]:
    with pytest.raises(ArgumentFaults) as caught:
        signature(fn).bind(arguments)
    return list(caught.value.faults)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Line:
    qty: int
    name: str = "thing"


@attrs.frozen
class Address:
    street: str
    _code: int = 7


class Loose(TypedDict):
    a: int
    b: NotRequired[str]


class Looser(Loose, total=False):
    c: int
    d: Required[int]


class Point(NamedTuple):
    x: float
    y: float = 0.0


class Job(msgspec.Struct, rename="camel"):
    job_name: str
    retry_count: Annotated[int, msgspec.Meta(ge=0)] = 3


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    bark: bool


@dataclasses.dataclass
class Circle:
    r: float
    kind: Literal["circle"] = "circle"


@dataclasses.dataclass
class Square:
    side: float
    kind: Literal["square"] = "square"


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Box(Generic[T]):
    content: T
    more: list[T] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class IntBox(Box[int]):
    label: str = ""


class Model(pydantic.BaseModel):
    id: int = pydantic.Field(alias="Id", ge=1)
    tags: list[str] = []
    inner: Inner | None = None


class Inner(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    when: datetime.datetime


Model.model_rebuild()

UserId = NewType("UserId", str)


class Upper(str):
    def __new__(cls, text: str) -> Upper:
        if not text.isupper():
            raise ValueError("must be in capitals")
        return super().__new__(cls, text)


GOOD: list[tuple[Any, Any, Any]] = [
    (str, "x", "x"),
    (int, 5, 5),
    (int, 2.0, 2),
    (int, 10**30, 10**30),
    (float, 1, 1.0),
    (float, 1.5, 1.5),
    (bool, True, True),
    (None, None, None),
    (Any, {"a": [1]}, {"a": [1]}),
    (list[int], [1, 2.0], [1, 2]),
    (list, [1, "a"], [1, "a"]),
    (Sequence[str], ["a"], ["a"]),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[()], [], ()),
    (set[str], ["a", "b"], {"a", "b"}),
    (frozenset[int], [1], frozenset({1})),
    (collections.abc.Set[int], [1], frozenset({1})),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (dict[int, str], {"-5": "a", "0": "b"}, {-5: "a", 0: "b"}),
    (dict[Colour, int], {"red": 1}, {Colour.RED: 1}),
    (Mapping[str, list[int]], {"a": [1]}, {"a": [1]}),
    (dict, {"a": 1}, {"a": 1}),
    (Line, {"qty": 1}, Line(1)),
    (Address, {"street": "s", "code": 9}, Address("s", 9)),
    (Loose, {"a": 1}, {"a": 1}),
    (Looser, {"a": 1, "d": 2}, {"a": 1, "d": 2}),
    (Point, {"x": 1}, Point(1.0)),
    (Job, {"jobName": "n", "retryCount": 0}, Job("n", 0)),
    (Colour, "red", Colour.RED),
    (Level, 2, Level.HIGH),
    (Level, 2.0, Level.HIGH),
    (Literal["a", 1, None], None, None),
    (Literal[Colour.RED], "red", Colour.RED),
    (Optional[int], None, None),  # noqa: UP045
    (int | str, "5", "5"),
    (int | float, 2.0, 2.0),
    (float | int, 2, 2),
    (datetime.date | str, "2026-01-31", datetime.date(2026, 1, 31)),
    (datetime.date | str, "soon", "soon"),
    (Cat | Dog, {"type": "dog", "bark": True}, Dog(True)),
    (Circle | Square, {"kind": "square", "side": 2}, Square(2.0)),
    (Circle | Square, {"side": 2}, Square(2.0)),
    (Line | Address | None, {"street": "x"}, Address("x")),
    (datetime.datetime, "2026-01-31T12:00:00Z", datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)),
    (datetime.time, "12:30:00", datetime.time(12, 30)),
    (datetime.timedelta, "PT90S", datetime.timedelta(seconds=90)),
    (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
    (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
    (decimal.Decimal, 0.1, decimal.Decimal("0.1")),
    (pathlib.Path, "a/b", pathlib.Path("a/b")),
    (ipaddress.IPv4Address, "127.0.0.1", ipaddress.IPv4Address("127.0.0.1")),
    (bytes, "aGk=", b"hi"),
    (UserId, "u", "u"),
    (Upper, "ABC", Upper("ABC")),
    (Tree, {"value": 1, "children": [{"value": 2}]}, Tree(1, [Tree(2)])),
    (Box[int], {"content": 1, "more": [2]}, Box(1, [2])),
    (IntBox, {"content": 1, "label": "b"}, IntBox(1, label="b")),
    (Annotated[int, msgspec.Meta(ge=1, lt=5)], 4, 4),
    (Annotated[float, msgspec.Meta(multiple_of=0.5)], 1.5, 1.5),
    (Annotated[int | None, msgspec.Meta(ge=1)], None, None),
    (Annotated[datetime.datetime, msgspec.Meta(tz=True)], "2026-01-31T12:00:00+00:00", None),
    (Model, {"Id": 3, "inner": {"when": "2026-01-31T12:00:00Z"}}, None),
]


@pytest.mark.parametrize(("type_", "json_value", "value"), GOOD, ids=shown)
def test_a_good_value_is_bound_and_is_valid_against_the_schema(type_: Any, json_value: Any, value: Any) -> None:
    def tool(v: Any) -> None: ...

    tool.__annotations__["v"] = type_
    described = signature(tool)
    jsonschema.Draft202012Validator.check_schema(described.input_schema)
    jsonschema.validate({"v": json_value}, described.input_schema, cls=jsonschema.Draft202012Validator)
    bound = described.bind({"v": json_value})["v"]
    if value is not None:
        assert bound == value
        assert type(bound) is type(value)


BAD: list[tuple[Any, Any, list[str]]] = [
    (str, 5, ["v: expected string, got 5"]),
    (int, "5", ['v: expected integer, got "5"']),
    (int, 1.9, ["v: expected integer, got 1.9"]),
    (int, True, ["v: expected integer, got true"]),
    (float, "x" * 500, ['v: expected number, got "' + "x" * 79 + '…"']),
    (bool, 1, ["v: expected boolean, got 1"]),
    (list[int], "12", ['v: expected array, got "12"']),
    (list[str], {"a": 1}, ["v: expected array, got an object"]),
    (list[int], [1, "x", None], ['v[1]: expected integer, got "x"', "v[2]: expected integer, got null"]),
    (dict[str, int], [1], ["v: expected object, got an array"]),
    (dict[str, int], {"a": 1, "b c": "x"}, ['v["b c"]: expected integer, got "x"']),
    (dict[int, str], {"01": "x"}, ['v["01"]: expected a key that is an integer, got "01"']),
    (tuple[int, str], [1], ["v: expected array of 2 items, got 1"]),
    (set[int], [1, 1], ["v: expected items that all differ"]),
    (Line, {"nope": 1}, ["v.qty: required", 'v: unexpected field "nope"']),
    (Line, 3, ["v: expected object (Line), got 3"]),
    (Address, {"street": "s", "_code": 1}, ['v: unexpected field "_code"']),
    (Loose, {"b": 1, "z": 1}, ["v.a: required", "v.b: expected string, got 1", 'v: unexpected field "z"']),
    (Looser, {"a": 1}, ["v.d: required"]),
    (Job, {"jobName": "n", "retryCount": -1}, ["v.retryCount: must be at least 0, got -1"]),
    (Colour, "green", ['v: expected "red" or "blue", got "green"']),
    (Level, True, ["v: expected 1 or 2, got true"]),
    (Literal["a", "b"], [], ['v: expected "a" or "b", got an array']),
    (int | str, None, ["v: expected integer or string, got null"]),
    (Cat | Dog, {"type": "cow"}, ['v.type: expected "cat" or "dog", got "cow"']),
    (Cat | Dog, {"type": "dog", "bark": 1}, ["v.bark: expected boolean, got 1"]),
    (Circle | Square, {"kind": "circle", "r": "x"}, ['v.r: expected number, got "x"']),
    (list[int] | list[str], [1, 2, "x"], ['v[2]: expected integer, got "x"']),
    (Line | Address, {"qty": "x"}, ['v.qty: expected integer, got "x"']),
    (datetime.datetime, "soon", ['v: expected date-time such as 2026-01-31T12:00:00Z, got "soon"']),
    (datetime.timedelta, "90", ['v: expected ISO 8601 duration such as PT90S, got "90"']),
    (decimal.Decimal, "NaN", ['v: expected decimal number, got "NaN"']),
    (bytes, "a", ['v: expected base64 string, got "a"']),
    (uuid.UUID, "x", ['v: expected UUID, got "x"']),
    (Upper, "abc", ["v: must be in capitals"]),
    (Tree, {"value": 1, "children": [{}]}, ["v.children[0].value: required"]),
    (
        Annotated[int, msgspec.Meta(ge=1, multiple_of=2)],
        -1,
        ["v: must be at least 1, got -1", "v: must be a multiple of 2, got -1"],
    ),
    (
        Annotated[str, msgspec.Meta(pattern="^a", max_length=1)],
        "bb",
        ['v: must match ^a, got "bb"', 'v: must have at most 1 characters, got "bb"'],
    ),
    (Annotated[int | None, msgspec.Meta(ge=1)], 0, ["v: must be at least 1, got 0"]),
    (
        list[Annotated[int, annotated_types.Gt(0)]],
        [0, 1, -1],
        ["v[0]: must be more than 0, got 0", "v[2]: must be more than 0, got -1"],
    ),
    (Annotated[list[int], annotated_types.Len(1, 2)], [], ["v: must have at least 1 items, got an array"]),
    (Annotated[int, annotated_types.Interval(ge=1, le=3)], 4, ["v: must be at most 3, got 4"]),
    (Annotated[str, annotated_types.Predicate(str.islower)], "A", ['v: must satisfy islower, got "A"']),
    (Annotated[int, pydantic.Field(ge=1, description="n")], 0, ["v: must be at least 1, got 0"]),
    (Annotated[str, pydantic.Field(pattern="^a")], "b", ['v: must match ^a, got "b"']),
    (
        Annotated[datetime.datetime, msgspec.Meta(tz=True)],
        "2026-01-31T12:00:00",
        ['v: must have a time zone, got "2026-01-31T12:00:00"'],
    ),
    (Annotated[bytes, msgspec.Meta(max_length=1)], "aGk=", ['v: must have at most 1 bytes, got "aGk="']),
    (
        Model,
        {"tags": [1], "inner": {"x": 1}},
        [
            "v.Id: required",
            "v.tags[0]: expected string, got 1",
            "v.inner.when: required",
            'v.inner: unexpected field "x"',
        ],
    ),
    (Model, {"Id": 0}, ["v.Id: input should be greater than or equal to 1, got 0"]),
    (Model, {"Id": "x"}, ['v.Id: expected integer, got "x"']),
]


@pytest.mark.parametrize(("type_", "json_value", "expected"), BAD, ids=shown)
def test_every_fault_of_a_bad_value_is_named_with_its_path(type_: Any, json_value: Any, expected: list[str]) -> None:
    def tool(v: Any) -> None: ...

    tool.__annotations__["v"] = type_
    assert sorted(faults(tool, {"v": json_value})) == sorted(f"arguments.{line}" for line in expected)


def test_faults_of_all_parameters_come_at_once() -> None:
    def tool(items: list[Line], addr: Address, a: int) -> None: ...

    given = {"items": [{"qty": 1}, {"qty": 2}, {"qty": "x"}], "addr": {"street": "s", "nope": 1}, "more": 1}
    assert faults(tool, given) == [
        'arguments.items[2].qty: expected integer, got "x"',
        'arguments.addr: unexpected field "nope"',
        "arguments.a: required",
        'arguments: unexpected field "more"',
    ]


def test_a_flood_of_faults_is_cut() -> None:
    def tool(v: list[int]) -> None: ...

    lines = faults(tool, {"v": ["x"] * 100_000})
    assert len(lines) == 101
    assert lines[-1] == "and more"


def test_nesting_without_end_is_a_fault_and_no_crash() -> None:
    def tool(v: Tree) -> None: ...

    value: dict[str, Any] = {"value": 1}
    for _ in range(20_000):
        value = {"value": 1, "children": [value]}
    assert faults(tool, {"v": value}) == ["arguments: nested too deeply"]


@dataclasses.dataclass
class Left:
    next: Left | Right | None


@dataclasses.dataclass
class Right:
    next: Left | Right | None


def test_a_union_of_similar_records_takes_bounded_time() -> None:
    """Two members tried at each of 60 levels would be 2^60 tries."""

    def tool(v: Left | Right) -> None: ...

    value: Any = "wrong"
    for _ in range(60):
        value = {"next": value}
    assert any("fits too many types" in line for line in faults(tool, {"v": value}))


@dataclasses.dataclass
class Num:
    value: int
    kind: Literal["num"] = "num"


@dataclasses.dataclass
class Add:
    left: Annotated[Num | Add, "The first."]
    right: Num | Add
    kind: Literal["add"] = "add"


def test_records_that_can_be_told_apart_are_followed_to_the_fault() -> None:
    def tool(v: Num | Add) -> None: ...

    value: Any = {"kind": "num", "value": "x"}
    for _ in range(60):
        value = {"kind": "add", "left": {"kind": "num", "value": 1}, "right": value}
    assert faults(tool, {"v": value}) == [f'arguments.v{".right" * 60}.value: expected integer, got "x"']


def test_the_schema_of_a_signature() -> None:
    def tool(
        order_id: str, lines: list[Line], ctx: Context[Any], size: Literal["s", "l"] = "s", *, deep: bool = False
    ) -> Line:
        """Look up one order.

        It says more here.

        Args:
            order_id: The number printed
                on the receipt.
            size: How big.

        Returns:
            The line.
        """
        raise NotImplementedError

    described = signature(tool)
    assert described.input_schema == {
        "type": "object",
        "properties": {
            "order_id": {"type": "string", "description": "The number printed on the receipt."},
            "lines": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"qty": {"type": "integer"}, "name": {"type": "string", "default": "thing"}},
                    "required": ["qty"],
                    "additionalProperties": False,
                },
            },
            "size": {"type": "string", "enum": ["s", "l"], "description": "How big.", "default": "s"},
            "deep": {"type": "boolean", "default": False},
        },
        "required": ["order_id", "lines"],
        "additionalProperties": False,
    }
    assert described.description == "Look up one order.\n\nIt says more here."
    assert described.injected == "ctx"
    assert described.returns is Line
    assert described.is_async is False


@pytest.mark.parametrize(
    "doc",
    [
        "Do.\n\nArgs:\n    a: First.\n    b (int): Second.",
        "Do.\n\nParameters\n----------\na : str\n    First.\nb : int\n    Second.",
        "Do.\n\n:param a: First.\n:param int b: Second.",
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_each_style_of_docstring_describes_the_parameters(doc: str) -> None:
    def tool(a: str, b: int = 1) -> None: ...

    tool.__doc__ = doc
    described = signature(tool)
    assert described.description == "Do."
    properties = described.input_schema["properties"]
    assert [properties[name]["description"] for name in "ab"] == ["First.", "Second."]


@pytest.mark.parametrize(
    "note",
    ["Mine.", msgspec.Meta(description="Mine."), pydantic.Field(description="Mine.")],
    ids=["text", "msgspec", "pydantic"],
)
def test_a_description_in_annotated_goes_before_the_docstring(note: Any) -> None:
    def tool(a: str) -> None:
        """Do.

        Args:
            a: Theirs.
        """

    tool.__annotations__["a"] = Annotated[str, note]
    assert signature(tool).input_schema["properties"]["a"] == {"type": "string", "description": "Mine."}


def test_limits_are_in_the_schema() -> None:
    def tool(
        n: Annotated[int, msgspec.Meta(ge=1, lt=9, multiple_of=2, title="N", examples=[2])],
        s: Annotated[str, annotated_types.MinLen(1), msgspec.Meta(pattern="^a", extra_json_schema={"format": "email"})],
        xs: Annotated[list[int], annotated_types.Len(1, 3)],
        d: Annotated[dict[str, int], msgspec.Meta(max_length=4)],
        o: Annotated[int | None, msgspec.Meta(ge=0, description="Maybe.")] = None,
    ) -> None: ...

    assert signature(tool).input_schema["properties"] == {
        "n": {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2, "title": "N", "examples": [2]},
        "s": {"type": "string", "minLength": 1, "pattern": "^a", "format": "email"},
        "xs": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
        "d": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 4},
        "o": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "description": "Maybe.", "default": None},
    }


class Header:
    def __init__(self, name: str) -> None:
        self.name = name

    def __mcp_schema__(self) -> dict[str, Any]:
        return {"x-mcp-header": self.name}


def test_a_marker_in_annotated_adds_to_the_property() -> None:
    def tool(region: Annotated[str, Header("Region")]) -> None: ...

    described = signature(tool)
    assert described.input_schema["properties"]["region"] == {"type": "string", "x-mcp-header": "Region"}
    assert described.bind({"region": "eu"}) == {"region": "eu"}


def test_defaults_that_json_cannot_show_are_left_out_of_the_schema_and_still_work() -> None:
    sentinel = Line(1)

    def tool(when: datetime.date = datetime.date(2026, 1, 31), line: Line = sentinel, x: Any = NO_JSON) -> None: ...

    described = signature(tool)
    assert described.input_schema["properties"]["when"]["default"] == "2026-01-31"
    assert described.input_schema["properties"]["line"]["default"] == {"qty": 1, "name": "thing"}
    assert "default" not in described.input_schema["properties"]["x"]
    assert described.bind({}) == {}


def test_formats_of_strings() -> None:
    assert {
        t: schema_of(t)["format"] for t in (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)
    } == {
        datetime.datetime: "date-time",
        datetime.date: "date",
        datetime.time: "time",
        datetime.timedelta: "duration",
    }
    assert schema_of(uuid.UUID) == {"type": "string", "format": "uuid"}
    assert schema_of(pathlib.Path) == {"type": "string", "format": "path"}
    assert schema_of(bytes) == {"type": "string", "format": "byte", "contentEncoding": "base64"}


def closed_schema(type_: Any) -> Any:
    """The schema of a type as an argument, where a record refuses unknown fields."""
    shapes = Shapes(closed=True)
    return shapes.root(shapes.of(type_).schema)


def test_a_recursive_record_refers_to_itself() -> None:
    assert closed_schema(Tree) == {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []},
        },
        "required": ["value"],
        "additionalProperties": False,
        "$defs": {
            "Tree": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []},
                },
                "required": ["value"],
                "additionalProperties": False,
            }
        },
    }


def test_two_classes_of_one_name_do_not_overwrite_each_other() -> None:
    def make(type_: Any) -> Any:
        return dataclasses.make_dataclass("Same", [("x", type_)])

    models = [pydantic.create_model("Outer", same=(pydantic.create_model("Same", y=(t, ...)), ...)) for t in (int, str)]

    def tool(a: Any, b: Any, c: Any, d: Any) -> None: ...

    tool.__annotations__.update(a=make(int), b=make(str), c=models[0], d=models[1])
    described = signature(tool)
    good = {"a": {"x": 1}, "b": {"x": "s"}, "c": {"same": {"y": 1}}, "d": {"same": {"y": "s"}}}
    jsonschema.validate(good, described.input_schema)
    described.bind(good)
    for name, wrong in (("a", {"x": "s"}), ("b", {"x": 1}), ("c", {"same": {"y": "s"}}), ("d", {"same": {"y": 1}})):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**good, name: wrong}, described.input_schema)
        with pytest.raises(ArgumentFaults):
            described.bind({**good, name: wrong})


def test_a_record_can_describe_its_fields_in_its_docstring() -> None:
    @dataclasses.dataclass
    class Order:
        """An order.

        Attributes:
            id: Its number.
        """

        id: int
        note: str = dataclasses.field(default="", metadata={"description": "Free text."})

    schema = schema_of(Order)
    assert schema["description"] == "An order."
    assert schema["properties"]["id"] == {"type": "integer", "description": "Its number."}
    assert schema["properties"]["note"]["description"] == "Free text."


def test_an_error_of_a_constructor_is_a_fault() -> None:
    @dataclasses.dataclass
    class Range:
        low: int
        high: int

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low must not be above high")

    @attrs.frozen
    class Small:
        n: int = attrs.field(validator=attrs.validators.lt(10))

    def tool(r: Any, s: Any) -> None: ...

    tool.__annotations__.update(r=Range, s=Small)
    assert faults(tool, {"r": {"low": 2, "high": 1}, "s": {"n": 10}}) == [
        "arguments.r: low must not be above high",
        "arguments.s: 'n' must be < 10: 10",
    ]


def test_fields_that_are_not_for_the_constructor_are_not_asked_for() -> None:
    @dataclasses.dataclass
    class Half:
        a: int
        b: int = dataclasses.field(init=False, default=1)

    assert list(closed_schema(Half)["properties"]) == ["a"]
    assert list(schema_of(Half)["properties"]) == ["a", "b"]
    assert Reader(Half).read({"a": 1}, root="x") == Half(1)


def test_text_arguments_become_typed_values() -> None:
    """Prompts and resource templates only have strings."""

    def tool(a: int, b: str, c: bool = False, d: list[int] | None = None, e: datetime.date | None = None) -> None: ...

    bind = signature(tool).bind_text
    given = {"a": "7", "b": "7", "c": "true", "d": "[1, 2]", "e": "2026-01-31"}
    assert bind(given) == {"a": 7, "b": "7", "c": True, "d": [1, 2], "e": datetime.date(2026, 1, 31)}
    assert bind({"a": "1", "b": "", "e": "null"}) == {"a": 1, "b": "", "e": None}
    with pytest.raises(ArgumentFaults, match=r'arguments\.a: expected integer, got "x"'):
        bind({"a": "x", "b": ""})


def test_methods_partials_and_callable_objects_can_be_described() -> None:
    class Thing:
        def method(self, a: int) -> str:
            """Method."""
            return str(a)

        async def __call__(self, b: int) -> None:
            """Call."""

    def two(a: int, b: str) -> None: ...

    assert list(signature(Thing().method).input_schema["properties"]) == ["a"]
    called = signature(Thing())
    assert (called.description, called.is_async, list(called.input_schema["properties"])) == ("Call.", True, ["b"])
    part = signature(functools.partial(two, b="x")).input_schema
    assert part["required"] == ["a"]


def test_names_of_the_place_of_declaration_are_found() -> None:
    @dataclasses.dataclass
    class Leaf:
        n: int

    @dataclasses.dataclass
    class Local:
        leaf: Leaf

    def tool(v: Local) -> None: ...

    with pytest.raises(DeclarationError, match="`Local` of `tool` cannot be found"):
        describe(tool, injected=lambda cls: False, names=None)
    assert signature(tool, names=locals()).bind({"v": {"leaf": {"n": 1}}}) == {"v": Local(Leaf(1))}


def test_the_context_may_be_optional_and_is_taken_once() -> None:
    def optional(ctx: Context[int] | None = None) -> None: ...

    def twice(a: Context[Any], b: Context[Any]) -> None: ...

    described = signature(optional)
    assert (described.injected, described.input_schema["properties"]) == ("ctx", {})
    with pytest.raises(DeclarationError, match="takes the context twice, as `a` and `b`"):
        signature(twice)


class Plain:
    pass


@dataclasses.dataclass
class Late:
    x: dataclasses.InitVar[int]


@dataclasses.dataclass
class Holder:
    plain: Plain


def star(*a: int) -> None: ...
def stars(**a: int) -> None: ...
def positional(a: int, /) -> None: ...
def bare(a) -> None: ...  # type: ignore[no-untyped-def]
def unknown(a: Plain) -> None: ...
def nested(a: list[Holder]) -> None: ...
def called_back(a: collections.abc.Callable[[], None]) -> None: ...
def missing(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def senseless(a: Annotated[int, msgspec.Meta(pattern="x")]) -> None: ...
def broken(a: Annotated[str, msgspec.Meta(pattern="(")]) -> None: ...
def unhashable(a: set[list[int]]) -> None: ...
def keyed(a: dict[bool, int]) -> None: ...
def late(a: Late) -> None: ...


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (star, "`star` takes `*a`; arguments have names, so take `a: list[…]` instead; if a decorator made it"),
        (stars, "`stars` takes `**a`; name each one, or take `a: dict[str, …]` instead; if a decorator made it"),
        (positional, "`a` of `positional` is positional-only; arguments have names, so remove the `/`"),
        (bare, "`a` of `bare` has no annotation; write for example `a: str`"),
        (unknown, "parameter `a` of `unknown`: `Plain` has no JSON form; use a dataclass"),
        (nested, "parameter `a` of `nested`: Holder.plain: `Plain` has no JSON form"),
        (called_back, "has no JSON form"),
        (missing, "the annotation `Nowhere` of `missing` cannot be found; import it for real"),
        (senseless, "`pattern='x'` means nothing for integer"),
        (broken, "an annotation of `broken` cannot be read: missing )"),
        (unhashable, "`list[int]` cannot be put into a set; use a list"),
        (keyed, "a mapping cannot have keys of boolean in JSON; use str keys"),
        (late, "`Late.x` is an InitVar, which no value can show; make it a field"),
        (Plain, "is not a function"),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_a_function_without_a_schema_is_refused_with_a_hint(fn: Any, text: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        signature(fn)
    assert text in str(caught.value)


def test_a_pydantic_field_as_default_is_filled_in() -> None:
    def tool(
        a: int = pydantic.Field(3, ge=1),
        b: list[int] = pydantic.Field(default_factory=list),  # noqa: B008
        c: int = pydantic.Field(),
    ) -> None: ...

    described = signature(tool)
    assert described.input_schema["required"] == ["c"]
    assert described.input_schema["properties"]["a"] == {"type": "integer", "minimum": 1, "default": 3}
    assert described.bind({"c": 1}) == {"a": 3, "b": [], "c": 1}
    assert faults(tool, {"a": 0}) == ["arguments.a: must be at least 1, got 0", "arguments.c: required"]


def test_types_and_validators_of_pydantic_are_left_to_pydantic() -> None:
    def even(n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n

    @pydantic.dataclasses.dataclass
    class PydanticLine:
        qty: int = pydantic.Field(ge=1)

    def tool(n: Any, url: pydantic.AnyUrl, line: Any) -> None: ...

    tool.__annotations__.update(n=Annotated[int, pydantic.AfterValidator(even)], line=PydanticLine)
    described = signature(tool)
    assert described.input_schema["properties"]["url"]["format"] == "uri"
    assert described.bind({"n": 2, "url": "https://a.b", "line": {"qty": 1}})["line"] == PydanticLine(qty=1)
    assert faults(tool, {"n": 1, "url": "nope", "line": {"qty": 0}}) == [
        "arguments.n: must be even",
        'arguments.url: input should be a valid URL, relative URL without a base, got "nope"',
        "arguments.line.qty: input should be greater than or equal to 1, got 0",
    ]


def test_describing_and_binding_import_nothing_heavy() -> None:
    """A stdio server's start pays for every import."""
    code = """
import sys, json
from mcptrio import Server
before = set(sys.modules)
from mcptrio._schema.build import describe
def tool(a: int, b: str = "x") -> str:
    "Do it."
describe(tool, injected=lambda cls: False).bind({"a": 1})
heavy = {"pydantic", "cattrs", "jsonschema_rs", "docstring_parser", "asyncio", "trio", "decimal", "dataclasses"}
print(json.dumps(sorted(heavy & (set(sys.modules) - before))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.skipif(sys.version_info < (3, 12), reason="`type` statements are from 3.12 on")
def test_type_aliases_are_seen_through_and_may_hold_themselves() -> None:
    space: dict[str, Any] = {}
    exec("type Ids = list[int]\ntype Json = dict[str, Json] | list[Json] | int\ntype Pair[T] = tuple[T, T]", space)
    assert schema_of(space["Ids"]) == {"type": "array", "items": {"type": "integer"}}
    assert schema_of(space["Pair"][int])["prefixItems"] == [{"type": "integer"}] * 2
    reader = Reader(space["Json"])
    jsonschema.Draft202012Validator.check_schema(reader.schema)
    jsonschema.validate({"a": [1, {"b": 2}]}, reader.schema)
    assert reader.read({"a": [1, {"b": 2}]}, root="x") == {"a": [1, {"b": 2}]}
    with pytest.raises(ArgumentFaults):
        reader.read({"a": ["x"]}, root="x")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"a": ["x"]}, reader.schema)


def test_typing_extensions_aliases_work_on_every_python() -> None:
    import typing_extensions

    alias = typing_extensions.TypeAliasType("alias", list[int])
    assert schema_of(alias) == {"type": "array", "items": {"type": "integer"}}


def test_a_struct_leaves_unset_fields_out() -> None:
    class Patch(msgspec.Struct):
        a: int | msgspec.UnsetType = msgspec.UNSET

    assert Reader(Patch, names={"Patch": Patch}).read({}, root="x") == Patch()
    assert schema_of(Patch)["properties"]["a"] == {"type": "integer"}
