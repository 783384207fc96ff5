"""Schema and reader are two views of one type: what one takes, the other takes.

Types are drawn at random, with values that fit and values that nearly fit; `jsonschema` is the judge, with the patterns
of ECMA 262, which it does not know.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import attrs
import jsonschema
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._schema.build import ArgumentFaults, describe, dump, schema_of
from tests.schema.names import shown


def _pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Any:
    if isinstance(value, str) and not jsonschema_rs.is_valid({"pattern": pattern}, value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


Judge = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"pattern": _pattern})
COUNTER = iter(range(10**9))


class Colour(enum.Enum):
    RED = "red"
    ONE = 1


SCALARS = [
    str,
    int,
    float,
    bool,
    type(None),
    Colour,
    Literal["a", 1],
    Annotated[int, msgspec.Meta(ge=0, lt=10)],
    Annotated[float, msgspec.Meta(gt=-1, le=1)],
    Annotated[int, msgspec.Meta(multiple_of=3)],
    Annotated[str, msgspec.Meta(min_length=1, max_length=3)],
    Annotated[str, msgspec.Meta(pattern="^[ab]*$")],
]
scalars = st.sampled_from(SCALARS)


def record(kind: str, types: list[Any], optional: list[bool]) -> Any:
    name = f"R{next(COUNTER)}"
    names = [f"f{i}" for i in range(len(types))]
    ordered = sorted(zip(names, types, optional[: len(types)], strict=True), key=lambda field: field[2])
    match kind:
        case "dataclass":
            return dataclasses.make_dataclass(name, [(n, t, None) if o else (n, t) for n, t, o in ordered])
        case "attrs":
            return attrs.make_class(
                name, {n: attrs.field(type=t, **({"default": None} if o else {})) for n, t, o in ordered}
            )
        case "struct":
            return msgspec.defstruct(name, [(n, t, None) if o else (n, t) for n, t, o in ordered])
        case "tuple":
            return NamedTuple(name, [(n, t) for n, t, _ in ordered])
        case _:
            return TypedDict(name, {n: t for n, t, _ in ordered}, total=not all(optional))  # type: ignore[operator]


def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    records = st.builds(
        record,
        st.sampled_from(["dataclass", "attrs", "struct", "tuple", "typed dict"]),
        st.lists(inner, min_size=1, max_size=3),
        st.lists(st.booleans(), min_size=3, max_size=3),
    )
    return st.one_of(
        records,
        records,
        records,
        inner.map(lambda t: list[t]),
        inner.map(lambda t: dict[str, t]),
        inner.map(lambda t: dict[int, t]),
        st.tuples(inner, inner).map(lambda ts: tuple[ts]),
        inner.map(lambda t: tuple[t, ...]),
        st.tuples(inner, inner).map(lambda ts: ts[0] | ts[1] if ts[0] is not ts[1] else ts[0]),
        inner.map(lambda t: t | None),
    )


any_type = st.recursive(scalars, compound, max_leaves=6)

LEAVES: list[Any] = [None, True, False, -3, -1, 0, 1, 3, 9, 10, 12, -1.0, 0.5, 1.0, 1.1, 3.0, 10**30]
LEAVES += ["", "a", "ab", "abc", "abca", "red", "1", "c", "\n", []]
json_scalars = st.sampled_from(LEAVES)
any_json = st.recursive(
    json_scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["f0", "f1", "f2", "1", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def shaped(schema: Any, root: Any) -> st.SearchStrategy[Any]:
    """JSON values drawn along a schema, now and then with a wrong part."""
    if "$ref" in schema:
        return shaped(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return st.one_of([shaped(member, root) for member in schema["anyOf"]])
    match schema.get("type"):
        case "object" if "properties" in schema:
            parts = {key: shaped(value, root) for key, value in schema["properties"].items()}
            return st.fixed_dictionaries(parts) | st.fixed_dictionaries({}, optional={**parts, "x": json_scalars})
        case "object":
            return st.dictionaries(
                st.sampled_from(["a", "1", "-2", "01"]), shaped(schema["additionalProperties"], root), max_size=2
            )
        case "array" if "prefixItems" in schema:
            row = st.tuples(*(shaped(item, root) for item in schema["prefixItems"])).map(list)
            return st.one_of(row, row, row.map(lambda items: items[:-1]), row.map(lambda items: [*items, 1]))
        case "array":
            return st.lists(shaped(schema["items"], root), max_size=3)
    fitting = [leaf for leaf in LEAVES if Judge(schema).is_valid(leaf)]
    return st.one_of(*[st.sampled_from(fitting)] * 5, json_scalars)  # one wrong part is enough, and is harder to find


WRAPPERS: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("bare", lambda t: t, lambda v: v),
    ("list", lambda t: list[t], lambda v: [v]),
    ("set", lambda t: set[t], lambda v: [v]),
    ("dict", lambda t: dict[str, t], lambda v: {"k": v}),
    ("pair", lambda t: tuple[str, t], lambda v: ["s", v]),
    ("optional", lambda t: t | None, lambda v: v),
    ("either", lambda t: t | list[bool], lambda v: v),
    *(
        (kind, lambda t, kind=kind: record(kind, [t], [False]), lambda v: {"f0": v})
        for kind in ("dataclass", "attrs", "struct", "tuple", "typed dict")
    ),
]


@pytest.mark.parametrize("type_", SCALARS, ids=shown)
@pytest.mark.parametrize(("wrap_type", "wrap_value"), [w[1:] for w in WRAPPERS], ids=[w[0] for w in WRAPPERS])
def test_every_single_value_is_judged_alike_wherever_it_stands(type_: Any, wrap_type: Any, wrap_value: Any) -> None:
    def tool(v: Any) -> None: ...

    tool.__annotations__["v"] = wrap_type(type_)
    described = describe(tool, injected=lambda cls: False)
    judge = Judge(described.input_schema)
    judged = {True: 0, False: 0}
    for leaf in LEAVES:
        arguments = {"v": wrap_value(leaf)}
        try:
            described.bind(arguments)
            taken = True
        except ArgumentFaults:
            taken = False
        assert taken == judge.is_valid(arguments), leaf
        judged[taken] += 1
    assert min(judged.values()) > 0  # otherwise nothing was compared


@given(type_=any_type, data=st.data())
def test_the_reader_accepts_exactly_what_the_schema_allows(type_: Any, data: st.DataObject) -> None:
    def tool(v: Any) -> None: ...

    tool.__annotations__["v"] = type_
    described = describe(tool, injected=lambda cls: False)
    jsonschema.Draft202012Validator.check_schema(described.input_schema)
    schema = described.input_schema
    value = data.draw(st.one_of(*[shaped(schema["properties"]["v"], schema)] * 5, any_json))
    arguments = json.loads(json.dumps({"v": value}))
    valid = Judge(schema).is_valid(arguments)
    if not valid:
        with pytest.raises(ArgumentFaults, match=r"^arguments"):
            described.bind(arguments)
        return
    bound = described.bind(arguments)["v"]
    back = dump(bound)
    if "None" not in repr(bound):  # a default of None need not be of the field's type
        assert Judge(schema_of(type_)).is_valid(back)


@given(arguments=st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), any_json))
def test_the_short_way_for_plain_parameters_agrees_with_the_schema(arguments: dict[str, Any]) -> None:
    def tool(a: int, b: str = "x", c: bool = False) -> None: ...

    described = describe(tool, injected=lambda cls: False)
    valid = Judge(described.input_schema).is_valid(arguments)
    if valid:
        assert described.bind(arguments) == arguments
    else:
        with pytest.raises(ArgumentFaults):
            described.bind(arguments)
