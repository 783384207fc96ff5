"""Authorization end to end: a real authorization server, a real socket, stateful and stateless requests."""

from __future__ import annotations

import functools
import json
import ssl
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import trio
import trustme
from attrs import define, evolve, field
from joserfc.jwk import ECKey

import mcptrio
from examples.protected import protection, server
from mcptrio import Context, Server
from mcptrio._eras.stateless import NAMED_BY
from mcptrio.auth.client.dpop import proof
from mcptrio.auth.server import BearerAuth, ClientCertificates, Introspection, Principal, StaticTokens
from mcptrio.transports.oauth import ClientCredentials
from tests import engines
from tests.ports import free_port
from tests.stateless.kit import DATE as STATELESS
from tests.stateless.kit import meta
from tests.transports.app_for_tests import LATEST

pytest.importorskip("authlib")
pytestmark = engines.both_engines

TIMEOUT = 60
SECRETS = {"ada-desk": "ada-secret", "bob-desk": "bob-secret"}
both_dates = pytest.mark.parametrize("date", [LATEST, STATELESS])


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """The authorization server, as a program of its own."""
    command = [sys.executable, "-m", "tests.e2e.authorization_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.kill()


@define
class Site:
    """The protected server, and how to get a token for it."""

    issuer: str
    url: str
    http: httpx2.AsyncClient

    async def token(self, client: str = "ada-desk", scope: str = "orders:read", **changes: str) -> str:
        form = {"grant_type": "client_credentials", "scope": scope, "resource": self.url, **changes}
        reply = await self.http.post(f"{self.issuer}/token", data=form, auth=(client, SECRETS[client]))
        assert reply.status_code == 200, reply.text
        found: str = reply.json()["access_token"]
        return found


@asynccontextmanager
async def serving(issuer: str, nursery: trio.Nursery, auth: Any = None, app: Server = server) -> AsyncIterator[Site]:
    port = free_port()
    auth = protection(issuer, port) if auth is None else auth(f"http://127.0.0.1:{port}/mcp")
    if isinstance(auth, BearerAuth):
        auth = evolve(auth, fetch_timeout=TIMEOUT)  # the issuer is a process that may wait long for its turn
    await nursery.start(functools.partial(app.serve_http, port=port, auth=auth, engine=engines.current()))
    async with httpx2.AsyncClient(timeout=TIMEOUT) as http:
        yield Site(issuer, f"http://127.0.0.1:{port}/mcp", http)
    nursery.cancel_scope.cancel()


@define
class Caller:
    site: Site
    date: str
    token: str | None = field(repr=False)
    session: str | None = None
    last_id: int = 0

    async def open(self) -> Caller:
        if self.date != STATELESS:
            client = {"name": "t", "version": "1"}
            capabilities = {"elicitation": {}}
            opened = await self.ask(
                "initialize", protocolVersion=self.date, capabilities=capabilities, clientInfo=client
            )
            assert opened.status_code == 200, opened.text
            self.session = opened.headers["mcp-session-id"]
        return self

    async def ask(self, method: str, /, headers: dict[str, str] | None = None, **params: Any) -> httpx2.Response:
        self.last_id += 1
        whole = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if self.token is not None:
            whole["authorization"] = f"Bearer {self.token}"
        if self.session is not None:
            whole["mcp-session-id"] = self.session
        if self.date == STATELESS:
            params["_meta"] = meta()
            whole |= {"mcp-protocol-version": self.date, "mcp-method": method}
            if method in NAMED_BY:
                whole["mcp-name"] = params[NAMED_BY[method]]
        frame = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        return await self.site.http.post(self.site.url, json=frame, headers={**whole, **(headers or {})})

    async def get(self) -> httpx2.Response:
        """Read the stream of the session to its end."""
        assert self.session is not None
        headers = {"accept": "text/event-stream", "mcp-session-id": self.session, "mcp-protocol-version": self.date}
        return await self.site.http.get(self.site.url, headers={**headers, "authorization": f"Bearer {self.token}"})

    async def call(self, tool: str, /, headers: dict[str, str] | None = None, **arguments: Any) -> httpx2.Response:
        return await self.ask("tools/call", headers, name=tool, arguments=arguments)


def result_of(reply: httpx2.Response) -> Any:
    assert reply.status_code == 200, reply.text
    lines = [line.removeprefix("data:") for line in reply.text.splitlines() if line.startswith(("data:", "{"))]
    return json.loads(lines[-1])["result"]


def refused(reply: httpx2.Response, status: int, error: str | None) -> str:
    """The challenge of a refusal."""
    assert reply.status_code == status, reply.text
    said = reply.headers["www-authenticate"]
    assert "resource_metadata=" in said
    assert (f'error="{error}"' in said) if error else ("error=" not in said)
    return str(said)


@both_dates
async def test_a_valid_token_is_accepted(date: str, issuer: str, nursery: trio.Nursery) -> None:
    async with serving(issuer, nursery) as site:
        ada = await Caller(site, date, await site.token(scope="orders:read orders:write")).open()
        assert result_of(await ada.call("whoami"))["structuredContent"] == {
            "subject": "ada-desk",
            "client": "ada-desk",
            "scopes": "orders:read orders:write",
        }
        assert result_of(await ada.call("order", number=7))["structuredContent"]["total"] == 120.0
        names = {tool["name"] for tool in result_of(await ada.ask("tools/list"))["tools"]}
        assert names == {"whoami", "order", "refund"}


@both_dates
async def test_a_caller_without_a_token_learns_where_to_get_one(date: str, issuer: str, nursery: trio.Nursery) -> None:
    async with serving(issuer, nursery) as site:
        said = refused(await Caller(site, date, None).ask("tools/list"), 401, None)
        pointer = said.partition('resource_metadata="')[2].partition('"')[0]
        document = (await site.http.get(pointer)).json()
        assert (document["resource"], document["authorization_servers"]) == (site.url, [issuer])
        assert document["scopes_supported"] == ["orders:read", "orders:write"]


@both_dates
async def test_neg_token_wrong_audience_401(date: str, issuer: str, nursery: trio.Nursery) -> None:
    async with serving(issuer, nursery) as site:
        for other in ("https://other.example.org/mcp", site.url + "/", issuer):
            stranger = Caller(site, date, await site.token(resource=other))
            refused(await stranger.ask("tools/list"), 401, "invalid_token")


@both_dates
async def test_an_expired_token_is_refused(date: str, issuer: str, nursery: trio.Nursery) -> None:
    async with serving(issuer, nursery) as site:
        late = Caller(site, date, await site.token(lifetime="-100"))
        assert "expired" in refused(await late.ask("tools/list"), 401, "invalid_token")


@both_dates
async def test_a_stream_ends_when_requests_with_its_token_would_be_refused(
    date: str, issuer: str, nursery: trio.Nursery
) -> None:
    """Both count `clock_skew`: a token that a request may use opens no stream that ends at once."""
    async with serving(issuer, nursery) as site:
        late = await Caller(site, date, await site.token(lifetime="-10")).open()
        assert result_of(await late.call("whoami"))["structuredContent"]["subject"] == "ada-desk"
        with trio.move_on_after(1) as open_for:
            await (late.ask("subscriptions/listen", notifications={}) if date == STATELESS else late.get())
        assert open_for.cancelled_caught, "the stream has ended"


@both_dates
async def test_a_token_of_another_key_is_refused(date: str, issuer: str, nursery: trio.Nursery) -> None:
    async with serving(issuer, nursery) as site:
        head, payload, signature = (await site.token()).split(".")
        forged = f"{head}.{payload}.{signature[:-8]}{'A' * 8}"
        refused(await Caller(site, date, forged).ask("tools/list"), 401, "invalid_token")
        assert (await Caller(site, date, f"{head}.{payload}").ask("tools/list")).status_code == 401


@both_dates
async def test_a_caller_without_a_scope_learns_the_required_scopes(
    date: str, issuer: str, nursery: trio.Nursery
) -> None:
    async with serving(issuer, nursery) as site:
        bob = await Caller(site, date, await site.token("bob-desk")).open()
        said = refused(await bob.call("refund", number=7), 403, "insufficient_scope")
        assert 'scope="orders:read orders:write"' in said
        names = {tool["name"] for tool in result_of(await bob.ask("tools/list"))["tools"]}
        assert names == {"whoami", "order"}
        # Step-up: the same caller, with the scope that the refusal named. Writing includes reading.
        bob.token = await site.token("bob-desk", "orders:write")
        assert result_of(await bob.call("order", number=8))["structuredContent"]["number"] == 8


async def test_another_principals_session_is_unknown(issuer: str, nursery: trio.Nursery) -> None:
    async with serving(issuer, nursery) as site:
        ada = await Caller(site, LATEST, await site.token()).open()
        thief = Caller(site, LATEST, await site.token("bob-desk"), session=ada.session)
        stolen, unknown = await thief.ask("ping"), await thief.ask("ping", {"mcp-session-id": "never-was"})
        assert stolen.status_code == unknown.status_code == 404
        assert stolen.json()["error"] == unknown.json()["error"]
        head = {"authorization": f"Bearer {thief.token}", "mcp-session-id": str(ada.session)}
        assert (await site.http.delete(site.url, headers=head)).status_code == 404
        stream = {**head, "accept": "text/event-stream"}
        assert (await site.http.get(site.url, headers=stream)).status_code == 404
        ada.token = await site.token()  # the same principal with a new token
        assert result_of(await ada.ask("ping")) == {}


async def test_another_principals_question_is_unknown(issuer: str, nursery: trio.Nursery) -> None:
    async with serving(issuer, nursery) as site:
        ada = Caller(site, STATELESS, await site.token(scope="orders:write"))
        thief = Caller(site, STATELESS, await site.token("bob-desk", "orders:write"))
        asked = result_of(await ada.call("refund", number=8))
        (key,) = asked["inputRequests"]
        again = {
            "name": "refund",
            "arguments": {"number": 8},
            "requestState": asked["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"refund": True}}},
        }
        stolen = await thief.ask("tools/call", **again)
        assert stolen.json()["error"]["code"] == -32602
        assert "refunded" in result_of(await ada.ask("tools/call", **again))["content"][0]["text"]
        replayed = await ada.ask("tools/call", **again)
        assert replayed.json()["error"] == stolen.json()["error"], "a state works once"


@both_dates
async def test_a_replayed_request_with_a_bound_token_is_refused(date: str, issuer: str, nursery: trio.Nursery) -> None:
    async with serving(issuer, nursery) as site:
        key = ECKey.generate_key("P-256")
        private = {name: str(value) for name, value in key.as_dict(private=True).items()}
        bound = await site.token(jkt=key.thumbprint())

        def signed(jti: str) -> dict[str, str]:
            shown = proof(private, method="POST", url=site.url, now=time.time(), jti=jti, token=bound, nonce=None)
            return {"authorization": f"DPoP {bound}", "dpop": shown}

        ada = Caller(site, date, None)
        client = {"name": "t", "version": "1"}
        params = {"protocolVersion": date, "capabilities": {}, "clientInfo": client} if date != STATELESS else {}
        method = "initialize" if date != STATELESS else "tools/list"
        once = signed("first")
        assert (await ada.ask(method, once, **params)).status_code == 200
        replay = await ada.ask(method, once, **params)
        assert (replay.status_code, 'error="invalid_dpop_proof"' in replay.headers["www-authenticate"]) == (401, True)
        assert (await ada.ask(method, signed("second"), **params)).status_code == 200
        stolen = await ada.ask(method, {"authorization": f"Bearer {bound}"}, **params)
        assert stolen.status_code == 401, "a bound token is worth nothing without its key"


@both_dates
async def test_malformed_or_misplaced_tokens_are_refused(date: str, issuer: str, nursery: trio.Nursery) -> None:
    async with serving(issuer, nursery) as site:
        good = await site.token()
        caller = Caller(site, date, None)
        url, site.url = site.url, f"{site.url}?access_token={good}"
        assert (await caller.ask("tools/list")).status_code == 401
        site.url = url
        for value in ("Bearer", "Basic YTpi", f"bearer{good}", "Bearer " + "x" * 9000):
            assert (await caller.ask("tools/list", {"authorization": value})).status_code == 401
        twice = [("authorization", f"Bearer {good}")] * 2
        rest = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
        reply = await site.http.post(url, content=b"{}", headers=[*twice, *rest])
        assert reply.status_code == 400


@both_dates
async def test_introspection_instead_of_signatures(date: str, issuer: str, nursery: trio.Nursery) -> None:
    def asking(resource: str) -> BearerAuth:
        ask = Introspection(url=f"{issuer}/introspect", client_id="orders-api", client_secret="api-secret")
        return BearerAuth(resource=resource, issuers=[issuer], introspection=ask)

    async with serving(issuer, nursery, asking) as site:
        ada = await Caller(site, date, await site.token()).open()
        assert result_of(await ada.call("whoami"))["structuredContent"]["client"] == "ada-desk"
        refused(await Caller(site, date, "never-issued").ask("tools/list"), 401, "invalid_token")
        other = await site.token(resource="https://other.example.org")
        refused(await Caller(site, date, other).ask("tools/list"), 401, "invalid_token")


@both_dates
async def test_neg_callers_are_refused_while_the_issuer_is_down(date: str, issuer: str, nursery: trio.Nursery) -> None:
    gone = f"http://127.0.0.1:{free_port()}"

    def trusting(resource: str) -> BearerAuth:
        return BearerAuth(resource=resource, issuers=[issuer], jwks_uri=f"{gone}/keys")

    async with serving(issuer, nursery, trusting) as site:
        with trio.fail_after(TIMEOUT):
            reply = await Caller(site, date, await site.token()).ask("tools/list")
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "5")


async def test_a_person_signs_in_with_a_code(issuer: str, nursery: trio.Nursery) -> None:
    """The authorization code grant with PKCE, by hand: the token then speaks of the person, and of the program."""
    async with serving(issuer, nursery) as site:
        verifier = token_urlsafe(48)
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        callback = "http://127.0.0.1:1/callback"
        asked = {
            "response_type": "code",
            "client_id": "bob-desk",
            "scope": "orders:read",
            "redirect_uri": callback,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": site.url,
        }
        sent_back = await site.http.get(f"{issuer}/authorize", params=asked)
        (code,) = parse_qs(urlsplit(sent_back.headers["location"]).query)["code"]
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier, "redirect_uri": callback}
        ada = Caller(site, STATELESS, await site.token("bob-desk", **form))
        assert result_of(await ada.call("whoami"))["structuredContent"] == {
            "subject": "ada",
            "client": "bob-desk",
            "scopes": "orders:read",
        }


