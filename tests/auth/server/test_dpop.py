"""Tokens that are bound to a key: stealing the token is not enough, and a proof works once."""

from __future__ import annotations

import hashlib
import tracemalloc
from typing import Any

import pytest
from joserfc.jwk import ECKey

from mcptrio.auth.server import BearerAuth, Principal
from mcptrio.auth.server.dpop import NonceIssuer, Replays, check_possession
from mcptrio.auth.server.errors import CredentialsRefused, Unavailable

from .kit import ISSUER, NOW, b64, ec, proof, settings, shown, token

MINE, THEIRS = ec("mine"), ec("theirs")
TOKEN = token()
NONCES = NonceIssuer(b"secret")


def bound_to(key: ECKey = MINE) -> Principal:
    return Principal(issuer=ISSUER, subject="ada", claims={"cnf": {"jkt": key.thumbprint()}})


def check(
    proofs: list[str], principal: Principal | None = None, auth: BearerAuth | None = None, **changes: Any
) -> None:
    replays = changes.pop("replays", Replays())
    now = changes.pop("now", NOW)
    presented = shown(TOKEN, **{"scheme": "dpop", "proofs": tuple(proofs), **changes})
    auth = auth or settings(dpop=True)
    check_possession(auth, presented, principal or bound_to(), now=now, replays=replays, nonces=NONCES)


def test_the_holder_of_the_key_may_use_the_token() -> None:
    check([proof(TOKEN, MINE)])
    check([proof(TOKEN, MINE, htu="https://API.example.org:443/mcp?x=1")])
    check([proof(TOKEN, MINE, htu="https://api.example.org/mcp/")])


@pytest.mark.parametrize(
    "bad",
    [
        [],
        [proof(TOKEN, MINE), proof(TOKEN, MINE, jti="second")],
        ["nonsense"],
        [proof(TOKEN, THEIRS)],
        [proof(TOKEN, MINE, header_typ="JWT")],
        [proof(TOKEN, MINE, header_jwk=None)],
        [proof(TOKEN, MINE, header_jwk=THEIRS.as_dict(private=False))],
        [proof(TOKEN, MINE, header_jwk=MINE.as_dict(private=True))],
        [proof(TOKEN, MINE, header_alg="none")],
        [proof(TOKEN, MINE, header_alg="HS256")],
        [proof(TOKEN, MINE, htm="GET")],
        [proof(TOKEN, MINE, htu="https://evil.example/mcp")],
        [proof(TOKEN, MINE, htu="http://api.example.org/mcp")],
        [proof(TOKEN, MINE, htu="https://api.example.org/other")],
        [proof(TOKEN, MINE, htu="https://api.example.org/mcp//")],
        [proof(TOKEN, MINE, htu="https://[")],
        [proof(TOKEN, MINE, iat=NOW - 121)],
        [proof(TOKEN, MINE, iat=NOW + 61)],
        [proof(TOKEN, MINE, iat=None)],
        [proof(TOKEN, MINE, iat="now")],
        [proof(TOKEN, MINE, jti=None)],
        [proof(TOKEN, MINE, ath=None)],
        [proof("another token", MINE)],
    ],
    ids=range(23),
)
def test_a_proof_that_is_not_for_this_request_is_refused(bad: list[str]) -> None:
    with pytest.raises(CredentialsRefused) as caught:
        check(bad)
    assert (caught.value.error, caught.value.status) == ("invalid_dpop_proof", 401)


def test_a_proof_works_once() -> None:
    replays, first = Replays(), proof(TOKEN, MINE)
    check([first], replays=replays)
    with pytest.raises(CredentialsRefused, match="used before"):
        check([first], replays=replays)
    check([proof(TOKEN, MINE, jti="second")], replays=replays)


def test_used_proofs_are_forgotten_when_they_are_too_old_anyway_and_never_before() -> None:
    replays = Replays(most=4)
    assert replays.use("mine", b"a", 10, 0)
    assert replays.use("mine", b"b", 20, 0)
    with pytest.raises(Unavailable):
        replays.use("mine", b"c", 20, 9)
    assert not replays.use("mine", b"a", 10, 9)
    assert replays.use("mine", b"c", 20, 11)
    assert len(replays) == 2
    assert not replays.use("mine", b"b", 20, 11)


