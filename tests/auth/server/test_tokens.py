"""Access tokens: which are accepted, and that a token cannot choose how it is checked."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio.auth.server import BearerAuth, Introspection, Principal
from mcptrio.auth.server.errors import CredentialsRefused
from mcptrio.auth.server.tokens import WantIntrospection, WantKeys, check_token

from .kit import ISSUER, NOW, b64, claims, ec, jwks, keys, rsa, settings, shown, sign, token


def check(text: str, auth: BearerAuth | None = None, *, known: Any = None, now: float = NOW) -> Principal:
    """Drive a check by hand: the keys are at hand."""
    running = check_token(auth or settings(), shown(text), now)
    try:
        want = next(running)
        assert isinstance(want, WantKeys)
        running.send(keys() if known is None else known)
    except StopIteration as done:
        principal: Principal = done.value
        return principal
    raise AssertionError("it wants to know too much")


@pytest.mark.parametrize("key", [rsa(), ec()], ids=["RS256", "ES256"])
def test_a_valid_token_gives_its_principal(key: Any) -> None:
    principal = check(token(key))
    assert (principal.issuer, principal.subject, principal.client_id) == (ISSUER, "ada", "desk")
    assert principal.scopes == {"orders:read"}
    assert principal.expires == NOW + 300 + 60, "the time until which requests are accepted"
    assert principal.claims["sub"] == "ada"


def test_the_keys_of_the_tokens_issuer_are_asked_for() -> None:
    other = "https://other.example.org"
    auth = settings(issuers=[ISSUER, other], jwks=None)
    assert next(check_token(auth, shown(token(iss=other)), NOW)) == WantKeys(issuer=other, kid="one")


MUTATIONS: dict[str, Callable[[], str]] = {
    "alg none": lambda: b64(b'{"alg":"none"}') + "." + b64(json.dumps(claims()).encode()) + ".",
    "alg none with a signature": lambda: sign(claims(), alg="none"),
    "HS256 with the public key as the secret": lambda: with_public_key_as_secret(),
    "another algorithm than the key's": lambda: sign(claims(), ec(), alg="RS256"),
    "signed by a stranger's key": lambda: sign(claims(), rsa("stranger"), kid="one"),
    "an unknown key": lambda: sign(claims(), rsa("stranger")),
    "jku": lambda: sign(claims(), jku="https://evil.example/keys"),
    "x5u": lambda: sign(claims(), x5u="https://evil.example/chain"),
    "its own key": lambda: sign(claims(), rsa("stranger"), jwk=rsa("stranger").as_dict(private=False)),
    "crit": lambda: sign(claims(), crit=["exp"]),
    "a changed payload": lambda: changed_payload(),
    "another type": lambda: sign(claims(), typ="dpop+jwt"),
    "an unknown issuer": lambda: token(iss="https://evil.example"),
    "no signature": lambda: token().rsplit(".", 1)[0] + ".",
    "expired": lambda: token(exp=NOW - 61),
    "no expiry": lambda: token(exp=None),
    "an expiry that is no number": lambda: token(exp="tomorrow"),
    "not valid yet": lambda: token(nbf=NOW + 61),
    "made in the future": lambda: token(iat=NOW + 61),
    "without a subject": lambda: token(sub=None, client_id=None),
    "an issuer with a slash more": lambda: token(iss=ISSUER + "/"),
}


def with_public_key_as_secret() -> str:
    """The classic confusion: a verifier that lets the token choose would use the RSA key's text as an HMAC secret."""
    signed = b64(b'{"alg":"HS256","kid":"one"}') + "." + b64(json.dumps(claims()).encode())
    return signed + "." + b64(hmac.digest(rsa().as_pem(private=False), signed.encode(), hashlib.sha256))


def changed_payload() -> str:
    head, _, signature = token().split(".")
    return f"{head}.{b64(json.dumps(claims(sub='root')).encode())}.{signature}"


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_neg_jwt(mutation: str) -> None:
    with pytest.raises(CredentialsRefused) as caught:
        check(MUTATIONS[mutation]())
    assert (caught.value.error, caught.value.status) == ("invalid_token", 401)


@pytest.mark.parametrize(
    "aud", [None, "", "https://api.example.org/mcp/", "https://other.example.org", [], ["x"] * 50, [7], {"a": 1}]
)
def test_neg_token_wrong_audience(aud: Any) -> None:
    with pytest.raises(CredentialsRefused, match="not issued for this server"):
        check(token(aud=aud))


