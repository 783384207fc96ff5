"""Settings of authentication: mistakes are found when the settings are made, and no setting turns a rule off."""

from __future__ import annotations

from typing import Any

import pytest

from mcptrio.auth.server import BearerAuth, Certificate, ClientCertificates, Introspection, Principal, StaticTokens
from mcptrio.auth.server.metadata import challenge, challenges, metadata, metadata_paths, metadata_url
from mcptrio.errors import DeclarationError

from .kit import ISSUER, RESOURCE, settings


def test_neg_verifier_needs_audience() -> None:
    with pytest.raises(TypeError, match="resource"):
        BearerAuth(issuers=[ISSUER])  # type: ignore[call-arg]
    for nothing in ("", [""], ["api", ""]):
        with pytest.raises(DeclarationError, match="audience"):
            settings(audience=nothing)
    for nothing in (None, [], ()):
        assert settings(audience=nothing).audience == (RESOURCE,), "without one it is the server itself"


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"issuers": []}, "issuers is empty"),
        ({"issuers": ["login.example.org"]}, "https://"),
        ({"issuers": ["http://login.example.org"]}, "must be https"),
        ({"resource": "https://api.example.org/mcp#top"}, "fragment"),
        ({"resource": "https://ada:pw@api.example.org/mcp"}, "user name"),
        ({"algorithms": ["none"]}, "none cannot be allowed"),
        ({"algorithms": ["RS256", "HS256"]}, "HS256 cannot be allowed"),
        ({"algorithms": []}, "nothing"),
        ({"dpop": "always"}, "required"),
        ({"clock_skew": 3600}, "clock_skew"),
        ({"jwks": None, "jwks_uri": "https://x.example/k", "issuers": [ISSUER, "https://b.example"]}, "several"),
        ({"jwks": None, "jwks_uri": {"https://b.example": "https://x.example/k"}}, "not in issuers"),
        ({"jwks_uri": "https://x.example/k"}, "keys of one issuer"),
        ({"fetch_timeout": 0}, "fetch_timeout"),
    ],
)
def test_wrong_settings_are_refused_with_a_hint(changes: dict[str, Any], hint: str) -> None:
    with pytest.raises(DeclarationError, match=hint):
        settings(**changes)


def test_plain_http_is_for_this_machine_only() -> None:
    assert settings(resource="http://127.0.0.1:8000/mcp", issuers=["http://localhost:9000"]).issuers
    with pytest.raises(DeclarationError, match="must be https"):
        settings(resource="http://127.0.0.2.example.org/mcp")


def test_neg_token_not_in_repr() -> None:
    secret = "s3cret-s3cret-s3cret"
    said = [
        repr(StaticTokens({secret: "ada"})),
        repr(Introspection(url=f"{ISSUER}/i", client_id="api", client_secret=secret)),
        repr(Principal(subject="ada", claims={"jti": secret})),
        repr(settings(introspection=Introspection(url=f"{ISSUER}/i", client_id="api", client_secret=secret))),
    ]
    assert not any(secret in text for text in said)


# -- principals


def test_principals_differ_by_issuer_client_and_subject() -> None:
    parts = [("i", "c", "s"), ("i", "c", "t"), ("i", "d", "s"), ("j", "c", "s"), ("i", '","', "s"), ("i", "", '","s')]
    keys = {Principal(issuer=i, client_id=c, subject=s).key for i, c, s in parts}
    assert len(keys) == len(parts)


def test_scopes_are_not_part_of_a_principals_identity() -> None:
    assert Principal(subject="ada", scopes="a b").key == Principal(subject="ada", scopes=["c"]).key
    assert Principal(subject="ada", scopes="a b").scopes == {"a", "b"}


def test_a_principal_needs_a_subject_or_a_client_id() -> None:
    with pytest.raises(DeclarationError, match="subject or a client_id"):
        Principal(issuer="https://login.example.org")


# -- metadata and challenges


