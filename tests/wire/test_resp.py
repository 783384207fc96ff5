"""RESP3: what is packed can be parsed, wherever the network cuts it."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._wire.resp import Push, RespParser, ServerError, pack
from mcptrio.errors import DeclarationError, RemoteProtocolError

from .resp_oracle import OracleParser, encode

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=40),
    st.from_regex(r"[A-Z]{1,8}( [a-z ]{0,20})?", fullmatch=True).map(ServerError),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.binary(max_size=8), inner, max_size=4)),
    max_leaves=12,
)
PUSHES = st.lists(st.binary(max_size=10), min_size=1, max_size=4).map(Push)


def plain(value: Any) -> Any:
    """A form that can be compared: an exception is equal to itself only, and a push to a list."""
    match value:
        case ServerError():
            return ("error", str(value))
        case Push():
            return ("push", [plain(item) for item in value])
        case list():
            return [plain(item) for item in value]
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case _:
            return (type(value), value)


@given(values=st.lists(VALUES | PUSHES, max_size=6), cuts=st.lists(st.integers(0, 400), max_size=12))
def test_replies_are_parsed_wherever_they_are_cut(values: list[Any], cuts: list[int]) -> None:
    data = b"".join(map(encode, values))
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    parser, oracle = RespParser(), OracleParser()
    found: list[Any] = []
    for start, end in itertools.pairwise(edges):
        piece = data[start:end]
        replies = list(parser.feed(piece))
        assert plain(replies) == plain(oracle.feed(piece))
        found += replies
    assert plain(found) == plain(values)


@given(commands=st.lists(st.lists(st.binary() | st.text() | st.integers(), min_size=1, max_size=5), max_size=4))
def test_a_command_is_packed_as_an_array_of_bulk_strings(commands: list[list[Any]]) -> None:
    expected = [[item if isinstance(item, bytes) else str(item).encode() for item in one] for one in commands]
    assert OracleParser().feed(pack(map(tuple, commands))) == expected
    assert list(RespParser().feed(pack(map(tuple, commands)))) == expected


def test_a_simple_string_is_bytes() -> None:
    assert list(RespParser().feed(b"+OK\r\n")) == [b"OK"]


def test_an_error_names_its_code() -> None:
    (error,) = RespParser().feed(b"-NOSCRIPT No matching script.\r\n")
    assert isinstance(error, ServerError)
    assert error.code == "NOSCRIPT"
    assert str(error) == "NOSCRIPT No matching script."


def test_another_protocol_is_noticed() -> None:
    with pytest.raises(RemoteProtocolError, match="RESP3"):
        list(RespParser().feed(b"HTTP/1.1 400 Bad Request\r\n"))


def test_without_hiredis_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hiredis", None)
    with pytest.raises(DeclarationError, match=r"mcptrio\[redis\]"):
        RespParser()