async def test_our_own_client_signs_in_by_itself(issuer: str, nursery: trio.Nursery) -> None:
    async with serving(issuer, nursery) as site:
        auth = ClientCredentials(
            client_id="ada-desk", client_secret="ada-secret", scopes=["orders:read"], issuer=issuer
        )
        with trio.fail_after(TIMEOUT):
            async with mcptrio.connect(site.url, auth=auth) as client:
                result = await client.call_tool("order", {"number": 7})
                assert result.structured_content["number"] == 7


# -- small set-ups


async def test_static_tokens(issuer: str, nursery: trio.Nursery) -> None:
    tokens = StaticTokens({"a" * 32: Principal(subject="ada", scopes="orders:read")})
    async with serving(issuer, nursery, lambda _: tokens) as site:
        ada = Caller(site, STATELESS, "a" * 32)
        assert result_of(await ada.call("order", number=7))["structuredContent"]["number"] == 7
        assert (await ada.call("refund", number=7)).status_code == 403
        assert (await Caller(site, STATELESS, "b" * 32).ask("tools/list")).status_code == 401


async def test_client_certificates(tmp_path: Path, nursery: trio.Nursery) -> None:
    ours, others = trustme.CA(), trustme.CA()
    certificate = ours.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    ours.cert_pem.write_to_path(tmp_path / "ca.pem")
    app = Server("certified")

    @app.tool
    def whoami(ctx: Context) -> str:
        return str(ctx.principal.subject)

    port = free_port()
    people = ClientCertificates({"ada": Principal(subject="ada")})
    files = {"certfile": str(tmp_path / "server.pem"), "client_ca": str(tmp_path / "ca.pem")}
    await nursery.start(functools.partial(app.serve_http, port=port, auth=people, **files))

    def context(issued: trustme.LeafCert | None) -> ssl.SSLContext:
        made = ssl.create_default_context()
        ours.configure_trust(made)
        if issued is not None:
            issued.configure_cert(made)
        return made

    async def come(issued: trustme.LeafCert | None) -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=TIMEOUT, verify=context(issued)) as http:
            return await Caller(Site("", f"https://127.0.0.1:{port}/mcp", http), STATELESS, None).call("whoami")

    welcome = await come(ours.issue_cert("ada@example.org", common_name="ada"))
    assert result_of(welcome)["content"][0]["text"] == "ada"
    assert (await come(ours.issue_cert("eve@example.org", common_name="eve"))).status_code == 403
    for stranger in (None, others.issue_cert("ada@example.org", common_name="ada")):
        with pytest.raises(httpx2.TransportError):
            await come(stranger)
    nursery.cancel_scope.cancel()