def test_the_metadata_says_where_tokens_come_from_and_which_scopes_there_are() -> None:
    auth = settings(required_scopes="mcp", dpop=True, documentation="https://example.org/docs")
    document = metadata(auth, ["orders:read", "offline_access"], name="orders")
    assert document == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["mcp", "orders:read"],
        "resource_name": "orders",
        "resource_documentation": "https://example.org/docs",
        "dpop_signing_alg_values_supported": document["dpop_signing_alg_values_supported"],
        "dpop_bound_access_tokens_required": False,
    }


@pytest.mark.parametrize(
    ("resource", "url", "path"),
    [
        (RESOURCE, "https://api.example.org/.well-known/oauth-protected-resource/mcp", "/mcp"),
        ("https://a.example", "https://a.example/.well-known/oauth-protected-resource", ""),
        ("https://a.example/", "https://a.example/.well-known/oauth-protected-resource", ""),
        ("https://a.example:8443/x/mcp", "https://a.example:8443/.well-known/oauth-protected-resource/x/mcp", "/x/mcp"),
    ],
)
def test_the_metadata_has_a_well_known_url(resource: str, url: str, path: str) -> None:
    auth = settings(resource=resource)
    assert metadata_url(auth) == url
    known = "/.well-known/oauth-protected-resource"
    assert metadata_paths(auth) == {known, known + path}
    assert metadata_url(settings(metadata_url="https://else.example/m")) == "https://else.example/m"


def test_a_challenge_is_one_header_whatever_is_in_it() -> None:
    assert challenge("Bearer", error='a"b\\c\r\nX: y', scope="") == 'Bearer error="a\\"b\\\\c??X: y"'
    assert challenge("Bearer") == "Bearer"


def test_a_challenge_names_every_scope_at_once() -> None:
    (line,) = challenges(settings(), error="insufficient_scope", scopes=["b", "a", "offline_access"])
    assert line == (
        'Bearer error="insufficient_scope", scope="a b", '
        'resource_metadata="https://api.example.org/.well-known/oauth-protected-resource/mcp"'
    )
    assert [line.split()[0] for line in challenges(settings(dpop=True))] == ["Bearer", "DPoP"]
    assert [line.split()[0] for line in challenges(settings(dpop="required"))] == ["DPoP"]


# -- without an authorization server


def test_static_tokens_are_found_by_the_whole_token() -> None:
    tokens = StaticTokens({"a" * 32: Principal(subject="ada", scopes="orders:read"), "b" * 32: "bob"})
    found = tokens.find("a" * 32)
    assert found is not None
    assert (found.subject, found.scopes) == ("ada", {"orders:read"})
    assert tokens.find("b" * 32) == Principal(subject="bob")
    assert [tokens.find(text) for text in ("", "a" * 31, "a" * 33, "A" * 32)] == [None] * 4


def test_static_tokens_from_a_file() -> None:
    first, second = "a" * 20, "b" * 20
    tokens = StaticTokens.read(f"# for the desk\n\n{first} ada orders:read orders:write\n{second} bob\n")
    ada, bob = tokens.find(first), tokens.find(second)
    assert ada is not None
    assert bob is not None
    assert (ada.subject, ada.scopes, bob.scopes) == ("ada", {"orders:read", "orders:write"}, set())
    for text, hint in [
        ("a" * 20, "line 1"),
        ("short ada", "16 or more"),
        ("", "at least one"),
        (f"{first} x\n{first} y", "line 2"),
    ]:
        with pytest.raises(DeclarationError, match=hint):
            StaticTokens.read(text)


def test_a_certificate_is_mapped_to_a_principal_by_name_or_function() -> None:
    ada = Principal(subject="ada")
    certificate = Certificate(common_name="ada", names=("ada.example.org",), subject="CN=ada", fingerprint="00")
    assert ClientCertificates({"ada": ada}).find(certificate) is ada
    assert ClientCertificates({"bob": ada}).find(certificate) is None
    assert ClientCertificates(lambda c: ada if "ada.example.org" in c.names else None).find(certificate) is ada
