"""Values of every class of `mcptrio.types`, made from the annotations of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import attrs
from hypothesis import strategies as st

from mcptrio import types
from mcptrio.types.helpers import _Media

HELPERS = (types.Image, types.Audio, types.Message, _Media)


def wire_classes() -> list[type]:
    """Every class that travels: all that is exported but the helpers."""
    exported = [getattr(types, name) for name in types.__all__]
    found = {cls for cls in exported if isinstance(cls, type) and attrs.has(cls) and cls not in HELPERS}
    return sorted(found, key=lambda cls: cls.__name__)


@cache
def json_values() -> st.SearchStrategy[Any]:
    scalars = st.none() | st.booleans() | st.integers() | st.sampled_from([0.5, -1e300]) | st.text(max_size=5)
    inner = scalars | st.lists(scalars, max_size=2)
    return inner | st.dictionaries(st.text(max_size=5), inner, max_size=2)


@cache
def json_objects() -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.text(max_size=5), json_values(), max_size=2)


@cache
def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values for one annotation."""
    plain = {
        str: st.text(max_size=8),
        bool: st.booleans(),
        int: st.integers(),
        float: st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        Any: json_values().filter(lambda value: value is not None),
        type(None): st.none(),
    }
    if kind in plain:
        return plain[kind]
    args = get_args(kind)
    match get_origin(kind):
        case origin if origin is Literal:
            return st.sampled_from(args)
        case origin if origin in (Union, UnionType):
            return st.one_of([values_of(arg) for arg in args])
        case origin if origin is tuple:
            return st.lists(values_of(args[0]), max_size=2).map(tuple)
        case origin if origin is Mapping and args[1] is Any:
            return json_objects()
        case origin if origin is Mapping:
            return st.dictionaries(st.text(max_size=5), values_of(args[1]), max_size=2)
    return instances_of(kind)


@cache
def instances_of(cls: type) -> st.SearchStrategy[Any]:
    """Instances of one class; the few whose fields depend on each other are made by hand."""
    if cls is types.UnknownContent:
        tags = st.text(max_size=5).map(lambda tag: "x-" + tag)
        data = json_objects().map(lambda data: {k: v for k, v in data.items() if k != "type"})
        return st.builds(types.UnknownContent, type=tags, data=data)
    if cls is types.InputRequest:
        known = [
            st.builds(
                types.InputRequest, method=st.just(method), params=st.none() | st.deferred(lambda c=c: instances_of(c))
            )
            for method, c in types.INPUT_PARAMS_BY_METHOD.items()
        ]
        other = st.builds(types.InputRequest, method=st.just("other/method"), params=st.none() | json_objects())
        return st.one_of(*known, other)
    if cls is types.ElicitParams:
        form = st.fixed_dictionaries({"mode": st.sampled_from([None, "form"]), "requested_schema": json_objects()})
        url = st.fixed_dictionaries({"mode": st.just("url"), "url": st.text(max_size=8), "elicitation_id": st.text()})
        shared = st.fixed_dictionaries({"message": st.text(max_size=8), "meta": st.none() | json_objects()})
        return st.builds(lambda mode, rest: types.ElicitParams(**mode, **rest), form | url, shared)
    attrs.resolve_types(cls)
    required, optional = {}, {}
    for f in attrs.fields(cls):
        if f.init:
            (required if f.default is attrs.NOTHING else optional)[f.name] = st.deferred(lambda f=f: values_of(f.type))
    return st.fixed_dictionaries(required, optional=optional).map(lambda fields: cls(**fields))
