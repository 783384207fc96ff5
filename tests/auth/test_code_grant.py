"""The authorization code grant: its requests, the responses it trusts, and where secrets are never sent."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from mcptrio.auth.client.acquire import acquire, renew
from mcptrio.auth.client.binding import FIRST_SEEN
from mcptrio.auth.client.challenge import Challenge
from mcptrio.auth.client.code_grant import CodeGrant, challenge_of, check_page, page_url, read_redirect
from mcptrio.auth.client.credentials import Credentials
from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.metadata import ServerMetadata, read_server
from mcptrio.auth.client.registration import ClientMetadata, check_metadata_url, registration_key
from mcptrio.auth.client.token_request import Need
from mcptrio.auth.client.tokens import Tokens
from mcptrio.errors import DeclarationError

from .play import (
    ENDPOINT,
    ISSUER,
    META,
    NOW,
    PRM,
    REDIRECT,
    Page,
    Play,
    inputs,
    missing,
    page,
    resource_page,
    server_document,
    tokens_page,
    unreachable,
    web,
)

GRANT = CodeGrant(metadata=ClientMetadata(client_name="tests"))
CIMD = "https://app.example/client.json"
OWN = Credentials(client_id="mine", secret="secret-of-mine")


def need(**more: Any) -> Need:
    return Need(endpoint=ENDPOINT, inputs=inputs(), refused=True, **more)


def challenged(scope: str) -> Challenge:
    return Challenge(scheme="bearer", parameters={"scope": scope})


def old_tokens(**more: Any) -> Tokens:
    usual: dict[str, Any] = {
        "access_token": "secret-old",
        "refresh_token": "secret-refresh",
        "issuer": ISSUER,
        "resource": ENDPOINT,
        "client_id": "registered",
        "requested": ("read",),
    }
    return Tokens(**{**usual, **more})


def registered() -> dict[str, Any]:
    record = {"client_id": "registered", "token_endpoint_auth_method": "none", "redirect_uri": REDIRECT}
    return {registration_key(ISSUER): record}


def fails(play: Play, grant: CodeGrant = GRANT, **more: Any) -> AuthorizationFailed:
    with pytest.raises(AuthorizationFailed) as caught:
        play.run(acquire(grant, need(**more)))
    assert "secret-" not in str(caught.value) + repr(caught.value)
    return caught.value


# -- the whole way


def test_a_new_client_registers_and_signs_in() -> None:
    play = Play(web())
    tokens = play.run(acquire(GRANT, need(challenge=challenged("read write"))))
    assert play.urls == [PRM, META, f"{ISSUER}/register", f"{ISSUER}/token"]
    assert (tokens.access_token, tokens.issuer, tokens.expires_at) == ("secret-access", ISSUER, NOW + 3600)
    (visit,), (form,) = play.visits, play.forms()
    assert visit["page"] == f"{ISSUER}/authorize"
    assert visit["resource"] == form["resource"] == ENDPOINT
    assert visit["redirect_uri"] == form["redirect_uri"] == REDIRECT
    assert visit["client_id"] == form["client_id"] == "registered"
    assert visit["scope"] == "read write"
    assert visit["code_challenge_method"] == "S256"
    assert visit["code_challenge"] == challenge_of(form["code_verifier"])
    assert (form["grant_type"], form["code"]) == ("authorization_code", "secret-code")
    wish = dict(play.fetches[2].json or {})
    assert wish["application_type"] == "native"
    assert wish["redirect_uris"] == [REDIRECT]
    assert "refresh_token" in wish["grant_types"]


def test_the_pkce_challenge_matches_the_example_of_the_rfc() -> None:
    """RFC 7636 appendix B."""
    assert challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_every_sign_in_has_its_own_state_and_verifier() -> None:
    play, one = Play(web(), storage=registered()), need(may_refresh=False)
    for _ in range(2):
        play.run(acquire(GRANT, one))
    assert len({visit["state"] for visit in play.visits}) == 2
    assert len({form["code_verifier"] for form in play.forms()}) == 2


def test_query_parameters_of_the_authorization_page_are_kept_except_ours() -> None:
    url = page_url("https://as.example/authorize?tenant=7&state=theirs", {"state": "ours"})
    assert url == "https://as.example/authorize?tenant=7&state=ours"


# -- being known


def test_a_registration_is_used_again_at_the_same_redirect() -> None:
    play = Play(web(), storage=registered())
    play.run(acquire(GRANT, need()))
    assert f"{ISSUER}/register" not in play.urls


def test_another_redirect_needs_another_registration() -> None:
    play = Play(web(), storage=registered(), redirect_uri="http://127.0.0.1:6000/callback")
    play.run(acquire(GRANT, need()))
    assert f"{ISSUER}/register" in play.urls


@pytest.mark.parametrize("where", ["token", "page"])
def test_a_registration_that_was_forgotten_is_made_again_once(where: str) -> None:
    refusing = page({"error": "invalid_client"}, 401)
    answers = [refusing, tokens_page()]

    def token(_: Any) -> Any:
        return answers.pop(0) if where == "token" else tokens_page()

    said: list[dict[str, str]] = [{"error": "unauthorized_client"}] if where == "page" else []

    def person(query: dict[str, str]) -> dict[str, str]:
        return {"state": query["state"], **(said.pop() if said else {"code": "c"})}

    play = Play(web(token=token), storage=registered(), person=person)
    assert play.run(acquire(GRANT, need())).access_token == "secret-access"
    assert play.urls.count(f"{ISSUER}/register") == 1


def test_a_client_metadata_url_is_the_client_id_where_it_is_supported() -> None:
    grant = evolve(GRANT, metadata_url=CIMD)
    supporting = page(server_document(client_id_metadata_document_supported=True))
    play = Play(web(meta=supporting))
    play.run(acquire(grant, need()))
    assert play.visits[0]["client_id"] == play.forms()[0]["client_id"] == CIMD
    assert f"{ISSUER}/register" not in play.urls
    other = Play(web())
    other.run(acquire(grant, need()))
    assert other.visits[0]["client_id"] == "registered"


@pytest.mark.parametrize(
    "url",
    [
        "http://app.example/client.json",
        "https://app.example",
        "https://app.example/",
        "https://app.example/c#x",
        "https://app.example/../c",
        "https://u@app.example/c",
        "app.example/c",
    ],
)
def test_a_client_metadata_url_is_https_with_a_path(url: str) -> None:
    with pytest.raises(DeclarationError):
        check_metadata_url(url)


def test_configured_credentials_win_over_registration() -> None:
    grant = evolve(GRANT, own=OWN, issuer=ISSUER, metadata_url=CIMD)
    offering = page(server_document(token_endpoint_auth_methods_supported=["client_secret_post"]))
    play = Play(web(meta=offering))
    play.run(acquire(grant, need()))
    assert (play.forms()[0]["client_id"], play.forms()[0]["client_secret"]) == ("mine", "secret-of-mine")


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (page({"error": "invalid_redirect_uri", "error_description": "no loopback"}, 400), "invalid_redirect_uri (no"),
        (missing(500), "no reason given"),
        (page({}, 201), "no client_id"),
        (page({"client_id": "x", "token_endpoint_auth_method": "client_secret_basic"}, 201), "no client_secret"),
    ],
)
def test_a_registration_that_fails_says_why(reply: Page, text: str) -> None:
    assert text in str(fails(Play(web(register=reply))))


def test_without_registration_the_error_asks_for_a_client_id() -> None:
    assert "client_id=" in str(fails(Play(web(meta=page(server_document(registration_endpoint=None))))))


# -- where secrets are never sent


def test_neg_as_switch_sends_nothing() -> None:
    """A server that names another authorization server gets neither secret, refresh token nor client id there."""
    evil = "https://evil.example"
    pages = {
        PRM: resource_page(authorization_servers=[evil]),
        f"{evil}/.well-known/oauth-authorization-server": page(server_document(evil)),
        f"{evil}/register": page({"client_id": "new"}, 201),
        f"{evil}/token": tokens_page(),
    }
    for issuer, storage in ((ISSUER, {}), (FIRST_SEEN, {f"issuer of mine at {ENDPOINT}": {"issuer": ISSUER}})):
        play = Play(pages, storage=dict(storage))
        fails(play, evolve(GRANT, own=OWN, issuer=issuer), tokens=old_tokens(client_id="mine"))
        assert play.urls == [PRM]
    play = Play(pages, storage=registered())
    tokens = play.run(acquire(GRANT, need(tokens=old_tokens())))
    shown = repr([dict(one.form or {}) | dict(one.json or {}) | dict(one.headers) for one in play.fetches])
    assert "secret-refresh" not in shown
    assert "registered" not in shown
    assert (tokens.issuer, tokens.client_id) == (evil, "new")


def test_the_first_issuer_seen_is_remembered() -> None:
    grant = evolve(GRANT, own=Credentials(client_id="mine"), issuer=None)
    play = Play(web())
    play.run(acquire(grant, need()))
    assert play.storage[f"issuer of mine at {ENDPOINT}"] == {"issuer": ISSUER}


def test_a_secret_is_not_sent_to_default_paths() -> None:
    play = Play({"https://mcp.example/token": tokens_page()})
    assert "not sent" in str(fails(play, evolve(GRANT, own=OWN, issuer=FIRST_SEEN)))
    assert "https://mcp.example/token" not in play.urls


@pytest.mark.parametrize("methods", [None, [], ["plain"], "S256"])
def test_neg_no_pkce(methods: object) -> None:
    play = Play(web(meta=page(server_document(code_challenge_methods_supported=methods))))
    assert "PKCE" in str(fails(play))
    assert play.visits == []


PAGES = [
    "javascript:alert(1)",
    "JavaScript:alert(1)//https://as.example",
    "data:text/html,x",
    "file:///etc/passwd",
    "vbscript:x",
    "http://as.example/authorize",
    "ms-settings:x",
    "--help",
    "-a/Applications/Calculator.app",
    "https://as.example/$(touch x)`touch x`\n--x",
    "https://user@as.example/",
    "smb://as.example/x",
    "",
    " https://as.example/",
]


@pytest.mark.parametrize("url", PAGES)
def test_neg_auth_url_scheme(url: str) -> None:
    with pytest.raises(AuthorizationFailed):
        check_page(url)
    if url:
        play = Play(web(meta=page(server_document(authorization_endpoint=url))))
        fails(play)
        assert play.visits == []


# -- the redirect

ADVERTISED = read_server(server_document(authorization_response_iss_parameter_supported=True), issuer=ISSUER)
SILENT = read_server(server_document(), issuer=ISSUER)


@pytest.mark.parametrize(
    ("server", "iss", "good"),
    [
        (ADVERTISED, ISSUER, True),
        (ADVERTISED, None, False),
        (SILENT, ISSUER, True),
        (SILENT, None, True),
        (ADVERTISED, "https://evil.example", False),
        (SILENT, "https://evil.example", False),
        (ADVERTISED, ISSUER + "/", False),
        (SILENT, ISSUER.upper(), False),
        (SILENT, "https://as.example:443", False),
        (SILENT, "", False),
    ],
)
@pytest.mark.parametrize("error", [False, True])
def test_neg_iss_table(server: ServerMetadata, iss: str | None, good: bool, error: bool) -> None:
    """RFC 9207 section 2.4; on a mismatch the error of a stranger is not even repeated."""
    answer = {"state": "s", **({"iss": iss} if iss is not None else {})}
    answer |= {"error": "access_denied", "error_description": "gullible"} if error else {"code": "c"}
    if good and not error:
        assert read_redirect(answer, state="s", server=server) == "c"
        return
    with pytest.raises(AuthorizationFailed) as caught:
        read_redirect(answer, state="s", server=server)
    assert ("access_denied" in str(caught.value)) == good
    assert (caught.value.error is not None) == good


@pytest.mark.parametrize("answer", [{"code": "c"}, {"code": "c", "state": "other"}, {"error": "x", "state": ""}])
def test_a_redirect_with_another_state_is_discarded(answer: dict[str, str]) -> None:
    play = Play(web(), person=lambda _: answer)
    assert "another state" in str(fails(play))
    assert f"{ISSUER}/token" not in play.urls


def test_a_redirect_without_a_code_is_discarded() -> None:
    assert "no code" in str(fails(Play(web(), person=lambda query: {"state": query["state"]})))


def test_a_denied_sign_in_is_an_error() -> None:
    error = fails(Play(web(), person=lambda query: {"state": query["state"], "error": "access_denied"}))
    assert error.error == "access_denied"


# -- refreshing


def test_a_refresh_needs_no_user() -> None:
    play = Play(web(token=tokens_page("secret-new", refresh_token="secret-next")), storage=registered())
    tokens = play.run(acquire(GRANT, need(tokens=old_tokens())))
    assert play.visits == []
    assert (tokens.access_token, tokens.refresh_token, tokens.requested) == ("secret-new", "secret-next", ("read",))
    (form,) = play.forms()
    assert (form["grant_type"], form["refresh_token"], form["resource"]) == (
        "refresh_token",
        "secret-refresh",
        ENDPOINT,
    )


def test_a_refresh_without_a_new_refresh_token_keeps_the_old() -> None:
    tokens = Play(web(), storage=registered()).run(acquire(GRANT, need(tokens=old_tokens())))
    assert tokens.refresh_token == "secret-refresh"


@pytest.mark.parametrize(
    ("tokens", "grant"),
    [
        (old_tokens(refresh_token=None), GRANT),
        (old_tokens(issuer="https://former.example"), GRANT),
        (old_tokens(resource="https://mcp.example/other"), GRANT),
        (old_tokens(client_id="former"), evolve(GRANT, own=Credentials(client_id="mine"))),
    ],
)
def test_a_refresh_token_is_only_sent_to_its_issuer(tokens: Tokens, grant: CodeGrant) -> None:
    play = Play(web(), storage=registered())
    play.run(acquire(grant, need(tokens=tokens)))
    assert [form["grant_type"] for form in play.forms()] == ["authorization_code"]


def test_when_the_refresh_is_refused_the_user_signs_in() -> None:
    def token(step: Any) -> Any:
        return page({"error": "invalid_grant"}, 400) if "refresh_token" in step.form else tokens_page()

    play = Play(web(token=token), storage=registered())
    play.run(acquire(GRANT, need(tokens=old_tokens())))
    assert len(play.visits) == 1
    assert Play(web(token=token), storage=registered()).run(renew(GRANT, need(tokens=old_tokens()))) is None


@pytest.mark.parametrize("outage", [missing(503), unreachable()])
def test_an_outage_does_not_ask_the_user_to_sign_in(outage: Page) -> None:
    play = Play(web(token=outage), storage=registered())
    fails(play, tokens=old_tokens())
    assert play.visits == []


# -- scopes


def test_stepping_up_asks_for_old_and_new_together() -> None:
    play = Play(web(), storage=registered())
    tokens = play.run(acquire(GRANT, need(tokens=old_tokens(), challenge=challenged("write"), step_up=True)))
    assert play.visits[0]["scope"] == "read write"
    assert tokens.requested == ("read", "write")
    assert [form["grant_type"] for form in play.forms()] == ["authorization_code"]


@pytest.mark.parametrize(
    ("supported", "offline", "scope"),
    [
        (["offline_access"], True, "read offline_access"),
        (["offline_access"], False, "read"),
        (["read"], True, "read"),
        (None, True, "read"),
    ],
)
def test_offline_access_is_asked_for_where_it_exists(supported: Any, offline: bool, scope: str) -> None:
    play = Play(
        web(meta=page(server_document(scopes_supported=supported)), prm=resource_page(scopes_supported=["read"]))
    )
    play.run(acquire(evolve(GRANT, offline=offline), need()))
    assert play.visits[0]["scope"] == scope


def test_without_any_scope_the_parameter_is_left_out() -> None:
    play = Play(web(meta=page(server_document(scopes_supported=["offline_access"]))))
    play.run(acquire(GRANT, need()))
    assert "scope" not in play.visits[0]


# -- secrets


def test_an_error_reply_that_echoes_our_secrets_is_cleaned() -> None:
    def token(step: Any) -> Any:
        text = " ".join(step.form.values())
        return page({"error": "invalid_grant", "error_description": text}, 400)

    assert "invalid_grant" in str(fails(Play(web(token=token))))


def test_neg_token_not_in_repr_or_log() -> None:
    tokens = Play(web(token=tokens_page(refresh_token="secret-next"))).run(acquire(GRANT, need()))
    play = Play(web())
    for thing in (tokens, OWN, old_tokens(), need(tokens=old_tokens()), GRANT, evolve(GRANT, own=OWN)):
        assert "secret-" not in repr(thing) + str(thing)
    play.run(acquire(GRANT, need()))
    assert "secret-" not in repr(play.fetches)
