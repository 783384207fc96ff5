"""The fast reader of a call's parameters agrees with the full one, or declines."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._wire.objects.converter import structure
from mcptrio.server.features.tools import usual_call

ANYTHING: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.sampled_from(["progressToken", "a", "name"]), ANYTHING, max_size=2)
USUAL = st.fixed_dictionaries({"name": st.text(max_size=3), "arguments": OBJECTS}, optional={"_meta": OBJECTS})
ODD = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=3) | ANYTHING,
        "arguments": OBJECTS | ANYTHING,
        "_meta": OBJECTS | ANYTHING,
        "inputResponses": OBJECTS | ANYTHING,
        "requestState": st.text(max_size=3) | ANYTHING,
        "task": OBJECTS | ANYTHING,
        "other": ANYTHING,
    },
)


@given(USUAL | ODD | st.builds(lambda usual, odd: {**usual, **odd}, USUAL, ODD))
def test_the_fast_reader_agrees_with_the_full_reader(params: dict[str, Any]) -> None:
    quick = usual_call(params)
    if quick is not None:
        full: Any = structure(params, "CallToolParams")
        assert type(quick) is type(full)
        for each in attrs.fields(type(full)):
            assert repr(getattr(quick, each.name)) == repr(getattr(full, each.name)), "1 is not True either"


@given(USUAL)
def test_usual_parameters_take_the_fast_reader(params: dict[str, Any]) -> None:
    assert usual_call(params) is not None


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": "t"},
        {"name": 1, "arguments": {}},
        {"name": "t", "arguments": []},
        {"name": "t", "arguments": None},
        {"name": "t", "arguments": {}, "_meta": None},
        {"name": "t", "arguments": {}, "_meta": []},
        {"name": "t", "arguments": {}, "other": 1},
        {"name": "t", "arguments": {}, "_meta": {}, "other": 1},
    ],
)
def test_anything_else_is_left_to_the_full_reader(params: dict[str, Any]) -> None:
    assert usual_call(params) is None
