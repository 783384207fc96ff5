"""The fast scan of JSON text agrees with slow and simple code."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._wire.jsonrpc import finish
from mcptrio._wire.scan import JsonLimits, check_limits, has_duplicate_keys, lost_keys, structure
from mcptrio.errors import RemoteProtocolError

TEXTS = st.text(alphabet='ab:{}[],"\\/\n é\u2028😀', max_size=6)


class Pairs(list[tuple[str, Any]]):
    """An object with all its members, duplicates too."""


def values() -> st.SearchStrategy[Any]:
    scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=4) | st.lists(st.tuples(st.sampled_from("ab:"), inner), max_size=3).map(Pairs)
        ),
        max_leaves=20,
    )


def written(value: Any, *, ascii_only: bool, space: str, escape_colons: bool) -> str:
    """JSON text with every member of `Pairs`, in different hands."""
    kwargs = {"ascii_only": ascii_only, "space": space, "escape_colons": escape_colons}
    if isinstance(value, Pairs):
        members = [f"{written(key, **kwargs)}{space}:{space}{written(item, **kwargs)}" for key, item in value]
        return "{" + f",{space}".join(members) + "}"
    if isinstance(value, list):
        return "[" + f"{space},".join(written(item, **kwargs) for item in value) + "]"
    text = json.dumps(value, ensure_ascii=ascii_only)
    return text.replace(":", "\\u003a") if escape_colons else text


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    hand = {"ascii_only": draw(st.booleans()), "space": draw(st.sampled_from(["", " ", "\r\n\t"]))}
    return written(draw(values()), **hand, escape_colons=draw(st.booleans())).encode()


def oracle(data: bytes) -> tuple[bool, int, int]:
    """Whether a key is doubled, the depth, and the nodes, from the stdlib's decoder."""
    doubled = False

    def members(pairs: list[tuple[str, Any]]) -> Pairs:
        nonlocal doubled
        doubled |= len({key for key, _ in pairs}) != len(pairs)
        return Pairs(pairs)

    def measure(value: Any) -> tuple[int, int]:
        if not isinstance(value, list):
            return 0, 0
        inner = [measure(item[1] if isinstance(value, Pairs) else item) for item in value]
        depth = 1 + max((depth for depth, _ in inner), default=0)
        return depth, 1 + max(len(inner) - 1, 0) + sum(nodes for _, nodes in inner)

    depth, nodes = measure(json.loads(data, object_pairs_hook=members))
    return doubled, depth, nodes + 1


@given(texts())
def test_duplicate_keys_are_found_at_every_level_and_in_every_spelling(data: bytes) -> None:
    tree = msgspec.json.decode(data)
    assert has_duplicate_keys(data, msgspec.json.encode(tree)) is oracle(data)[0]
    assert finish(lost_keys(data, tree)) is oracle(data)[0]


@given(texts(), st.integers(1, 5), st.integers(1, 40))
def test_depth_and_nodes_are_refused_exactly_above_their_limits(data: bytes, max_depth: int, max_nodes: int) -> None:
    _, depth, nodes = oracle(data)
    limits = JsonLimits(max_depth=max_depth, max_nodes=max_nodes)
    if depth <= max_depth and nodes <= max_nodes:
        check_limits(data, limits)
    else:
        with pytest.raises(RemoteProtocolError) as caught:
            check_limits(data, limits)
        assert caught.value.http_status in (
            {400} if nodes <= max_nodes else {413} if depth <= max_depth else {400, 413}
        )


@given(st.binary() | st.text(alphabet='[]{}",:\\1 ').map(str.encode))
def test_any_bytes_pass_or_raise_the_one_error(data: bytes) -> None:
    for limits in (JsonLimits(), JsonLimits(max_depth=2, max_nodes=3)):
        try:
            check_limits(data, limits)
        except RemoteProtocolError:
            continue


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a":[1,"]"]}', b"{:[1,]}"),
        (rb'["\"", "\\", "\\\"]"]', b"[, , ]"),
        (rb'["a\\","b"]', b"[,]"),
        (b'["open [[[', b"["),
    ],
)
def test_the_structure_is_the_text_without_strings(data: bytes, expected: bytes) -> None:
    assert structure(data) == expected


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"[" * 100_000, 400),
        (b"[" * 1_000_000, 400),
        (b'{"a":' * 100_000, 400),
        (b'{"a":' * 1_000_000, 413),
        (b"[" * 65 + b"]" * 65, 400),
        (b"[" * 400_000 + b"]" * 400_000, 400),
        (b"[" + b"[]," * 300_000 + b"[]]", 413),
        (b"[" + b"0," * 300_000 + b"0]", 413),
        (b"[" + b'"",' * 300_000 + b'""]', 413),
        (b"{" + b",".join(b'"k%d":0' % i for i in range(200_000)) + b"}", 413),
    ],
)
def test_hostile_texts_are_refused_before_they_are_decoded(data: bytes, status: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        check_limits(data, JsonLimits())
    assert caught.value.http_status == status


def test_brackets_and_commas_in_a_long_text_do_not_count() -> None:
    """A tool may be given a program or a table as one string."""
    check_limits(json.dumps({"code": "[[[{{{,,," * 100_000}).encode(), JsonLimits())
