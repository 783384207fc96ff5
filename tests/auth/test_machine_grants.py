"""Grants without a user: which credentials are sent to which server."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from attrs import evolve
from joserfc import jwk, jwt

from mcptrio.auth.client.acquire import acquire
from mcptrio.auth.client.binding import FIRST_SEEN
from mcptrio.auth.client.challenge import Challenge
from mcptrio.auth.client.code_grant import CodeGrant
from mcptrio.auth.client.credentials import Credentials, PrivateKey
from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.machine_grants import ID_JAG, ClientCredentialsGrant, EnterpriseGrant, WorkloadGrant
from mcptrio.auth.client.registration import ClientMetadata
from mcptrio.auth.client.token_request import Need

from .play import ENDPOINT, ISSUER, PRM, Play, inputs, page, resource_page, server_document, tokens_page, web

OWN = Credentials(client_id="mine", secret="secret-mine")
IDP_TOKEN = "https://idp.example/token"
SCOPED = Challenge(scheme="bearer", parameters={"scope": "read"})


def need(**more: Any) -> Need:
    return Need(endpoint=ENDPOINT, inputs=inputs(), **more)


def basic(step: Any) -> str:
    return base64.b64decode(step.headers["Authorization"].removeprefix("Basic ")).decode()


def offering(*methods: str, **more: Any) -> Any:
    return page(server_document(token_endpoint_auth_methods_supported=list(methods), **more))


def unsigned(claims: dict[str, Any]) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none'})}.{part(claims)}.secret-signature"


# -- client credentials


def test_a_program_signs_in_with_its_secret() -> None:
    play = Play(web(meta=offering("client_secret_basic")))
    grant = ClientCredentialsGrant(own=OWN, issuer=ISSUER)
    tokens = play.run(grant.obtain(need(challenge=SCOPED)))
    assert tokens.access_token == "secret-access"
    assert play.forms() == [{"grant_type": "client_credentials", "scope": "read", "resource": ENDPOINT}]
    assert basic(play.fetches[-1]) == "mine:secret-mine"
    assert play.visits == []


def test_a_program_signs_in_with_its_key() -> None:
    key = jwk.ECKey.generate_key("P-256")
    own = Credentials(client_id="mine", key=PrivateKey(pem=key.as_pem(private=True).decode()))
    play = Play(web(meta=offering("private_key_jwt")))
    play.run(ClientCredentialsGrant(own=own).obtain(need()))
    (form,) = play.forms()
    assert jwt.decode(form["client_assertion"], key, algorithms=["ES256"]).claims["aud"] == ISSUER
    assert "client_id" not in form


def test_neg_a_secret_stays_away_from_another_authorization_server() -> None:
    pages = web(prm=resource_page(authorization_servers=["https://evil.example"]))
    for issuer, storage in ((ISSUER, {}), (FIRST_SEEN, {f"issuer of mine at {ENDPOINT}": {"issuer": ISSUER}})):
        play = Play(pages, storage=dict(storage))
        with pytest.raises(AuthorizationFailed):
            play.run(ClientCredentialsGrant(own=OWN, issuer=issuer).obtain(need()))
        assert play.urls == [PRM]


def test_a_server_without_metadata_gets_no_machine_credentials() -> None:
    play = Play({})
    with pytest.raises(AuthorizationFailed):
        play.run(ClientCredentialsGrant(own=OWN, issuer=FIRST_SEEN).obtain(need()))
    assert not any(one.form for one in play.fetches)


# -- workload identity


def workload(**more: Any) -> WorkloadGrant:
    return WorkloadGrant(own=Credentials(client_id="job"), **more)


def test_a_workload_shows_its_platforms_statement() -> None:
    statement = unsigned({"aud": ISSUER})
    play = Play(web())
    play.run(workload(assertion=statement).obtain(need()))
    (form,) = play.forms()
    assert form == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": statement,
        "client_id": "job",
        "resource": ENDPOINT,
    }


def test_a_statement_is_made_for_the_issuer_that_it_goes_to() -> None:
    play = Play(web())
    play.run(workload(assertion=lambda issuer: unsigned({"aud": [issuer]})).obtain(need()))
    assert len(play.forms()) == 1


@pytest.mark.parametrize("claims", [{"aud": "https://other.example"}, {"aud": []}, {}, {"aud": 7}, []])
def test_neg_a_statement_goes_nowhere_it_was_not_meant_for(claims: Any) -> None:
    """Its holder is trusted, so a server that names its own authorization server must not get it."""
    play = Play(web())
    with pytest.raises(AuthorizationFailed) as caught:
        play.run(workload(assertion=unsigned(claims)).obtain(need()))
    assert play.forms() == []
    assert "secret-" not in str(caught.value)


def test_an_opaque_statement_needs_a_named_issuer() -> None:
    with pytest.raises(AuthorizationFailed):
        Play(web()).run(workload(assertion="opaque").obtain(need()))
    play = Play(web())
    play.run(workload(assertion="opaque", issuer=ISSUER).obtain(need()))
    assert len(play.forms()) == 1


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_scope", "unauthorized_client"])
def test_a_refused_statement_is_not_tried_again(error: str) -> None:
    play = Play(web(token=page({"error": error}, 400)))
    with pytest.raises(AuthorizationFailed) as caught:
        play.run(workload(assertion=unsigned({"aud": ISSUER})).obtain(need()))
    assert caught.value.error == error
    assert len(play.forms()) == 1


# -- enterprise-managed authorization

ENTERPRISE = EnterpriseGrant(
    own=OWN,
    idp=Credentials(client_id="at-idp"),
    idp_issuer="https://idp.example",
    idp_token_endpoint=IDP_TOKEN,
    subject_token="secret-id-token",
)


def enterprise_web(**idp: Any) -> dict[str, Any]:
    granted = {"access_token": "secret-jag", "issued_token_type": ID_JAG, "token_type": "N_A", **idp}
    return {**web(meta=offering("client_secret_basic")), IDP_TOKEN: page(granted)}


def test_the_id_token_becomes_a_grant_and_the_grant_a_token() -> None:
    play = Play(enterprise_web())
    tokens = play.run(ENTERPRISE.obtain(need(challenge=SCOPED)))
    assert tokens.access_token == "secret-access"
    (exchange,) = play.forms(IDP_TOKEN)
    assert exchange == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": ID_JAG,
        "audience": ISSUER,
        "resource": ENDPOINT,
        "subject_token": "secret-id-token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "scope": "read",
        "client_id": "at-idp",
    }
    (form,) = play.forms()
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert form["assertion"] == "secret-jag"
    assert basic(play.fetches[-1]) == "mine:secret-mine"


def test_an_identity_provider_can_be_found_by_its_issuer() -> None:
    idp = page(server_document("https://idp.example"))
    pages = {**enterprise_web(), "https://idp.example/.well-known/openid-configuration": idp}
    play = Play(pages)
    play.run(evolve(ENTERPRISE, idp_token_endpoint=None).obtain(need()))
    assert len(play.forms(IDP_TOKEN)) == 1


@pytest.mark.parametrize("reply", [{"issued_token_type": "urn:x"}, {"access_token": None}, {"issued_token_type": None}])
def test_something_else_than_a_grant_is_not_passed_on(reply: dict[str, Any]) -> None:
    play = Play(enterprise_web(**reply))
    with pytest.raises(AuthorizationFailed):
        play.run(ENTERPRISE.obtain(need()))
    assert play.forms() == []


def test_no_secret_is_printed() -> None:
    assert "secret-" not in repr(ENTERPRISE) + repr(workload(assertion="secret-assertion"))


# -- proof of possession

PERSON = CodeGrant(metadata=ClientMetadata(client_name="tests"))


def claims_of(step: Any) -> dict[str, Any]:
    payload = step.headers["DPoP"].split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(payload + "==")))


def dpop_tokens(_: Any = None) -> Any:
    return tokens_page(token_type="DPoP")


def test_a_bound_token_is_asked_for_with_a_proof() -> None:
    play = Play(web(meta=offering("none", dpop_signing_alg_values_supported=["ES256"]), token=dpop_tokens()))
    tokens = play.run(acquire(PERSON, need(dpop=True)))
    assert tokens.dpop_key is not None
    claims = claims_of(play.fetches[-1])
    assert (claims["htm"], claims["htu"]) == ("POST", f"{ISSUER}/token")
    assert "ath" not in claims
    assert tokens.dpop_key["d"] not in repr(tokens)


def test_a_nonce_is_taken_and_the_request_repeated_with_a_new_proof() -> None:
    replies = [page({"error": "use_dpop_nonce"}, 400, dpop_nonce="n1"), dpop_tokens()]
    play = Play(web(token=lambda _: replies.pop(0)))
    play.run(acquire(PERSON, need(dpop=True)))
    first, second = (claims_of(one) for one in play.fetches if one.url.endswith("/token"))
    assert "nonce" not in first
    assert second["nonce"] == "n1"
    assert first["jti"] != second["jti"]
    assert len(play.visits) == 1


def test_a_nonce_that_is_never_right_ends() -> None:
    replies = [page({"error": "use_dpop_nonce"}, 400, dpop_nonce=f"n{number}") for number in range(10)]
    play = Play(web(token=lambda _: replies.pop(0)))
    with pytest.raises(AuthorizationFailed):
        play.run(acquire(PERSON, need(dpop=True)))
    assert len(play.forms()) == 2


@pytest.mark.parametrize(
    ("wish", "scheme", "required", "bound"),
    [
        (None, "bearer", False, False),
        (None, "dpop", False, True),
        (None, "bearer", True, True),
        (False, "bearer", True, False),
        (True, "bearer", False, True),
    ],
)
def test_tokens_are_bound_where_user_or_server_wants_it(
    wish: bool | None, scheme: str, required: bool, bound: bool
) -> None:
    pages = web(
        prm=resource_page(dpop_bound_access_tokens_required=required),
        token=dpop_tokens() if bound else tokens_page(),
    )
    tokens = Play(pages).run(acquire(PERSON, need(dpop=wish, challenge=Challenge(scheme=scheme))))
    assert (tokens.dpop_key is not None) == bound


def test_a_bearer_token_is_refused_where_a_bound_one_was_asked_for() -> None:
    with pytest.raises(AuthorizationFailed, match="dpop"):
        Play(web()).run(acquire(PERSON, need(dpop=True)))


def test_an_authorization_server_without_our_algorithm_is_refused() -> None:
    play = Play(web(meta=offering("none", dpop_signing_alg_values_supported=["RS256"])))
    with pytest.raises(AuthorizationFailed, match="ES256"):
        play.run(acquire(PERSON, need(dpop=True)))
    assert play.visits == []
