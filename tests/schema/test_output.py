"""The JSON of a typed value, and the output schema that promises it."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import inspect
import math
import pathlib
import types
import uuid
from typing import Annotated, Any, NamedTuple, TypedDict

import attrs
import jsonschema
import msgspec
import pydantic
import pytest

from mcptrio._schema.build import dump, output_schema
from tests.schema.names import shown


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    qty: int
    when: datetime.date | None = None


@attrs.frozen
class Private:
    _code: int


class Point(NamedTuple):
    x: int


class Job(msgspec.Struct, rename="camel", tag="job"):
    job_name: str
    extra: int | msgspec.UnsetType = msgspec.UNSET


class Weather(TypedDict):
    city: str


class Model(pydantic.BaseModel):
    id: int = pydantic.Field(serialization_alias="Id")
    when: datetime.date = datetime.date(2026, 1, 31)


class Block:
    """Stands for a content block."""


def is_content(type_: Any) -> bool:
    return type_ is Block


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Line(1, datetime.date(2026, 1, 31)), {"qty": 1, "when": "2026-01-31"}),
        (Private(3), {"code": 3}),
        (Point(1), {"x": 1}),
        (Job("a"), {"type": "job", "jobName": "a"}),
        (Model(id=1), {"Id": 1, "when": "2026-01-31"}),
        ([Model(id=1)], [{"Id": 1, "when": "2026-01-31"}]),
        (Colour.RED, "red"),
        ({Colour.RED: {2, 1}, 5: (1,)}, {"red": [1, 2], "5": [1]}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (collections.deque([1]), [1]),
        (datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC), "2026-01-31T00:00:00+00:00"),
        (datetime.timedelta(seconds=90), "PT90S"),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=0), "00000000-0000-0000-0000-000000000000"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (b"hi", "aGk="),
        (http_status := enum.IntEnum("Status", {"OK": 200}).OK, 200),  # type: ignore[attr-defined]
        (None, None),
        (10**30, 10**30),
    ],
    ids=shown,
)
def test_typed_values_become_json(value: Any, expected: Any) -> None:
    out = dump(value)
    assert out == expected
    assert type(out) is type(expected)


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        [1.0, -math.inf],
        {"a": math.nan},
        decimal.Decimal("NaN"),
        object(),
        {None: 1},
        {1.5: 1},
        iter([]),
    ],
    ids=shown,
)
def test_a_value_without_a_json_form_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        dump(value)


def test_a_nan_inside_a_pydantic_model_is_refused_too() -> None:
    class Wild(pydantic.BaseModel):
        x: float

    with pytest.raises(ValueError):
        dump(Wild(x=math.nan))


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="holds itself"):
        dump(loop)


@pytest.mark.parametrize(
    "annotation",
    [
        inspect.Signature.empty,
        None,
        str,
        Any,
        Annotated[str, "x"],
        str | None,
        Block,
        list[Block],
        Block | None,
        list[str | Block],
        tuple[Block, int],
    ],
    ids=shown,
)
def test_text_and_content_have_no_output_schema(annotation: Any) -> None:
    assert output_schema(annotation, is_content=is_content) is None


@pytest.mark.parametrize(
    "annotation", [Line, Private, Point, Job, Weather, Model, dict[str, int], dict[str, Any]], ids=shown
)
def test_objects_are_described_as_they_are(annotation: Any) -> None:
    output = output_schema(annotation)
    assert output is not None
    assert output.wrap is False
    assert output.schema["type"] == "object"


@pytest.mark.parametrize(
    ("annotation", "value", "structured"),
    [
        (int, 3, {"result": 3}),
        (list[str], ["a"], {"result": ["a"]}),
        (bool, True, {"result": True}),
        (Line | None, None, {"result": None}),
        (list[Line], [Line(1)], {"result": [{"qty": 1, "when": None}]}),
        (Line, Line(1), {"qty": 1, "when": None}),
        (Weather, {"city": "x"}, {"city": "x"}),
        (Job | Line, Job("a"), {"result": {"type": "job", "jobName": "a"}}),
    ],
    ids=shown,
)
def test_structured_content_is_always_an_object_that_fits_its_schema(
    annotation: Any, value: Any, structured: Any
) -> None:
    output = output_schema(annotation)
    assert output is not None
    assert output.structured(value) == structured
    assert output.faults(dump(value)) == []
    jsonschema.Draft202012Validator.check_schema(output.schema)
    jsonschema.validate(structured, output.schema, cls=jsonschema.Draft202012Validator)


def test_a_result_that_violates_its_schema_is_noticed() -> None:
    output = output_schema(list[Line])
    assert output is not None
    assert output.faults([{"qty": "x"}]) == ['result[0].qty: expected integer, got "x"']


def test_a_subclass_may_be_returned_with_more_fields() -> None:
    @dataclasses.dataclass
    class Special(Line):
        colour: str = "red"

    output = output_schema(Line)
    assert output is not None
    jsonschema.validate(output.structured(Special(1)), output.schema)


def test_a_return_type_without_json_form_says_what_to_do() -> None:
    with pytest.raises(Exception, match="annotate it with Any"):
        output_schema(Block)