@pytest.mark.defect("S9")
def test_a_key_that_uses_many_proofs_takes_no_room_from_others() -> None:
    replays, refused = Replays(most=1000), []
    for key in ("greedy", "greedier", "third"):
        for number in range(1000):
            try:
                assert replays.use(key, f"{key} {number}".encode(), 60, 0)
            except Unavailable:
                refused.append(key)
                break
        assert replays.use(f"friend of {key}", key.encode(), 60, 0)
    assert refused == ["greedy", "greedier", "third"]
    assert len(replays) < 1000
    assert not replays.use("greedy", b"greedy 0", 60, 0)  # none was dropped to make room


@pytest.mark.defect("S9")
def test_proofs_of_several_keys_of_one_caller_count_together() -> None:
    replays = Replays(most=40)
    with pytest.raises(Unavailable):
        for number in range(40):
            key = ECKey.generate_key("P-256")
            check([proof(TOKEN, key, jti=str(number))], bound_to(key), replays=replays)
    assert len(replays) == 20
    check([proof(TOKEN, MINE)], Principal(subject="bob", claims=bound_to().claims), replays=replays)


@pytest.mark.defect("S9")
def test_the_cost_of_a_proof_does_not_grow_with_the_number_of_proofs() -> None:
    replays = Replays()
    for number in range(20_000):
        replays.use("mine", b"%d" % number, 60, 0)
    peaks = []
    tracemalloc.start()
    for number in range(10):
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        replays.use("mine", b"later %d" % number, 60, 0)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    assert min(peaks) < 10_000  # no copy of the table
    held = len(replays)
    replays.use("mine", b"next", 160, 100)
    assert held - 20 < len(replays) < held  # expired proofs are removed a few at a time


@pytest.mark.parametrize("setting", [False, True, "required"])
def test_a_bound_token_is_never_taken_without_its_proof(setting: Any) -> None:
    with pytest.raises(CredentialsRefused):
        check([], auth=settings(dpop=setting), scheme="bearer")


def test_a_token_of_no_key_is_no_bound_token() -> None:
    plain = Principal(subject="ada")
    check([], plain, scheme="bearer")
    for auth, scheme in [(settings(dpop="required"), "bearer"), (settings(dpop=True), "dpop")]:
        with pytest.raises(CredentialsRefused):
            check([proof(TOKEN, MINE)], plain, auth, scheme=scheme)


def test_a_nonce_of_ours_is_wanted_if_set() -> None:
    auth = settings(dpop=True, dpop_nonce=True)
    with pytest.raises(CredentialsRefused) as caught:
        check([proof(TOKEN, MINE)], auth=auth)
    assert caught.value.error == "use_dpop_nonce"
    fresh = proof(TOKEN, MINE, nonce=NONCES.current(NOW))
    check([fresh], auth=auth)
    check([proof(TOKEN, MINE, nonce=NONCES.current(NOW - 100))], auth=auth)
    with pytest.raises(CredentialsRefused):
        check([proof(TOKEN, MINE, nonce=NONCES.current(NOW - 400))], auth=auth)


def test_a_token_may_be_bound_to_a_certificate() -> None:
    certificate = b"the client's certificate"
    principal = Principal(subject="ada", claims={"cnf": {"x5t#S256": b64(hashlib.sha256(certificate).digest())}})
    check([], principal, scheme="bearer", certificate=certificate)
    for other in (None, b"another"):
        with pytest.raises(CredentialsRefused, match="certificate"):
            check([], principal, scheme="bearer", certificate=other)


@pytest.mark.parametrize("cnf", [{"kid": "7"}, "text", [], {"jku": "https://evil.example"}])
def test_a_token_that_is_bound_to_something_unknown_is_refused(cnf: Any) -> None:
    with pytest.raises(CredentialsRefused):
        check([], Principal(subject="ada", claims={"cnf": cnf}), scheme="bearer")