def test_one_of_several_audiences_is_enough() -> None:
    assert check(token(aud=["https://other.example.org", "api"]), settings(audience="api")).subject == "ada"


@pytest.mark.parametrize(
    ("field", "value"), [("exp", NOW - 59), ("nbf", NOW + 59), ("iat", NOW + 59), ("exp", NOW - 59.5)]
)
def test_clocks_may_differ_by_a_minute(field: str, value: float) -> None:
    assert check(token(**{field: value})).subject == "ada"
    with pytest.raises(CredentialsRefused):
        check(token(**{field: value}), settings(clock_skew=10))


@pytest.mark.parametrize(
    ("said", "scopes"),
    [
        ({"scope": "a b  c"}, {"a", "b", "c"}),
        ({"scope": ["a", "b"]}, {"a", "b"}),
        ({"scope": None, "scp": "a b"}, {"a", "b"}),
        ({"scope": None, "scp": ["a", 7]}, {"a"}),
        ({"scope": None}, set()),
        ({"scope": {"a": 1}}, set()),
    ],
)
def test_scopes_are_read_however_they_are_written(said: dict[str, Any], scopes: set[str]) -> None:
    assert check(token(**said)).scopes == scopes


def test_scopes_that_contain_others_bring_them_along() -> None:
    """basic/authorization: servers MUST account for scope hierarchies."""
    auth = settings(implies={"admin": ["orders:write"], "orders:write": ["orders:read", "admin"]})
    assert check(token(scope="admin"), auth).scopes == {"admin", "orders:write", "orders:read"}


def test_a_token_without_a_key_id_is_checked_with_every_key_that_fits() -> None:
    known = keys(rsa("stranger"), rsa(), ec())
    assert check(sign(claims(), rsa(), kid=None), known=known).subject == "ada"


def test_a_key_that_is_for_another_algorithm_is_not_used() -> None:
    document = jwks(rsa())
    document["keys"][0]["alg"] = "PS256"
    from mcptrio.auth.server.keys import read_keys

    with pytest.raises(CredentialsRefused) as caught:
        check(token(), known=read_keys(document))
    assert "no such key" in caught.value.detail


@given(text=st.text(st.sampled_from("eyJhbGciOi.-_=~+/0"), max_size=200))
def test_any_text_as_a_token_is_refused_with_the_same_error(text: str) -> None:
    with pytest.raises(CredentialsRefused):
        check(text)


@given(header=st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "jwk"]), st.integers() | st.text()))
def test_no_header_gets_past_the_signature(header: dict[str, Any]) -> None:
    with pytest.raises(CredentialsRefused):
        check(b64(json.dumps(header).encode()) + "." + b64(json.dumps(claims()).encode()) + ".c2ln")


# -- introspection

ASK = Introspection(url=f"{ISSUER}/introspect", client_id="api", client_secret="hush")


def introspect(answer: Any, **changes: Any) -> Principal:
    running = check_token(settings(introspection=ASK, jwks=None, **changes), shown("opaque"), NOW)
    want = next(running)
    assert isinstance(want, WantIntrospection)
    assert "opaque" not in repr(want)
    try:
        running.send(answer)
    except StopIteration as done:
        principal: Principal = done.value
        return principal
    raise AssertionError("it wants to know too much")


def test_introspection_of_an_active_token_gives_its_principal() -> None:
    principal = introspect({"active": True, "sub": "ada", "aud": "https://api.example.org/mcp", "scope": "a"})
    assert (principal.issuer, principal.subject, principal.scopes) == (ISSUER, "ada", {"a"})


@pytest.mark.parametrize(
    "answer",
    [
        {"active": False},
        {},
        [],
        None,
        {"active": "true", **claims()},
        {"active": 1, **claims()},
        {"active": True, **claims(aud="https://other.example.org")},
        {"active": True, **claims(aud=None)},
        {"active": True, **claims(exp=NOW - 100)},
        {"active": True, **claims(iss="https://evil.example")},
        {"active": True, **claims(token_type="refresh_token")},
    ],
)
def test_anything_else_is_refused(answer: Any) -> None:
    with pytest.raises(CredentialsRefused):
        introspect(answer)
