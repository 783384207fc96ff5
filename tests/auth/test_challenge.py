"""`WWW-Authenticate`, as servers write it and as they should not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio.auth.client.challenge import choose, read_challenges, read_scopes

HEADERS = [
    ("", []),
    ("Bearer", [("bearer", {})]),
    ('Bearer realm="x"', [("bearer", {"realm": "x"})]),
    ('BEARER SCOPE="a b"', [("bearer", {"scope": "a b"})]),
    ("Bearer scope=a, error=invalid_token", [("bearer", {"scope": "a", "error": "invalid_token"})]),
    ('Bearer error = "x" ,  scope="y"', [("bearer", {"error": "x", "scope": "y"})]),
    ('Bearer a="quoted \\" comma, and = too"', [("bearer", {"a": 'quoted " comma, and = too'})]),
    ('Basic realm="r", Bearer scope="s"', [("basic", {"realm": "r"}), ("bearer", {"scope": "s"})]),
    ('DPoP algs="ES256", Bearer', [("dpop", {"algs": "ES256"}), ("bearer", {})]),
    ("Negotiate dG9rZW4=, Bearer scope=s", [("negotiate", {}), ("bearer", {"scope": "s"})]),
    ("Negotiate, Bearer scope=s", [("negotiate", {}), ("bearer", {"scope": "s"})]),
    (", ,Bearer scope=s,,", [("bearer", {"scope": "s"})]),
    ('Bearer scope="first", scope="second"', [("bearer", {"scope": "first"})]),
    ('Bearer scope="never closed', [("bearer", {})]),
    ('Bearer scope="s", "garbage"', [("bearer", {"scope": "s"})]),
]


@pytest.mark.parametrize(("header", "expected"), HEADERS)
def test_a_header_is_read_as_written(header: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    assert [(one.scheme, dict(one.parameters)) for one in read_challenges(header)][: len(expected) or None] == expected


_names = st.text("abcdefghijklmnopqrstuvwxyz_-", min_size=1, max_size=8)
_values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
_challenges = st.lists(st.tuples(_names, st.dictionaries(_names, _values, max_size=4)), max_size=4)


@given(_challenges)
def test_a_written_challenge_is_read_back(challenges: list[tuple[str, dict[str, str]]]) -> None:
    def quoted(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    header = ", ".join(
        f"{scheme} {', '.join(f'{name}={quoted(value)}' for name, value in parameters.items())}".strip()
        for scheme, parameters in challenges
    )
    assert [(one.scheme, dict(one.parameters)) for one in read_challenges(header)] == challenges


@given(st.text(max_size=200))
def test_no_header_breaks_the_reader(header: str) -> None:
    for one in read_challenges(header):
        assert one.scheme == one.scheme.lower()


def test_a_long_header_takes_no_long_time() -> None:
    """Time that grows with the square of the length would be felt at this size."""
    assert read_challenges("Bearer " + "a" * 1_000_000) is not None
    assert len(read_challenges('Bearer x="' + "\\" * 1_000_000)) <= 1
    assert read_challenges("a, " * 300_000)


@pytest.mark.parametrize(
    ("header", "dpop", "scheme"),
    [
        ("Bearer, DPoP", None, "bearer"),
        ("DPoP, Bearer", None, "dpop"),
        ("DPoP, Bearer", False, "bearer"),
        ("Bearer, DPoP", True, "dpop"),
        ("Bearer", True, "bearer"),
        ("DPoP", False, None),
        ("Basic", None, None),
        ("", None, None),
    ],
)
def test_the_challenge_to_answer_is_one_that_we_speak(header: str, dpop: bool | None, scheme: str | None) -> None:
    chosen = choose(read_challenges(header), dpop=dpop)
    assert (chosen.scheme if chosen else None) == scheme


def test_scopes_are_names_in_order_each_once() -> None:
    assert read_scopes("b a  b c") == ("b", "a", "c")
    assert read_scopes('good b"ad \x07') == ("good",)
    assert read_scopes("") is read_scopes(None) is read_scopes(["a"]) is None
