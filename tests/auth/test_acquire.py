"""Renewing tokens: clients that share a storage, and what a refusal or an outage does to the stored tokens."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from mcptrio.auth.client.acquire import acquire, renew
from mcptrio.auth.client.code_grant import CodeGrant
from mcptrio.auth.client.credentials import Credentials
from mcptrio.auth.client.errors import AuthorizationFailed, FetchFailed
from mcptrio.auth.client.machine_grants import ClientCredentialsGrant
from mcptrio.auth.client.registration import ClientMetadata, registration_key
from mcptrio.auth.client.token_request import Need
from mcptrio.auth.client.tokens import Tokens, restore

from .play import ENDPOINT, ISSUER, NOW, Page, Play, inputs, missing, page, server_document, tokens_page, web

GRANT = CodeGrant(metadata=ClientMetadata(client_name="tests"))
KEY = "tokens"
CLIENT = Credentials(client_id="first", secret="secret-of-first", method="client_secret_post")


def old(**more: Any) -> Tokens:
    usual: dict[str, Any] = {
        "access_token": "secret-old",
        "refresh_token": "secret-refresh",
        "issuer": ISSUER,
        "resource": ENDPOINT,
        "client_id": "first",
        "token_endpoint": f"{ISSUER}/token",
        "auth_methods": ("client_secret_post",),
        "registration": CLIENT,
    }
    return Tokens(**{**usual, **more})


def need(tokens: Tokens | None, **more: Any) -> Need:
    return Need(endpoint=ENDPOINT, inputs=inputs(), key=KEY, tokens=tokens, **more)


def stored(play: Play) -> Tokens:
    tokens = restore(play.storage[KEY])
    assert tokens is not None
    return tokens


def refusing(error: str, status: int = 400) -> Page:
    return page({"error": error}, status)


@pytest.mark.defect("E02")
@pytest.mark.parametrize("refused", [False, True])
def test_tokens_that_another_client_has_renewed_are_used(refused: bool) -> None:
    other = old(access_token="secret-other", refresh_token="secret-other-refresh")
    play = Play(web(), storage={KEY: other.record()})
    assert play.run(renew(GRANT, need(old(), refused=refused))) == other
    assert play.fetches == []
    assert stored(play) == other


@pytest.mark.defect("E02")
def test_the_record_is_locked_while_its_refresh_token_is_used() -> None:
    play = Play({}, storage={KEY: old().record()})

    def token(_: Any) -> Any:
        assert play.locked == {KEY}
        return tokens_page("secret-new", refresh_token="secret-next")

    play.pages = web(token=token)
    assert play.run(renew(GRANT, need(old()))) == stored(play)
    assert play.locked == set()
    assert stored(play).refresh_token == "secret-next"


@pytest.mark.defect("E03")
def test_a_refused_client_keeps_the_tokens_that_another_stored_meanwhile() -> None:
    """A storage without locks: the refresh token is used by both, and the second is refused."""
    play = Play({}, storage={KEY: old().record()})
    other = old(access_token="secret-other", refresh_token="secret-other-refresh")

    def token(_: Any) -> Any:
        play.storage[KEY] = other.record()
        return refusing("invalid_grant")

    play.pages = web(token=token)
    assert play.run(renew(GRANT, need(old()))) == other
    assert stored(play) == other


@pytest.mark.defect("E07")
def test_a_refresh_token_that_was_refused_is_not_sent_again() -> None:
    play = Play(web(token=refusing("invalid_grant")), storage={KEY: old().record()})
    for _ in range(2):
        assert play.run(renew(GRANT, need(old()))) is None  # the client still has the old tokens in memory
    assert len(play.forms()) == 1
    assert stored(play) == old(refresh_token=None)


@pytest.mark.defect("E07")
@pytest.mark.parametrize(
    "outage",
    [
        refusing("temporarily_unavailable"),
        refusing("server_error", 400),
        refusing("slow_down"),
        refusing("too_many_requests", 429),
        missing(429),
        missing(503),
        missing(404),
        FetchFailed("no connection"),
    ],
)
@pytest.mark.parametrize("refused", [False, True])
def test_an_outage_keeps_the_refresh_token_and_asks_no_user(outage: Page, refused: bool) -> None:
    play = Play(web(token=outage), storage={KEY: old().record()})
    with pytest.raises(FetchFailed):
        play.run(acquire(GRANT, need(old(), refused=refused)))
    assert play.visits == []
    assert stored(play) == old()


@pytest.mark.defect("E07")
@pytest.mark.parametrize("error", ["invalid_client", "unauthorized_client", "invalid_scope", "bad_refresh_token"])
def test_other_refusals_keep_the_refresh_token_until_the_user_has_signed_in(error: str) -> None:
    def token(step: Any) -> Any:
        return refusing(error, 401) if "refresh_token" in step.form else tokens_page("secret-new")

    play = Play(web(token=token), storage={KEY: old().record()})
    assert play.run(renew(GRANT, need(old()))) is None
    assert stored(play) == old()
    play.run(acquire(GRANT, need(old(), refused=True)))
    assert len(play.visits) == 1
    assert stored(play).access_token == "secret-new"


@pytest.mark.defect("E06", "E08")
@pytest.mark.parametrize("grant", [GRANT, ClientCredentialsGrant(own=CLIENT)], ids=["user", "machine"])
def test_a_renewal_needs_no_discovery(grant: Any) -> None:
    """Metadata may be only at the URL of a challenge, which a renewal does not have."""
    play = Play({f"{ISSUER}/token": tokens_page("secret-new")}, storage={KEY: old().record()})
    renewed = play.run(renew(grant, need(old())))
    assert renewed is not None
    assert renewed.access_token == "secret-new"
    assert play.urls == [f"{ISSUER}/token"]
    assert (renewed.token_endpoint, renewed.issuer) == (f"{ISSUER}/token", ISSUER)


def test_a_renewal_goes_only_to_the_issuer_in_the_settings() -> None:
    play = Play(web(), storage={KEY: old().record()})
    grant = evolve(GRANT, own=evolve(CLIENT, secret="secret-of-mine"), issuer="https://new.example")
    with pytest.raises(AuthorizationFailed, match="another authorization server"):
        play.run(renew(grant, need(old())))
    assert play.fetches == []


@pytest.mark.defect("E05")
def test_a_refresh_uses_the_registration_that_the_tokens_were_issued_to() -> None:
    newer = {**evolve(CLIENT, client_id="second", secret="secret-of-second").record(), "redirect_uri": "http://x"}
    play = Play(web(), storage={KEY: old().record(), registration_key(ISSUER): newer})
    renewed = play.run(renew(GRANT, need(old())))
    (form,) = play.forms()
    assert (form["client_id"], form["client_secret"]) == ("first", "secret-of-first")
    assert renewed is not None
    assert renewed.registration == CLIENT


@pytest.mark.defect("E05")
def test_one_client_registers_at_an_issuer_at_a_time() -> None:
    play = Play({})

    def register(_: Any) -> Any:
        assert registration_key(ISSUER) in play.locked
        return page({"client_id": "registered"}, 201)

    def agree(query: dict[str, str]) -> dict[str, str]:
        assert play.locked == set()  # not while the user takes time
        return {"code": "c", "state": query["state"]}

    play.pages, play.person = web(register=register), agree
    tokens = play.run(acquire(GRANT, need(None)))
    assert tokens.registration is not None
    assert tokens.registration.client_id == "registered"
    assert stored(play) == tokens


@pytest.mark.defect("E03")
def test_granted_tokens_are_stored_even_while_another_program_has_the_lock() -> None:
    play = Play(web(token=tokens_page("secret-new")), busy={KEY})
    tokens = play.run(acquire(GRANT, need(None, may_refresh=False)))
    assert stored(play) == tokens


def test_configured_secrets_are_not_stored() -> None:
    grant = evolve(GRANT, own=Credentials(client_id="mine", secret="secret-of-mine"), issuer=ISSUER)
    methods = ["client_secret_basic"]
    play = Play(web(meta=page(server_document(token_endpoint_auth_methods_supported=methods))))
    tokens = play.run(acquire(grant, need(None)))
    assert tokens.registration is None
    assert "secret-of-mine" not in repr(play.storage)


@pytest.mark.parametrize(("lifetime", "due"), [(20, 15), (3600, 3570), (4, 3), (0, 0)])
@pytest.mark.defect("E08")
def test_a_token_is_due_in_its_last_quarter_at_most_30_s(lifetime: float, due: float) -> None:
    tokens = old(obtained_at=NOW, expires_at=NOW + lifetime)
    assert not tokens.is_due(NOW + due - 0.1)
    assert tokens.is_due(NOW + due)


def test_the_stored_form_is_complete() -> None:
    tokens = old(
        dpop_key={"kty": "EC"},
        requested=("a",),
        granted=("a", "b"),
        obtained_at=NOW,
        expires_at=NOW + 60,
    )
    assert restore(tokens.record()) == tokens
    assert "secret-of-first" not in repr(tokens)
