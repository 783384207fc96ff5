"""Tokens, credentials, scopes, proofs and where they are kept."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwk, jwt

from mcptrio.auth.client import dpop
from mcptrio.auth.client.credentials import Credentials, PrivateKey, authenticate, choose_method
from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.scopes import select
from mcptrio.auth.client.storage import FileStorage, KeyringStorage, LockingStorage, MemoryStorage
from mcptrio.auth.client.tokens import read_tokens, restore

from .play import ENDPOINT, ISSUER, NOW, inputs

# -- the reply of a token endpoint


def read(**document: Any) -> Any:
    usual = {"access_token": "secret-a", "token_type": "bearer"}
    whole = {name: value for name, value in {**usual, **document}.items() if value is not None}
    return read_tokens(whole, now=NOW, issuer=ISSUER, resource=ENDPOINT, client_id="c", requested=("r",))


@pytest.mark.parametrize(
    "document",
    [
        {"token_type": "mac"},
        {"token_type": "DPoP"},  # not requested: there is no key for it
        {"token_type": None},
        {"token_type": 7},
        {"access_token": None},
        {"access_token": ""},
        {"access_token": 7},
        {"access_token": "line\nbreak"},
        {"access_token": "bad header\r\nX: y"},
        {"access_token": "x" * 100_000},
    ],
)
def test_a_token_that_cannot_be_used_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(AuthorizationFailed):
        read(**document)


@pytest.mark.parametrize(
    ("lifetime", "expected"),
    [(60, 60), ("60", 60), (-1, 0), (1e12, 366 * 86400), (0, 0), (None, None), ("soon", None), (True, None)],
)
def test_the_lifetime_of_a_token_is_clamped(lifetime: Any, expected: float | None) -> None:
    expires = read(expires_in=lifetime).expires_at
    assert expires == (None if expected is None else NOW + expected)


def test_tokens_survive_being_stored() -> None:
    tokens = read(refresh_token="secret-r", scope="a b", expires_in=5)
    assert restore(json.loads(json.dumps(tokens.record()))) == tokens


@given(
    st.dictionaries(
        st.sampled_from(sorted(read().record())), st.none() | st.text() | st.integers() | st.lists(st.text())
    )
)
def test_no_stored_record_breaks_the_reader(record: dict[str, Any]) -> None:
    tokens = restore(record)
    assert tokens is None or isinstance(tokens.access_token, str)


# -- saying who one is

SECRET = Credentials(client_id="id with space", secret="s:e/c%r+et")


def test_client_secret_basic_is_form_encoded_first() -> None:
    """RFC 6749 section 2.3.1: otherwise a colon in the id would split it at the wrong place."""
    headers, fields = authenticate(SECRET, offered=("client_secret_basic",), issuer=ISSUER, inputs=inputs())
    raw = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert [unquote_plus(part) for part in raw.split(":")] == ["id with space", "s:e/c%r+et"]
    assert fields == {}


def test_client_secret_post_puts_the_secret_into_the_form() -> None:
    headers, fields = authenticate(SECRET, offered=("client_secret_post",), issuer=ISSUER, inputs=inputs())
    assert (headers, fields) == ({}, {"client_id": "id with space", "client_secret": "s:e/c%r+et"})


@pytest.mark.parametrize(
    ("credentials", "offered", "method"),
    [
        (SECRET, ("client_secret_post", "client_secret_basic"), "client_secret_basic"),
        (SECRET, ("client_secret_post",), "client_secret_post"),
        (SECRET, ("none",), "none"),
        (SECRET, ("private_key_jwt",), None),
        (Credentials(client_id="c"), ("client_secret_basic",), "none"),
        (Credentials(client_id="c", key=PrivateKey(pem="x")), ("private_key_jwt", "none"), "private_key_jwt"),
        (Credentials(client_id="c", key=PrivateKey(pem="x")), ("client_secret_basic",), None),
    ],
)
def test_the_method_is_one_that_both_sides_know(
    credentials: Credentials, offered: tuple[str, ...], method: str | None
) -> None:
    if method is None:
        with pytest.raises(AuthorizationFailed):
            choose_method(credentials, offered)
    else:
        assert choose_method(credentials, offered) == method


@pytest.mark.parametrize(
    ("kind", "size", "algorithm"),
    [("EC", "P-256", "ES256"), ("EC", "P-384", "ES384"), ("RSA", 2048, "RS256"), ("RSA", 2048, "PS256")],
)
def test_a_signed_assertion_names_client_and_audience(kind: Any, size: Any, algorithm: str) -> None:
    key = jwk.generate_key(kind, size)
    pem = key.as_pem(private=True).decode()
    own = Credentials(client_id="c", key=PrivateKey(pem=pem, algorithm=algorithm, key_id="k1"))
    _, fields = authenticate(own, offered=("private_key_jwt",), issuer=ISSUER, inputs=inputs())
    assert fields["client_assertion_type"].endswith(":jwt-bearer")
    token = jwt.decode(fields["client_assertion"], key, algorithms=[algorithm])
    assert token.header["kid"] == "k1"
    claims = token.claims
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("c", "c", ISSUER)
    assert claims["exp"] - claims["iat"] <= 300
    assert claims["jti"]
    assert pem not in repr(own)


@pytest.mark.parametrize(("pem", "algorithm"), [("no pem", "ES256"), ("secret", "HS256"), ("x", "none")])
def test_a_key_that_does_not_fit_is_named_without_showing_it(pem: str, algorithm: str) -> None:
    own = Credentials(client_id="c", key=PrivateKey(pem=pem, algorithm=algorithm))
    with pytest.raises(AuthorizationFailed) as caught:
        authenticate(own, offered=("private_key_jwt",), issuer=ISSUER, inputs=inputs())
    assert pem not in str(caught.value) or pem == "x"
    assert caught.value.__cause__ is None


# -- scopes


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"challenged": ("a",), "configured": None, "supported": ("z",)}, ("a",)),
        ({"challenged": None, "configured": None, "supported": ("y", "z")}, ("y", "z")),
        ({"challenged": None, "configured": None, "supported": None}, ()),
        ({"challenged": None, "configured": ("c",), "supported": ("z",)}, ("c",)),
        ({"challenged": ("a",), "configured": ("c",), "supported": ("z",)}, ("c", "a")),
        ({"challenged": ("b",), "configured": None, "supported": ("z",), "before": ("a", "b")}, ("a", "b")),
        ({"challenged": ("a",), "configured": None, "supported": None, "offline": True}, ("a", "offline_access")),
        ({"challenged": None, "configured": None, "supported": None, "offline": True}, ()),
    ],
)
def test_scopes_are_selected_as_the_specification_says(given: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert select(**given) == expected


# -- proofs


def test_a_proof_says_what_request_it_is_for() -> None:
    key = dpop.new_key()
    url = "https://mcp.example/mcp?q=1#f"
    text = dpop.proof(key, method="POST", url=url, now=NOW, jti="one", token="t", nonce="n")
    header = json.loads(base64.urlsafe_b64decode(text.split(".")[0] + "=="))
    assert (header["typ"], header["alg"]) == ("dpop+jwt", "ES256")
    assert set(header["jwk"]) == {"kty", "crv", "x", "y"}  # never the private part
    claims = jwt.decode(text, jwk.ECKey.import_key(header["jwk"]), algorithms=["ES256"]).claims
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"t").digest()).rstrip(b"=").decode()
    assert claims == {
        "jti": "one",
        "htm": "POST",
        "htu": "https://mcp.example/mcp",
        "iat": int(NOW),
        "ath": digest,
        "nonce": "n",
    }


def test_nonces_belong_to_an_origin_and_are_bounded() -> None:
    nonces = dpop.NonceCache()
    for headers in ({"dpop-nonce": "1"}, {}, {"dpop-nonce": "n" * 5000}):
        nonces.learn("https://a.example/x", headers)
    assert nonces.of("https://a.example/z") == "1"
    assert nonces.of("https://b.example/") is None
    assert nonces.of("https://0x7f.1/token") is None
    for number in range(100):
        nonces.learn(f"https://{number}.example/", {"dpop-nonce": "x"})
    assert sum(nonces.of(f"https://{number}.example/") is not None for number in range(100)) == 16


# -- storage


@pytest.fixture(params=["memory", "file", "keyring"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "memory":
        return MemoryStorage()
    if request.param == "file":
        return FileStorage(tmp_path / "deep" / "tokens")
    ring: dict[tuple[str, str], str] = {}
    module = ModuleType("keyring")
    module.get_password = lambda service, key: ring.get((service, key))  # type: ignore[attr-defined]
    module.set_password = lambda service, key, text: ring.update({(service, key): text})  # type: ignore[attr-defined]
    module.delete_password = lambda service, key: ring.pop((service, key))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", module)
    return KeyringStorage()


def test_every_storage_keeps_replaces_and_forgets(storage: Any) -> None:
    assert storage.load("tokens at x") is None
    storage.save("tokens at x", {"access_token": "secret-1"})
    storage.save("../../etc/passwd", {"access_token": "secret-2"})
    assert storage.load("tokens at x") == {"access_token": "secret-1"}
    storage.save("tokens at x", {"access_token": "secret-3"})
    assert storage.load("tokens at x") == {"access_token": "secret-3"}
    storage.save("tokens at x", None)
    storage.save("tokens at x", None)
    assert storage.load("tokens at x") is None
    assert storage.load("../../etc/passwd") == {"access_token": "secret-2"}
    assert "secret-" not in repr(storage)


@pytest.mark.defect("E02")
def test_a_record_is_locked_by_one_client_at_a_time(tmp_path: Path) -> None:
    memory = MemoryStorage()
    pairs: list[tuple[LockingStorage, LockingStorage]] = [
        (memory, memory),
        (FileStorage(tmp_path / "tokens"), FileStorage(tmp_path / "tokens")),
    ]
    for one, other in pairs:
        release = one.try_lock("k")
        assert release is not None
        assert other.try_lock("k") is None
        unrelated = other.try_lock("another")
        assert unrelated is not None
        one.save("k", {"v": "new"})  # the lock survives a write
        assert other.try_lock("k") is None
        release()
        again = other.try_lock("k")
        assert again is not None
        again()
        unrelated()


def test_without_the_package_the_keyring_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(AuthorizationFailed, match="keyring"):
        KeyringStorage()


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_files_are_the_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        FileStorage(tmp_path / "tokens").save("k", {"access_token": "secret"})
    finally:
        os.umask(before)
    (file,) = (tmp_path / "tokens").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o700
    file.chmod(0o644)
    with pytest.raises(AuthorizationFailed, match="other users"):
        FileStorage(tmp_path / "tokens").load("k")


@pytest.mark.defect("S17")
@pytest.mark.skipif(os.name != "posix", reason="owners are of POSIX")
def test_a_file_that_another_user_wrote_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FileStorage(tmp_path).save("k", {"access_token": "planted"})
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(AuthorizationFailed, match="another user"):
        FileStorage(tmp_path).load("k")


def test_a_write_that_fails_leaves_the_old_record_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(tmp_path)
    storage.save("k", {"v": "old"})

    def broken(*_: Any) -> None:
        raise OSError(28, "disk full")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        storage.save("k", {"v": "new"})
    assert storage.load("k") == {"v": "old"}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_cannot_be_read_counts_as_absent(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    storage.save("k", {"v": "old"})
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"{half")
    assert storage.load("k") is None
