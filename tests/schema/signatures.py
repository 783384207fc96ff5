"""Sixty annotated functions, one for each form that a signature takes; their schemas are in `golden`."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import ipaddress
import pathlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict

import annotated_types
import attrs
import msgspec
import pydantic


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Mixed(enum.Enum):
    TEXT = "text"
    NUMBER = 1


@dataclasses.dataclass
class Point:
    """A point in the plane."""

    x: float
    y: float = 0.0


@dataclasses.dataclass
class Segment:
    start: Point
    end: Point


@attrs.frozen
class Line:
    """One line of an order.

    Args:
        sku: The article.
    """

    sku: str
    qty: int = attrs.field(default=1, metadata={"description": "How many."})


class Options(TypedDict):
    limit: int
    order: NotRequired[Literal["asc", "desc"]]


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Circle(msgspec.Struct, tag="circle"):
    radius: Annotated[float, msgspec.Meta(gt=0)]


class Square(msgspec.Struct, tag="square"):
    side: float


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree] = dataclasses.field(default_factory=list)


class Address(pydantic.BaseModel):
    street: str
    zip: str = pydantic.Field(pattern="^[0-9]{5}$", examples=["12345"])


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int = pydantic.Field(9, gt=0, le=9)


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    home: Address | None = None


class Owner(pydantic.BaseModel):
    pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]
    addresses: list[Address] = []


class Node(pydantic.BaseModel):
    name: str
    inner: list[Node] = []


UserId = NewType("UserId", int)
Percent = Annotated[float, annotated_types.Ge(0), annotated_types.Le(100)]

TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "anything": Any,
    "optional string": str | None,
    "optional integer": int | None,
    "optional record": Point | None,
    "optional choice": Literal["a", "b"] | None,
    "string or integer": str | int,
    "choice of strings": Literal["s", "m", "l"],
    "choice of integers": Literal[1, 2, 4],
    "choice with null": Literal["auto", None],
    "mixed choice": Literal["auto", 1, 2.5],
    "only true": Literal[True],
    "enum": Colour,
    "enum of integers": Level,
    "flag": Rights,
    "mixed enum": Mixed,
    "date-time": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "uuid": uuid.UUID,
    "decimal": decimal.Decimal,
    "path": pathlib.Path,
    "bytes": bytes,
    "address": ipaddress.IPv4Address,
    "list of strings": list[str],
    "list of anything": list,
    "list of records": list[Line],
    "list of lists": list[list[int]],
    "sequence": Sequence[float],
    "set": set[str],
    "set of choices": frozenset[Literal["a", "b"]],
    "tuple of one kind": tuple[float, float],
    "tuple of two kinds": tuple[str, int],
    "tuple of records": tuple[Point, Line],
    "endless tuple": tuple[int, ...],
    "mapping": dict[str, int],
    "mapping by integer": dict[int, str],
    "mapping by choice": dict[Literal["w", "h"], float],
    "mapping of records": Mapping[str, Point],
    "any object": dict,
    "dataclass": Point,
    "nested dataclass": Segment,
    "attrs class": Line,
    "typed dict": Options,
    "named tuple": Pair,
    "tagged structs": Circle | Square,
    "recursive dataclass": Tree,
    "pydantic model": Address,
    "pydantic union": Owner,
    "recursive pydantic model": Node,
    "new type": UserId,
    "percent": Percent,
    "positive integer": Annotated[int, msgspec.Meta(gt=0, lt=10)],
    "open interval": Annotated[float, msgspec.Meta(gt=0, lt=1)],
    "multiple": Annotated[int, msgspec.Meta(multiple_of=5, description="A price in cents")],
    "short text": Annotated[str, msgspec.Meta(min_length=1, max_length=8, pattern="^[a-z]+$")],
    "examples": Annotated[str, pydantic.Field(examples=["Berlin", "Rome"], description="A city.")],
    "list with limits": Annotated[list[int], msgspec.Meta(min_length=1, max_length=3)],
}


def function_for(annotation: Any) -> Callable[..., None]:
    """A function with one required and one optional parameter of this type."""

    def tool(value: Any, other: Any = None) -> None:
        """Use a value.

        Args:
            value: The value.
            other: Another one.
        """

    tool.__annotations__.update(value=annotation, other=annotation | None if annotation is not Any else Any)
    return tool
