"""Argument spellings that models produce, each with the value that a person would read, or `no(...)` with the fault.

The argument is `v`; a row is the annotation, what the model wrote, and what the function gets.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import uuid
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import pydantic


class no(str):  # noqa: N801  # reads as a word in the table
    """The fault of a refused spelling, without `arguments.`."""


LEFT_OUT: Any = object()
"""The parameter keeps its default."""


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Item:
    name: str
    qty: int = 1


@dataclasses.dataclass
class Order:
    items: list[Item]
    express: bool = False


class Cat(msgspec.Struct, tag="cat", tag_field="kind"):
    lives: int


class Dog(msgspec.Struct, tag="dog", tag_field="kind"):
    name: str
    age: int


class Pair(NamedTuple):
    left: int
    right: int


class Model(pydantic.BaseModel):
    n: int
    tags: list[str] = []


ITEM = Item("a", 2)
ORDER = Order([ITEM])
TODAY = datetime.date(2026, 1, 31)

SPELLINGS: list[tuple[Any, Any, Any]] = [
    # integers
    *((int, text, 5) for text in (5, 5.0, "5", " 5 ", "5\n", "5.0", "5e0", "0.5e1")),
    *((int, text, -5) for text in (-5, "-5", "-5.0", " -5")),
    *((int, text, 0) for text in ("0", "-0", "0.0")),
    (int, "12345678901234567890", 12345678901234567890),
    (int, "1e3", 1000),
    *(
        (int, text, no(f'v: expected integer, got "{text}"'))
        for text in ("", " ", "x", "five", "5 apples", "5%", "+5", "05", "0x5", "1_000", "1,000", "5.5", "1/2", "5;")
    ),
    *(
        (int, text, no(f'v: expected integer, got "{text}"'))
        for text in ("true", "null", "None", "NaN", "Infinity", "٥")
    ),
    (int, "[5]", no('v: expected integer, got "[5]"')),
    (int, '"5"', no('v: expected integer, got "\\"5\\""')),
    (int, True, no("v: expected integer, got true")),
    (int, None, no("v: expected integer, got null")),
    (int, [5], no("v: expected integer, got an array")),
    (int, {"value": 5}, no("v: expected integer, got an object")),
    (int, 5.5, no("v: expected integer, got 5.5")),
    (int, "9" * 65, no(f'v: expected integer, got "{"9" * 65}"')),
    (Annotated[int, msgspec.Meta(ge=1, le=10)], "5", 5),
    (Annotated[int, msgspec.Meta(ge=1, le=10)], "11", no("v: must be at most 10, got 11")),
    (Level, "1", Level.LOW),
    (Level, 2, Level.HIGH),
    (Level, "3", no("v: expected 1 or 2, got 3")),
    (Level, "LOW", no('v: expected 1 or 2, got "LOW"')),
    (Literal[1, 2], "2", 2),
    (Literal[1, 2], "2.0", 2),
    # numbers
    *((float, text, 2.5) for text in (2.5, "2.5", " 2.5", "25e-1", "2.50")),
    *((float, text, 5.0) for text in (5, "5", "5.0", "5e0")),
    *((float, text, no(f'v: expected number, got "{text}"')) for text in ("", "2,5", "50%", "€5", ".5", "5.", "1e999")),
    *(
        (float, text, no(f'v: expected number, got "{text}"'))
        for text in ("NaN", "inf", "-Infinity", "nan", "1e", "--5")
    ),
    (float, True, no("v: expected number, got true")),
    (float, None, no("v: expected number, got null")),
    # booleans
    *((bool, text, True) for text in (True, "true", "True", "TRUE", " true ")),
    *((bool, text, False) for text in (False, "false", "False", "FALSE", "false\n")),
    *(
        (bool, text, no(f'v: expected boolean, got "{text}"'))
        for text in ("", "yes", "no", "on", "off", "1", "0", "y", "t", "truee", "null")
    ),
    (bool, 1, no("v: expected boolean, got 1")),
    (bool, 0, no("v: expected boolean, got 0")),
    (bool, None, no("v: expected boolean, got null")),
    # strings are never changed
    *(
        (str, text, text)
        for text in ("5", "true", "null", "[1]", '{"a": 1}', "", " 5 ", "None", '"quoted"', "2026-01-31")
    ),
    (str, 5, no("v: expected string, got 5")),
    (str, True, no("v: expected string, got true")),
    (str, None, no("v: expected string, got null")),
    (str, ["a"], no("v: expected string, got an array")),
    (str | int, "5", "5"),
    (str | int, 5, 5),
    (str | None, "null", "null"),
    (str | None, None, None),
    (str | list[str], '["a"]', '["a"]'),
    (str | dict[str, int], '{"a": 1}', '{"a": 1}'),
    (Any, "5", "5"),
    (Any, "[1]", "[1]"),
    (Annotated[str, msgspec.Meta(min_length=3)] | int, "5", no('v: must have at least 3 characters, got "5"')),
    (list[str], ["1", "true"], ["1", "true"]),
    (dict[str, str], {"a": "1"}, {"a": "1"}),
    (Literal["5", 5], "5", "5"),
    # choices
    (Literal["auto"] | int, "auto", "auto"),
    (Literal["auto"] | int, "5", 5),
    (Literal["auto"] | int, "x", no('v: expected "auto", got "x"')),
    (Literal["s", "l"], "m", no('v: expected "s" or "l", got "m"')),
    (Literal["s", "l"], "S", no('v: expected "s" or "l", got "S"')),
    (Colour, "red", Colour.RED),
    (Colour, "RED", no('v: expected "red", got "RED"')),
    (Literal[True, "auto"], "true", True),
    (Literal[True, "auto"], "auto", "auto"),
    # optional values
    (int | None, "5", 5),
    (int | None, None, None),
    (int | None, "null", None),
    (int | None, " null", None),
    (int | None, "None", no('v: expected integer or null, got "None"')),
    (int | None, "", no('v: expected integer or null, got ""')),
    (bool | None, "true", True),
    (bool | None, "null", None),
    (list[int] | None, "null", None),
    (list[int] | None, "[1]", [1]),
    (Item | None, '{"name": "a", "qty": 2}', ITEM),
    (int | bool, "true", True),
    (int | bool, "1", 1),
    (int | float, "1", 1),
    (int | float, "1.5", 1.5),
    # arrays
    *(
        (list[int], text, [1, 2])
        for text in ([1, 2], "[1, 2]", "[1,2]", " [1, 2] ", "[1, 2.0]", ["1", "2"], '["1", "2"]')
    ),
    (list[int], "[]", []),
    (list[int], [], []),
    (list[int], [[1]], no("v[0]: expected integer, got an array")),
    (list[int], ["1", "x"], no('v[1]: expected integer, got "x"')),
    (list[int], '[1, "x"]', no('v[1]: expected integer, got "x"')),
    *(
        (list[int], text, no(f'v: expected array, got "{text}"'))
        for text in ("", "1", "1, 2", "1 2", "[1, 2", "[1, 2,]", "(1, 2)", "null", "none", "[1] [2]")
    ),
    (list[int], 1, no("v: expected array, got 1")),
    (list[int], {"0": 1}, no("v: expected array, got an object")),
    (list[int], None, no("v: expected array, got null")),
    (list[str], '["a", "b"]', ["a", "b"]),
    (list[str], "['a', 'b']", no("v: expected array, got \"['a', 'b']\"")),
    (list[str], "a", no('v: expected array, got "a"')),
    (list[str], "a, b", no('v: expected array, got "a, b"')),
    (list[str], "[1]", no("v[0]: expected string, got 1")),
    (list[str], '["5", "true"]', ["5", "true"]),
    (list[bool], ["true", False], [True, False]),
    (list[list[int]], "[[1], [2]]", [[1], [2]]),
    (list[list[int]], ["[1]", "[2]"], [[1], [2]]),
    (set[int], "[1, 2]", {1, 2}),
    (set[int], ["1", "1"], no("v: expected items that all differ")),
    (tuple[int, str], '[1, "2"]', (1, "2")),
    (tuple[int, str], ["1", "2"], (1, "2")),
    (tuple[int, int], "[1]", no("v: expected array of 2 items, got 1")),
    (tuple[float, float], "[1, 2.5]", (1.0, 2.5)),
    # objects
    *((Item, text, ITEM) for text in ({"name": "a", "qty": 2}, '{"name": "a", "qty": 2}', '{"name":"a","qty":"2"}')),
    (Item, ' {"name": "a", "qty": 2}\n', ITEM),
    (Item, {"name": "a", "qty": "2"}, ITEM),
    (Item, {"name": "a", "qty": "2", "note": "more"}, ITEM),
    (Item, {"name": "a"}, Item("a")),
    (Item, {"name": "a", "qty": None}, Item("a")),
    (Item, '{"name": "a", "qty": null}', Item("a")),
    (Item, {"name": "5"}, Item("5")),
    (Item, {"name": "a", "qty": "x"}, no('v.qty: expected integer, got "x"')),
    (Item, '{"name": "a", "qty": "x"}', no('v.qty: expected integer, got "x"')),
    (Item, {"name": None}, no("v.name: expected string, got null")),
    (Item, {"name": 5}, no("v.name: expected string, got 5")),
    (Item, {}, no("v.name: required")),
    (Item, "{}", no("v.name: required")),
    (Item, "", no('v: expected object (Item), got ""')),
    (Item, "a", no('v: expected object (Item), got "a"')),
    (Item, "null", no('v: expected object (Item), got "null"')),
    (Item, "[]", no('v: expected object (Item), got "[]"')),
    (Item, "{'name': 'a'}", no("v: expected object (Item), got \"{'name': 'a'}\"")),
    (
        Item,
        '{"name": "a", "name": "b"}',
        no('v: expected object (Item), got "{\\"name\\": \\"a\\", \\"name\\": \\"b\\"}"'),
    ),
    (Item, '{"name": "a"', no('v: expected object (Item), got "{\\"name\\": \\"a\\""')),
    (Item, "```json\n{}\n```", no('v: expected object (Item), got "```json\\u000a{}\\u000a```"')),
    (Order, {"items": [{"name": "a", "qty": "2"}]}, ORDER),
    (Order, {"items": '[{"name": "a", "qty": 2}]'}, ORDER),
    (Order, {"items": ['{"name": "a", "qty": "2"}'], "express": "false"}, ORDER),
    (Order, '{"items": "[{\\"name\\": \\"a\\", \\"qty\\": 2}]"}', ORDER),
    (Order, {"items": [{"name": "a"}, {"name": "b", "qty": "x"}]}, no('v.items[1].qty: expected integer, got "x"')),
    (Pair, {"left": "1", "right": "2"}, Pair(1, 2)),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (dict[str, int], {"a": "1"}, {"a": 1}),
    (dict[str, int], {"a": "x"}, no('v.a: expected integer, got "x"')),
    (dict[str, int], {"a": None}, no("v.a: expected integer, got null")),
    (dict[int, int], {"1": "2"}, {1: 2}),
    (dict[str, list[int]], {"a": "[1]"}, {"a": [1]}),
    (Cat | Dog, {"kind": "cat", "lives": "9"}, Cat(9)),
    (Cat | Dog, '{"kind": "dog", "name": "5", "age": "3"}', Dog("5", 3)),
    (Cat | Dog, {"kind": "cow"}, no('v.kind: expected "cat" or "dog", got "cow"')),
    (Model, {"n": "5"}, Model(n=5)),
    (Model, '{"n": 5}', Model(n=5)),
    (Model, {"n": 5, "tags": '["a"]'}, Model(n=5, tags=["a"])),
    (Model, {"n": 5, "tags": None}, Model(n=5)),
    (Model, {"n": "x"}, no('v.n: expected integer, got "x"')),
    (list[Item], '[{"name": "a", "qty": "2"}]', [ITEM]),
    (list[Item] | Item, '{"name": "a", "qty": 2}', ITEM),
    # values with a format stay what they are
    (datetime.date, "2026-01-31", TODAY),
    (datetime.date, "31.01.2026", no('v: expected date such as 2026-01-31, got "31.01.2026"')),
    (datetime.date | int, "5", no('v: expected date such as 2026-01-31, got "5"')),
    (uuid.UUID, "5", no('v: expected UUID, got "5"')),
    (decimal.Decimal, "5.10", decimal.Decimal("5.10")),
    (bytes, "aGk=", b"hi"),
]

OPTIONAL: list[tuple[Any, Any, Any, Any]] = [
    # annotation, default, what the model wrote, what the function gets
    (int, 3, None, LEFT_OUT),
    (str, "x", None, LEFT_OUT),
    (list[int], [], None, LEFT_OUT),
    (bool, False, None, LEFT_OUT),
    (int | None, 3, None, None),
    (int, 3, "5", 5),
    (str, "x", "", ""),
    (Item | None, None, "null", None),
]
