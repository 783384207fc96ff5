"""The seeds, and what hypothesis makes of them, through every harness: `make fuzz` goes on from here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .harnesses import HARNESSES
from .inputs import inputs, seeds
from .run import NAMES


def test_the_six_codecs_are_fuzzed() -> None:
    assert tuple(HARNESSES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_seeds_pass(name: str) -> None:
    found = seeds(name)
    assert found
    for seed in found:
        HARNESSES[name](seed)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_mutations_of_the_seeds_pass(name: str, data: st.DataObject) -> None:
    HARNESSES[name](data.draw(inputs(name)))
