"""Checking tokens with an issuer's keys: what is fetched how often, and that calls are refused while the issuer is
down."""

from __future__ import annotations

import gzip
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
import trio
from attrs import evolve
from trio.testing import MockClock

from mcptrio.auth.server import BearerAuth, Certificate, ClientCertificates, Introspection, Principal, StaticTokens
from mcptrio.transports.bearer.authorizer import Authorizer
from mcptrio.transports.bearer.issuers import IssuerClient
from mcptrio.transports.fetch import Fetcher
from mcptrio.transports.http_server.endpoint.message import Plain
from tests.auth.server.callers import DATES, STATIC, TOKENS, Caller, open_protected
from tests.auth.server.kit import ISSUER, NOW, RESOURCE, ec, jwks, proof, settings, shown, sign, token
from tests.transports.app_for_tests import head

METADATA = f"{ISSUER}/.well-known/oauth-authorization-server"
KEYS = f"{ISSUER}/keys"
Answer = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


class Issuer:
    """An issuer's pages, and the requests that were made for them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.forms: list[bytes] = []
        self.delay = 0.0
        self.down = False
        self.documents: dict[str, Any] = {
            METADATA: {"issuer": ISSUER, "jwks_uri": KEYS},
            KEYS: jwks(),
        }

    async def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(str(request.url))
        self.forms.append(request.content)
        await trio.sleep(self.delay)
        if self.down:
            raise httpx2.ConnectError("refused")
        found = self.documents.get(str(request.url))
        if isinstance(found, httpx2.Response):
            return found
        return httpx2.Response(404) if found is None else httpx2.Response(200, json=found)


def open_with(issuer: Issuer, **changes: Any) -> Authorizer:
    authorizer = Authorizer(settings(**{"jwks": None, **changes}), now=lambda: NOW)
    assert authorizer.issuers is not None
    authorizer.issuers.fetcher.lent = httpx2.AsyncClient(transport=httpx2.MockTransport(issuer.answer))
    return authorizer


async def come(authorizer: Authorizer, text: str | None, scheme: str = "Bearer", **changes: Any) -> Principal | Plain:
    return await authorizer(head(authorization=None if text is None else f"{scheme} {text}", **changes))


async def test_keys_are_found_through_the_issuers_metadata_and_fetched_once(autojump_clock: MockClock) -> None:
    issuer = Issuer()
    issuer.delay = 0.5
    authorizer = open_with(issuer)
    came: list[Principal | Plain] = []

    async def one(number: int) -> None:
        came.append(await come(authorizer, token(jti=str(number))))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(one, number)
    assert [one.subject for one in came if isinstance(one, Principal)] == ["ada"] * 20
    assert issuer.asked == [METADATA, KEYS], "twenty came at once: one fetched for all"
    await authorizer.close()


async def test_a_token_that_was_good_a_moment_ago_is_not_checked_again() -> None:
    issuer = Issuer()
    authorizer = open_with(issuer, jwks_uri=KEYS)
    same = token(ec())
    first, second = [await come(authorizer, same) for _ in range(2)]
    assert isinstance(first, Principal)
    assert first is second
    assert issuer.asked == [KEYS]
    authorizer.checker.now = lambda: NOW + 500
    assert isinstance(await come(authorizer, same), Plain), "it has expired meanwhile"


async def test_a_new_key_is_fetched_and_a_flood_of_invented_ones_is_not(autojump_clock: MockClock) -> None:
    issuer = Issuer()
    issuer.documents[KEYS] = jwks(ec())
    authorizer = open_with(issuer, jwks_uri=KEYS)
    assert isinstance(await come(authorizer, token(ec())), Principal)
    await trio.sleep(11)
    issuer.documents[KEYS] = jwks(ec(), ec("new"))
    assert isinstance(await come(authorizer, token(ec("new"))), Principal)
    statuses = []
    for number in range(50):
        refused = await come(authorizer, sign({"iss": ISSUER}, ec(), kid=f"invented-{number}"))
        assert isinstance(refused, Plain)
        statuses.append(refused.status)
    assert statuses == [401] + [503] * 49  # the first was looked for; the others may be too new: retry later
    assert issuer.asked == [KEYS] * 3


@pytest.mark.defect("E14")
async def test_a_signing_key_that_is_published_right_after_a_fetch_is_found() -> None:
    issuer = Issuer()
    issuer.documents[KEYS] = jwks(ec())
    authorizer = open_with(issuer, jwks_uri=KEYS)
    assert isinstance(await come(authorizer, token(ec())), Principal)
    issuer.documents[KEYS] = jwks(ec(), ec("new"))
    assert isinstance(await come(authorizer, token(ec("new"))), Principal)
    issuer.documents[KEYS] = jwks(ec(), ec("new"), ec("newer"))
    refused = await come(authorizer, token(ec("newer")))
    assert isinstance(refused, Plain)
    assert (refused.status, dict(refused.headers)[b"retry-after"]) == (503, b"5")
    assert issuer.asked == [KEYS] * 2


@pytest.mark.parametrize(
    "trouble", ["down", "slow", "html", "404", "500", "redirect", "huge", "compressed", "of another issuer", "no keys"]
)
async def test_neg_callers_are_refused_while_the_issuer_is_unreachable(trouble: str, autojump_clock: MockClock) -> None:
    issuer = Issuer()
    if trouble == "down":
        issuer.down = True
    elif trouble == "slow":
        issuer.delay = 60
    elif trouble == "of another issuer":
        issuer.documents[METADATA] = {"issuer": ISSUER + "/", "jwks_uri": KEYS}
    else:
        issuer.documents[KEYS] = {
            "html": httpx2.Response(200, text="<html>"),
            "404": None,
            "500": httpx2.Response(500, json=jwks()),
            "redirect": httpx2.Response(302, headers={"location": "https://evil.example/keys"}),
            "huge": httpx2.Response(200, content=b" " * 300_000 + b"{}"),
            "compressed": httpx2.Response(
                200, content=gzip.compress(json.dumps(jwks()).encode()), headers={"content-encoding": "gzip"}
            ),
            "no keys": {"keys": []},
        }[trouble]
    authorizer = open_with(issuer)
    began = trio.current_time()
    refused = await come(authorizer, token())
    assert isinstance(refused, Plain)
    assert refused.status == 503
    assert (b"retry-after", b"5") in refused.headers
    assert trio.current_time() - began <= 2
    asked = len(issuer.asked)
    assert isinstance(await come(authorizer, token()), Plain)
    assert len(issuer.asked) == asked, "and it is not asked again at once"
    assert not any("evil" in url for url in issuer.asked)


async def test_keys_that_are_known_are_used_while_the_issuer_is_down(autojump_clock: MockClock) -> None:
    issuer = Issuer()
    authorizer = open_with(issuer, cache=0)
    assert isinstance(await come(authorizer, token()), Principal)
    issuer.down = True
    await trio.sleep(1000)
    assert isinstance(await come(authorizer, token()), Principal)
    await trio.sleep(3000)
    refused = await come(authorizer, token())
    assert isinstance(refused, Plain)
    assert refused.status == 503


# -- introspection

ASK = Introspection(url=f"{ISSUER}/introspect", client_id="api", client_secret="hush-hush")
ACTIVE = {"active": True, "aud": RESOURCE, "sub": "ada", "scope": "orders:read"}


async def test_the_issuer_is_asked_once_about_a_token_and_about_nonsense_too() -> None:
    issuer = Issuer()
    issuer.documents[ASK.url] = ACTIVE
    authorizer = open_with(issuer, introspection=ASK)
    assert [type(await come(authorizer, "opaque")) for _ in range(3)] == [Principal] * 3
    assert issuer.forms == [b"token=opaque&token_type_hint=access_token"]
    issuer.documents[ASK.url] = {"active": False}
    assert [type(await come(authorizer, "revoked")) for _ in range(3)] == [Plain] * 3
    assert len(issuer.asked) == 2
    authorizer.checker.now = lambda: NOW + 31
    assert isinstance(await come(authorizer, "opaque"), Plain), "what was revoked does not stay good for long"


@pytest.mark.defect("S20")
async def test_introspection_refusals_are_remembered_although_valid_tokens_are_not() -> None:
    issuer = Issuer()
    issuer.documents[ASK.url] = {"active": False}
    authorizer = open_with(issuer, introspection=ASK, cache=0)
    assert [type(await come(authorizer, "revoked")) for _ in range(3)] == [Plain] * 3
    assert len(issuer.asked) == 1
    issuer.documents[ASK.url] = ACTIVE
    assert [type(await come(authorizer, "opaque")) for _ in range(3)] == [Principal] * 3
    assert len(issuer.asked) == 4


@pytest.mark.defect("S20")
async def test_a_flood_of_unknown_tokens_makes_a_bounded_number_of_requests(autojump_clock: MockClock) -> None:
    issuer = Issuer()
    issuer.delay = 60
    authorizer = open_with(issuer, introspection=evolve(ASK, max_concurrent=3))
    statuses = []

    async def one(number: int) -> None:
        refused = await come(authorizer, f"unknown-{number}")
        assert isinstance(refused, Plain)
        statuses.append(refused.status)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(one, number)
    assert statuses == [503] * 50
    assert len(issuer.asked) == 3
    assert trio.current_time() - began < 2


@pytest.mark.defect("S20")
async def test_requests_to_the_issuer_ignore_proxy_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    issuers = IssuerClient(settings(jwks=None, introspection=ASK))
    client = await issuers.fetcher._client(secure=True)
    assert not client.trust_env
    assert not client._mounts
    await issuers.close()


@pytest.mark.parametrize("trouble", ["down", "slow", "404"])
async def test_neg_callers_are_refused_while_introspection_fails(trouble: str, autojump_clock: MockClock) -> None:
    issuer = Issuer()
    issuer.down, issuer.delay = trouble == "down", 60.0 if trouble == "slow" else 0.0
    authorizer = open_with(issuer, introspection=ASK)
    began = trio.current_time()
    refused = await come(authorizer, "opaque")
    assert isinstance(refused, Plain)
    assert (refused.status, trio.current_time() - began <= 2) == (503, True)


# -- refusals


def challenges_of(reply: Principal | Plain) -> list[str]:
    assert isinstance(reply, Plain)
    return [value.decode() for name, value in reply.headers if name == b"www-authenticate"]


POINTER = 'resource_metadata="https://api.example.org/.well-known/oauth-protected-resource/mcp"'


async def test_a_client_without_a_token_learns_where_to_get_one() -> None:
    authorizer = Authorizer(settings(required_scopes="mcp"), now=lambda: NOW)
    reply = await come(authorizer, None)
    assert isinstance(reply, Plain)
    assert reply.status == 401
    assert challenges_of(reply) == [f'Bearer scope="mcp", {POINTER}']


async def test_a_client_with_a_bad_token_learns_that_it_is_bad() -> None:
    authorizer = Authorizer(settings(), now=lambda: NOW)
    (expired,) = challenges_of(await come(authorizer, token(exp=NOW - 100)))
    assert expired == f'Bearer error="invalid_token", error_description="the token has expired", {POINTER}'
    twice = head(authorization="Bearer x")
    twice.headers.append((b"authorization", b"Bearer x"))
    reply = await authorizer(twice)
    assert isinstance(reply, Plain)
    assert reply.status == 400


async def test_a_client_with_too_little_learns_how_much_is_needed() -> None:
    authorizer = Authorizer(settings(required_scopes="mcp orders:read"), now=lambda: NOW)
    reply = await come(authorizer, token())
    assert isinstance(reply, Plain)
    assert reply.status == 403
    assert 'error="insufficient_scope"' in challenges_of(reply)[0]
    assert 'scope="mcp orders:read"' in challenges_of(reply)[0]


async def test_a_caller_without_a_nonce_gets_one() -> None:
    key = ec("mine")
    bound = token(cnf={"jkt": key.thumbprint()})
    authorizer = Authorizer(settings(dpop="required", dpop_nonce=True), now=lambda: NOW)
    refused = await come(authorizer, bound, "DPoP", dpop=proof(bound, key))
    assert isinstance(refused, Plain)
    assert 'error="use_dpop_nonce"' in challenges_of(refused)[0]
    nonce = dict(refused.headers)[b"dpop-nonce"].decode()
    good = proof(bound, key, nonce=nonce)
    assert isinstance(await come(authorizer, bound, "DPoP", dpop=good), Principal)
    replayed = await come(authorizer, bound, "DPoP", dpop=good)
    assert 'error="invalid_dpop_proof"' in challenges_of(replayed)[0]
    assert isinstance(await come(authorizer, bound), Plain), "nor without a proof"


async def test_static_tokens_ask_for_a_token_and_know_no_oauth() -> None:
    authorizer = Authorizer(STATIC)
    assert challenges_of(await come(authorizer, None)) == ['Bearer realm="mcp"']
    (wrong,) = challenges_of(await come(authorizer, "never-was-a-token"))
    assert 'error="invalid_token"' in wrong
    assert isinstance(await come(authorizer, TOKENS["ada"]), Principal)
    assert isinstance(await come(authorizer, TOKENS["ada"], "DPoP"), Plain)


async def test_certificates_need_a_connection_that_has_one() -> None:
    authorizer = Authorizer(ClientCertificates({"ada": Principal(subject="ada")}))
    refused = await come(authorizer, None)
    assert isinstance(refused, Plain)
    assert (refused.status, challenges_of(refused)) == (403, [])
    broken = head()
    broken.certificate = b"nonsense"
    assert isinstance(await authorizer(broken), Plain)


@pytest.mark.defect("S5")
@pytest.mark.parametrize("found", [False, True, "ada", object()])
async def test_a_certificate_function_without_a_principal_refuses(
    found: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = Certificate(common_name="ada", names=(), subject="CN=ada", fingerprint="")
    monkeypatch.setattr("mcptrio.auth.server.checker.read_certificate", lambda der: certificate)
    authorizer = Authorizer(ClientCertificates(lambda certificate: found))  # type: ignore[arg-type, return-value]
    shown = head()
    shown.certificate = b"a certificate"
    refused = await authorizer(shown)
    assert isinstance(refused, Plain)
    assert refused.status in (401, 403)
    assert type(found).__name__ in str(shown.refusal_reason)


async def test_the_metadata_needs_no_token() -> None:
    async with open_protected(auth=settings(required_scopes="mcp")) as endpoint:
        anonymous = Caller(endpoint, DATES[0], None)
        known = "/.well-known/oauth-protected-resource"
        for path in (known, f"{known}/mcp"):
            answer = await anonymous.send(anonymous.head("GET", path=path))
            (document,) = answer.frames
            assert (answer.status, document["resource"], document["authorization_servers"]) == (200, RESOURCE, [ISSUER])
            assert document["scopes_supported"] == ["mcp", "orders:read", "orders:write", "root"]
            assert document["resource_name"] == "orders"
            assert (await anonymous.send(anonymous.head("POST", path=path))).status == 405
        assert (await anonymous.send(anonymous.head("GET", path=f"{known}/other"))).status == 404
        assert (await anonymous.send(anonymous.head("GET", path=known, host="evil.example"))).status == 421


async def test_neg_token_not_in_repr_or_log(caplog: pytest.LogCaptureFixture) -> None:
    """A token, a secret or a proof stands in no log line, error, repr or answer, whatever goes wrong with it."""
    caplog.set_level(logging.DEBUG)
    secret = "c0ffee" * 6
    issuer = Issuer()
    issuer.down = True
    said: list[str] = []
    auths: list[BearerAuth | StaticTokens] = [STATIC, settings(), settings(introspection=ASK)]
    for auth in auths:
        authorizer = open_with(issuer, introspection=ASK) if isinstance(auth, BearerAuth) else Authorizer(auth)
        said.append(repr(authorizer))
        for request in (
            head(authorization=f"Bearer {secret}"),
            head(authorization=f"Bearer {secret}.{secret}.{secret}"),
            head(authorization=f"Basic {secret}"),
            head(authorization=f"DPoP {secret}", dpop=secret),
            head(query=f"access_token={secret}".encode()),
        ):
            reply = await authorizer(request)
            assert isinstance(reply, Plain)
            said += [repr(reply), str(request.header_map())]
    said += [repr(shown(secret)), caplog.text]
    assert not [text for text in said if secret in text or ASK.client_secret in text]


async def test_the_issuers_http_client_is_made_once_and_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the system's certificates would keep every other caller waiting."""
    threads: list[threading.Thread] = []
    issuer = Issuer()

    def new_client(self: Fetcher, secure: bool) -> httpx2.AsyncClient:
        threads.append(threading.current_thread())
        return httpx2.AsyncClient(transport=httpx2.MockTransport(issuer.answer))

    monkeypatch.setattr(Fetcher, "_new_client", new_client)
    issuers = IssuerClient(settings(jwks=None))
    found: list[int] = []

    async def look() -> None:
        found.append(len(await issuers.keys(ISSUER, None)))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(look)
    await issuers.close()
    assert len(found) == 5
    assert len(threads) == 1
    assert threading.main_thread() not in threads
