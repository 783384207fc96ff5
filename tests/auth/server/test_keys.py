"""The keys of an issuer: which are usable, and how often they are fetched, whatever tokens come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio.auth.server.errors import Unavailable
from mcptrio.auth.server.keys import Decision, IssuerKeys, metadata_urls, read_json, read_jwks_uri, read_keys

from .kit import ISSUER, ec, jwks, keys, rsa


def test_only_public_signature_keys_are_taken() -> None:
    good = rsa().as_dict(private=False)
    others: list[Any] = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "hmac"},
        {**good, "use": "enc"},
        {**good, "key_ops": ["encrypt"]},
        rsa().as_dict(private=True),
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC"},
        {},
        "text",
        None,
    ]
    found = read_keys({"keys": [*others, {**good, "kid": "good"}]})
    assert [key.kid for key in found] == ["good"]


@pytest.mark.parametrize("document", [None, [], {}, {"keys": {}}, {"keys": []}, {"keys": [{"kty": "oct", "k": "eA"}]}])
def test_a_document_without_a_usable_key_is_refused(document: Any) -> None:
    with pytest.raises(Unavailable):
        read_keys(document)


def test_an_algorithm_fits_its_own_kind_of_key() -> None:
    of_rsa, of_ec = keys(rsa(), ec())
    assert [of_rsa.fits(alg) for alg in ("RS256", "PS512", "ES256", "EdDSA", "HS256", "none")] == [True] * 2 + [
        False
    ] * 4
    assert [of_ec.fits(alg) for alg in ("ES256", "ES384", "RS256")] == [True, False, False]


def test_the_metadata_urls_of_an_issuer() -> None:
    base = "https://login.example.org/.well-known"
    assert metadata_urls(ISSUER) == (f"{base}/oauth-authorization-server", f"{base}/openid-configuration")
    assert metadata_urls(f"{ISSUER}/tenant") == (
        f"{base}/oauth-authorization-server/tenant",
        f"{base}/openid-configuration/tenant",
        "https://login.example.org/tenant/.well-known/openid-configuration",
    )


@pytest.mark.parametrize(
    "document",
    [
        None,
        {"jwks_uri": "https://login.example.org/keys"},
        {"issuer": ISSUER + "/", "jwks_uri": "https://login.example.org/keys"},
        {"issuer": ISSUER},
        {"issuer": ISSUER, "jwks_uri": "keys"},
        {"issuer": ISSUER, "jwks_uri": "http://login.example.org/keys"},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"},
    ],
)
def test_metadata_of_another_issuer_is_refused(document: Any) -> None:
    with pytest.raises(Unavailable):
        read_jwks_uri(document, ISSUER)


def test_a_response_that_is_not_json_counts_as_unavailable() -> None:
    assert read_json(b'{"a": 1}') == {"a": 1}
    for body in (b"<html>", b"", b"[" * 100_000):
        with pytest.raises(Unavailable):
            read_json(body)


# -- when to fetch


def books() -> IssuerKeys:
    return IssuerKeys(ttl=300, max_age=3600, pause=10)


def test_keys_are_refreshed_and_kept_while_the_issuer_is_down() -> None:
    mine = books()
    assert mine.decide("one", 0) is Decision.FETCH
    mine.took(keys(), 0)
    assert mine.decide("one", 299) is Decision.USE
    assert mine.decide(None, 299) is Decision.USE
    assert mine.decide("one", 301) is Decision.REFRESH
    mine.missed(301)
    assert mine.decide("one", 302) is Decision.USE, "the issuer is down: what it said before still holds"
    assert mine.decide("one", 312) is Decision.REFRESH
    mine.missed(3601)
    assert mine.decide("one", 3602) is Decision.UNAVAILABLE, "but not for ever"
    assert mine.decide("one", 3612) is Decision.FETCH


def test_neg_a_flood_of_unknown_keys_makes_two_fetches_in_ten_seconds() -> None:
    mine, fetches = books(), 0
    for tenth in range(1000):
        now, kid = tenth / 10, f"invented-{tenth}"
        if mine.decide(kid, now) is Decision.FETCH:
            fetches += 1
            mine.took(keys(), now, looked_for=kid)
            assert mine.decide(kid, now) is Decision.UNKNOWN
        else:
            assert mine.decide(kid, now) is Decision.UNAVAILABLE, "it may have been published since"
        assert mine.decide("one", now) is Decision.USE, "those with a real key are not disturbed"
    assert fetches <= 20
    assert len(mine.absent) <= 256


@pytest.mark.defect("E14")
def test_a_key_that_is_published_right_after_a_fetch_is_fetched_at_once() -> None:
    mine = books()
    mine.took(keys(), 0, looked_for="old")
    assert mine.decide("old", 1) is Decision.UNKNOWN, "it was looked for"
    assert mine.decide("new", 1) is Decision.FETCH
    mine.took(keys(), 1, looked_for="new")
    assert mine.decide("new", 2) is Decision.UNKNOWN
    assert mine.decide("newer", 2) is Decision.UNAVAILABLE, "one early fetch per pause"
    assert mine.decide("newer", 12) is Decision.FETCH


@given(steps=st.lists(st.tuples(st.sampled_from(["ok", "down"]), st.floats(0, 5000), st.booleans()), max_size=30))
def test_keys_are_never_used_past_their_age_and_fetches_keep_their_distance(
    steps: list[tuple[str, float, bool]],
) -> None:
    mine, now, last, before_last = books(), 0.0, -1e9, -1e9
    for answer, pause, known in steps:
        now += pause
        decision = mine.decide("one" if known else "invented", now)
        if decision in (Decision.FETCH, Decision.REFRESH):
            assert now - before_last >= 10
            before_last, last = last, now
            if answer == "ok":
                mine.took(keys(), now)
            else:
                mine.missed(now)
        if decision in (Decision.USE, Decision.REFRESH):
            assert known
            assert now - mine.fetched < 3600


def test_the_test_kit_makes_keys_of_both_kinds() -> None:
    assert {key["kty"] for key in jwks()["keys"]} == {"RSA", "EC"}


@pytest.mark.defect("E11")
def test_a_refused_issuer_is_named_next_to_the_expected_one() -> None:
    with pytest.raises(Unavailable) as caught:
        read_jwks_uri({"issuer": ISSUER + "/", "jwks_uri": "https://login.example.org/keys"}, ISSUER)
    assert f"{ISSUER + '/'!r}" in str(caught.value)
    assert f"{ISSUER!r}" in str(caught.value)
