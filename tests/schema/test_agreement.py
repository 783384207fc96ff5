"""Schema and reader are two views of one type: what one takes, the other takes.

Types are drawn at random, with values that fit and values that nearly fit; `jsonschema` is the judge.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import attrs
import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._schema.build import ArgumentFaults, describe, dump, schema_of

COUNTER = iter(range(10**9))


class Colour(enum.Enum):
    RED = "red"
    ONE = 1


scalars = st.sampled_from(
    [
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
)


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
    return st.one_of(
        inner.map(lambda t: list[t]),
        inner.map(lambda t: dict[str, t]),
        inner.map(lambda t: dict[int, t]),
        st.tuples(inner, inner).map(lambda ts: tuple[ts]),
        inner.map(lambda t: tuple[t, ...]),
        st.tuples(inner, inner).map(lambda ts: ts[0] | ts[1] if ts[0] is not ts[1] else ts[0]),
        inner.map(lambda t: t | None),
        st.builds(
            record,
            st.sampled_from(["dataclass", "attrs", "struct", "tuple", "typed dict"]),
            st.lists(inner, min_size=1, max_size=3),
            st.lists(st.booleans(), min_size=3, max_size=3),
        ),
    )


any_type = st.recursive(scalars, compound, max_leaves=6)

json_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-20, 20),
    st.floats(-3, 3).map(lambda x: round(x, 1)),
    st.sampled_from(["", "a", "ab", "red", "1", "abcd", "zz"]),
)
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
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | json_scalars
    match schema.get("type"):
        case "object" if "properties" in schema:
            parts = {key: shaped(value, root) for key, value in schema["properties"].items()}
            return st.fixed_dictionaries({}, optional=parts) | st.fixed_dictionaries(parts)
        case "object":
            return st.dictionaries(
                st.sampled_from(["a", "1", "-2", "01"]), shaped(schema["additionalProperties"], root), max_size=2
            )
        case "array" if "prefixItems" in schema:
            return st.tuples(*(shaped(item, root) for item in schema["prefixItems"])).map(list)
        case "array":
            return st.lists(shaped(schema["items"], root), max_size=3)
    return json_scalars


@given(type_=any_type, data=st.data())
def test_what_the_reader_takes_is_what_the_schema_allows(type_: Any, data: st.DataObject) -> None:
    def tool(v: Any) -> None: ...

    tool.__annotations__["v"] = type_
    described = describe(tool, injected=lambda cls: False)
    jsonschema.Draft202012Validator.check_schema(described.input_schema)
    schema = described.input_schema
    value = data.draw(shaped(schema["properties"]["v"], schema) | any_json)
    arguments = json.loads(json.dumps({"v": value}))
    valid = jsonschema.Draft202012Validator(schema).is_valid(arguments)
    if not valid:
        with pytest.raises(ArgumentFaults, match=r"^arguments"):
            described.bind(arguments)
        return
    bound = described.bind(arguments)["v"]
    back = dump(bound)
    if "None" not in repr(bound):  # a default of None need not be of the field's type
        assert jsonschema.Draft202012Validator(schema_of(type_)).is_valid(back)


@given(arguments=st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), any_json))
def test_the_short_way_for_plain_parameters_agrees_with_the_schema(arguments: dict[str, Any]) -> None:
    def tool(a: int, b: str = "x", c: bool = False) -> None: ...

    described = describe(tool, injected=lambda cls: False)
    valid = jsonschema.Draft202012Validator(described.input_schema).is_valid(arguments)
    if valid:
        assert described.bind(arguments) == arguments
    else:
        with pytest.raises(ArgumentFaults):
            described.bind(arguments)
