"""Signing in over real sockets: a protected server, its authorization server, and a browser that says yes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from attrs import evolve

from mcptrio import RemoteProtocolError, connect
from mcptrio.auth import AuthorizationFailed, FileStorage, OAuth
from mcptrio.auth.client.errors import FetchFailed
from mcptrio.auth.client.steps import Fetch
from mcptrio.auth.ssrf import FetchPolicy
from mcptrio.transports.fetch import Fetcher
from mcptrio.transports.http_client import HttpRefused
from mcptrio.transports.oauth import browser
from mcptrio.transports.oauth.redirect import open_listener
from tests.deadlines import FairClock

from .oauth_mock import Mock
from .raw_peer import answer, read_all, serving

STATEFUL = "2025-11-25"


class Person:
    """A user with a browser, who agrees to everything."""

    def __init__(self) -> None:
        self.pages: list[httpx2.Response] = []
        self.nursery: trio.Nursery | None = None

    async def open(self, url: str) -> bool:
        assert self.nursery is not None
        self.nursery.start_soon(self._browse, url)  # as a browser does: in parallel with the program that opened it
        return True

    async def _browse(self, url: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=True, trust_env=False) as browser:
            self.pages.append(await browser.get(url))


@asynccontextmanager
async def signing_in(mock: Mock, **settings: Any) -> AsyncIterator[tuple[Person, OAuth]]:
    """The mock on a port of its own, and an authorization for it."""
    person = Person()
    async with serving(mock) as served, trio.open_nursery() as person.nursery:
        mock.base = served.address.url
        yield person, OAuth(client_name="tests", open_browser=person.open, **settings)


async def test_a_person_signs_in_and_the_client_works() -> None:
    mock = Mock()
    async with signing_in(mock) as (person, auth):
        async with connect(mock.url, auth=auth, protocol=STATEFUL) as client:
            assert [tool.name for tool in await client.list_tools()] == ["together"]
    assert mock.count("register") == mock.count("authorize") == mock.count("authorization_code") == 1
    (page,) = person.pages
    assert page.status_code == 200
    assert page.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "code1" not in page.text


@pytest.mark.parametrize(
    "proofs", [{}, {"dpop": True}, {"dpop": True, "nonces": True}], ids=["bearer", "dpop", "nonce"]
)
async def test_a_socket_signs_in_at_its_handshake(proofs: dict[str, bool]) -> None:
    mock = Mock(**proofs)
    async with signing_in(mock, **({"dpop": True} if mock.dpop else {})) as (person, auth):
        url = mock.url.replace("http://", "ws://")
        async with connect(url, auth=auth, protocol=STATEFUL) as client:
            assert [tool.name for tool in await client.list_tools()] == ["together"]
        assert len(person.pages) == 1
        mock.expire()
        async with connect(url, auth=auth, protocol=STATEFUL) as client:
            await client.call_tool("together")
    assert len(person.pages) == 1  # the second token came by refresh
    assert mock.count("refresh_token") == (2 if mock.nonces else 1)  # each nonce is asked for first


async def test_a_socket_without_authorization_is_refused_with_its_status() -> None:
    mock = Mock()
    async with signing_in(mock):
        with pytest.raises(RemoteProtocolError, match="HTTP 401") as caught:
            async with connect(mock.url.replace("http://", "ws://"), protocol=STATEFUL):
                pass
    assert caught.value.http_status == 401


async def test_tokens_outlive_the_program(tmp_path: Path) -> None:
    mock = Mock()
    async with signing_in(mock, storage=FileStorage(tmp_path)) as (_, auth):
        async with connect(mock.url, auth=auth, protocol=STATEFUL) as client:
            await client.list_tools()
        again = OAuth(storage=FileStorage(tmp_path))  # has no browser to ask with
        async with connect(mock.url, auth=again, protocol=STATEFUL) as client:
            await client.list_tools()
    assert mock.count("authorize") == 1
    assert mock.count("refused") == 1


async def test_calls_under_oauth_run_side_by_side() -> None:
    """Four calls that each wait for the three others would hang for ever if a lock were held while one runs."""
    mock = Mock(gather=4)
    async with signing_in(mock) as (_, auth):
        async with connect(mock.url, auth=auth, protocol=STATEFUL) as client, trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(client.call_tool, "together", {})
    assert mock.inside == 4


async def test_tokens_that_expire_under_many_calls_are_refreshed_once() -> None:
    mock = Mock(gather=8)
    async with signing_in(mock) as (_, auth):
        async with connect(mock.url, auth=auth, protocol=STATEFUL) as client:
            await client.list_tools()
            mock.expire()
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(client.call_tool, "together", {})
    assert mock.count("refresh_token") == 1
    assert mock.count("authorize") == 1


@pytest.mark.defect("E08")
async def test_a_short_token_is_renewed_before_it_is_refused() -> None:
    mock = Mock(expires_in=20)  # less than the time before its end at which others are renewed
    async with signing_in(mock) as (_, auth):
        async with connect(mock.url, auth=auth, protocol=STATEFUL) as client:
            await client.list_tools()
            assert mock.count("refresh_token") == 0
            auth._source.now = lambda: time.time() + 20.1
            await client.list_tools()
    assert mock.count("refresh_token") == 1
    assert mock.count("refused") == 1  # the very first request, which had none
    assert mock.count("metadata") == 1  # a renewal needs no discovery


@pytest.mark.defect("E02", "E03")
@pytest.mark.parametrize("refused", [True, False], ids=["refused", "expiring"])
async def test_processes_that_share_a_token_file_never_present_a_used_refresh_token(
    tmp_path: Path, refused: bool
) -> None:
    """Three processes need a new token at the same time, three times: the server refuses the old one, or it expires.

    The next round begins when each process has used the new token: how long that takes decides nothing.
    """
    mock = Mock(expires_in=3600 if refused else 1, token_delay=0.2)
    names, done = {"a", "b", "c"}, list[subprocess.CompletedProcess[bytes]]()

    async def run(name: str) -> None:
        command = [sys.executable, "-m", "tests.e2e.oauth_process", mock.url, str(tmp_path), name]
        done.append(await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False))
        assert (done[-1].returncode, done[-1].stderr) == (0, b"")

    async def used(after: int) -> None:
        """Wait until every process has used a token that was issued after that number of renewals."""
        while not names <= set().union(*(mock.users.get(f"token{n}", ()) for n in range(after + 1, mock.numbers + 1))):
            await trio.sleep(0.02)

    async with signing_in(mock, storage=FileStorage(tmp_path)) as (person, auth):
        async with connect(mock.url, auth=auth, protocol=STATEFUL) as client:
            await client.list_tools()
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(run, name)
                await used(after=0)
                for _ in range(3):
                    before = mock.numbers
                    if refused:
                        mock.expire()
                    await used(after=before)
                (tmp_path / "stop").touch()
    assert mock.count("reuse") == 0
    assert mock.count("refresh_token") == 3 if refused else mock.count("refresh_token") >= 3
    assert len(person.pages) == 1


@pytest.mark.defect("E05")
async def test_two_servers_with_one_authorization_server_keep_their_own_registrations(tmp_path: Path) -> None:
    """The second sign-in runs while the port of the first one's redirect is in use, so it registers again."""
    mock = Mock()
    async with signing_in(mock, storage=FileStorage(tmp_path)) as (person, first):
        taken = await open_listener("http://127.0.0.1:0/callback", None)
        fixed = OAuth(storage=FileStorage(tmp_path), open_browser=person.open, redirect_uri=taken.redirect_uri)
        taken.close()
        async with connect(mock.url, auth=first, protocol=STATEFUL) as client:
            await client.list_tools()
            async with connect(f"{mock.url}2", auth=fixed, protocol=STATEFUL) as other:
                await other.list_tools()
            assert mock.count("register") == 2
            mock.expire()
            await client.list_tools()
    assert mock.count("authorize") == 2  # one each: the first was renewed
    (renewal,) = [form for name, form in mock.asked if name == "refresh_token"]
    assert renewal["client_id"] == "client1"


@pytest.mark.defect("E09", "E10")
async def test_calls_that_start_or_end_during_a_sign_in_do_not_disturb_it() -> None:
    mock, slow = Mock(expires_in=1), trio.Event()
    async with signing_in(mock) as (person, auth):

        async def open_later(url: str) -> bool:
            person.nursery.start_soon(browse_later, url)  # type: ignore[union-attr]
            return True

        async def browse_later(url: str) -> None:
            await slow.wait()
            await person._browse(url)

        async with connect(mock.url, auth=auth, protocol=STATEFUL, timeout=3) as client:
            await client.list_tools()
            auth._source.sign_in = evolve(auth._source.sign_in, open_browser=open_later)
            mock.expire()
            mock.refresh.clear()
            await trio.sleep(1.1)  # the token has expired too, so a new call does not even try it
            with trio.move_on_after(0.3):
                await client.call_tool("together", {})  # begins the sign-in, and is given up
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(client.call_tool, "together", {})
                await trio.sleep(3.1)  # longer than the timeout of a call
                slow.set()
    assert mock.count("authorize") == 2
    assert len(person.pages) == 2


async def test_when_the_refresh_token_is_gone_the_person_is_asked_again() -> None:
    mock = Mock()
    async with signing_in(mock) as (person, auth):
        async with connect(mock.url, auth=auth, protocol=STATEFUL) as client:
            await client.list_tools()
            mock.expire()
            mock.refresh.clear()
            await client.list_tools()
    assert (mock.count("refresh_token"), mock.count("authorize"), mock.count("register")) == (1, 2, 1)
    assert len(person.pages) == 2


async def test_a_call_steps_up() -> None:
    mock = Mock(needed={"delete": "admin", "write": "files:write"})
    async with signing_in(mock, scopes=["read"]) as (_, auth):
        async with connect(mock.url, auth=auth, protocol=STATEFUL) as client:
            await client.call_tool("write", {})
            await client.call_tool("delete", {})
    asked = [query.get("scope") for name, query in mock.asked if name == "authorize"]
    assert asked == ["read", "read files:write", "read files:write admin"]


async def test_a_step_up_that_never_helps_ends() -> None:
    class Stubborn(Mock):
        async def _authorize(self, query: dict[str, str], issuer: str, send: Any) -> None:
            await super()._authorize({**query}, issuer, send)
            self.codes[f"code{self.count('authorize')}"]["scope"] = "something else"

    mock = Stubborn(needed={"delete": "admin"})
    async with signing_in(mock) as (_, auth):
        async with connect(mock.url, auth=auth, protocol=STATEFUL) as client:
            for _ in range(2):
                with pytest.raises(HttpRefused, match="403"):
                    await client.call_tool("delete", {})
            assert mock.count("authorize") == 3
            await client.list_tools()  # what needs no more than there is goes on


@pytest.mark.parametrize("nonces", [False, True])
async def test_proofs_accompany_every_request(nonces: bool) -> None:
    mock = Mock(dpop=True, nonces=nonces)
    async with signing_in(mock) as (_, auth):
        async with connect(mock.url, auth=auth, protocol=STATEFUL) as client:
            await client.list_tools()
            await client.call_tool("together", {})
            mock.expire()
            await client.list_tools()
    assert mock.count("authorize") == 1
    assert len(mock.proofs) == len(set(mock.proofs)) >= 6
    refusals = [what["error"] for name, what in mock.asked if name == "refused"]
    assert "invalid_dpop_proof" not in refusals
    assert ("use_dpop_nonce" in refusals) == nonces


async def test_a_redirect_from_another_issuer_gets_no_code_across() -> None:
    mock = Mock(iss="https://evil.example")
    async with signing_in(mock) as (_, auth):
        with pytest.raises(AuthorizationFailed, match="another issuer"):
            async with connect(mock.url, auth=auth, protocol=STATEFUL) as client:
                await client.list_tools()
    assert mock.count("authorization_code") == 0


async def test_no_token_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    mock = Mock(needed={"delete": "admin"})
    with caplog.at_level(logging.DEBUG):
        async with signing_in(mock) as (_, auth):
            async with connect(mock.url, auth=auth, protocol=STATEFUL) as client:
                await client.call_tool("delete", {})
    ours = " ".join(record.getMessage() for record in caplog.records if record.name.startswith("mcptrio"))
    for secret in ("token1", "token2", "refresh1", "code1"):
        assert secret not in ours


# -- waiting for the browser


async def hit(uri: str, target: str, *, host: str | None = None, method: str = "GET") -> bytes:
    netloc = uri.split("/")[2]
    async with await trio.open_tcp_stream("127.0.0.1", int(netloc.rpartition(":")[2])) as stream:
        await stream.send_all(f"{method} {target} HTTP/1.1\r\nHost: {host or netloc}\r\n\r\n".encode())
        return await read_all(stream)


@pytest.mark.parametrize(
    ("target", "settings"),
    [
        ("/callback?state=wrong&code=%3Cscript%3Ealert(1)%3C/script%3E", {}),
        ("/callback?code=%3Cscript%3E", {}),
        ("/callback?state=right&state=right&code=x", {}),
        ("/<script>alert(1)</script>?state=right&code=x", {}),
        ("/callback?state=right&code=x", {"host": "evil.example"}),
        ("/callback?state=right&code=x", {"method": "POST"}),
        ("/favicon.ico", {}),
    ],
)
async def test_neg_callback_reflects_nothing(target: str, settings: dict[str, str]) -> None:
    """A stranger's request does not end the wait, and none of its text is in the response."""
    listener = await open_listener("http://127.0.0.1:0/callback", None)
    answers: list[Any] = []

    async def wait() -> None:
        answers.append(await listener.wait("right"))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            reply = await hit(listener.redirect_uri, target, **settings)
            assert reply.startswith(b"HTTP/1.1 404")
            assert b"script" not in reply
            assert b"evil" not in reply
            assert answers == []
            good = await hit(listener.redirect_uri, "/callback?state=right&code=abc&iss=i")
            assert b"abc" not in good
    listener.close()
    assert answers == [{"state": "right", "code": "abc", "iss": "i"}]


async def test_a_silent_or_broken_visitor_does_not_stop_the_wait() -> None:
    listener = await open_listener("http://127.0.0.1:0/callback", None)
    port = int(listener.redirect_uri.split(":")[2].split("/")[0])
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.wait, "right")
            silent = await trio.open_tcp_stream("127.0.0.1", port)
            for garbage in (
                b"\x16\x03\x01garbage\r\n\r\n",
                b"GET " + b"x" * 40_000,
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            ):
                async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                    await stream.send_all(garbage)
                    await read_all(stream)
            await hit(listener.redirect_uri, "/callback?state=right&code=abc")
            await silent.aclose()
    listener.close()


MALFORMED = {
    "no IPv6 address": b"GET http://[::1/callback?state=right HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "too many fields": b"GET /callback?" + b"&".join([b"a=1"] * 60) + b" HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "HEAD": b"HEAD /callback?state=right&code=x HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "no HTTP": b"\x16\x03\x01garbage\r\n\r\n",
    "no host": b"GET /callback?state=right&code=x HTTP/1.1\r\n\r\n",
    "not UTF-8": b"GET /callback?state=%ff%fe&code=x HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "a bad header": b"GET /callback HTTP/1.1\r\nHost HOST\r\n\r\n",
}


@pytest.mark.defect("S11")
@pytest.mark.parametrize("what", MALFORMED)
async def test_a_malformed_request_is_answered_and_the_wait_goes_on(what: str) -> None:
    listener = await open_listener("http://127.0.0.1:0/callback", None)
    netloc = listener.redirect_uri.split("/")[2]
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.wait, "right")
            async with await trio.open_tcp_stream("127.0.0.1", int(netloc.rpartition(":")[2])) as stream:
                await stream.send_all(MALFORMED[what].replace(b"HOST", netloc.encode()))
                assert (await read_all(stream)).startswith(b"HTTP/1.1 404 ")
            assert (await hit(listener.redirect_uri, "/callback?state=right&code=abc")).startswith(b"HTTP/1.1 200 ")
    listener.close()


@pytest.mark.defect("S11")
async def test_silent_connections_do_not_delay_the_redirect(fair_clock: FairClock) -> None:
    listener = await open_listener("http://127.0.0.1:0/callback", None)
    port = int(listener.redirect_uri.split(":")[2].split("/")[0])
    silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(4)]
    with trio.fail_after(1.5):  # less than one silent connection may last
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.wait, "right")
            for _ in range(60):
                silent.append(await trio.open_tcp_stream("127.0.0.1", port))
            await hit(listener.redirect_uri, "/callback?state=right&code=abc")
    listener.close()
    for stream in silent:
        await stream.aclose()


@pytest.mark.defect("S11")
async def test_a_silent_connection_ends_after_two_seconds(fair_clock: FairClock) -> None:
    listener = await open_listener("http://127.0.0.1:0/callback", None)
    port = int(listener.redirect_uri.split(":")[2].split("/")[0])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.wait, "right")
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            with trio.fail_after(6):
                assert await stream.receive_some() == b""
        nursery.cancel_scope.cancel()
    listener.close()


@pytest.mark.defect("E13")
@pytest.mark.skipif(os.name != "posix", reason="sessions are of POSIX")
async def test_a_browser_that_stays_in_the_foreground_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "browser.py"
    script.write_text(
        "import os, pathlib, sys, time\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "(folder / 'draft').write_text(str(os.getsid(0)))\n"
        "(folder / 'draft').rename(folder / 'session')\n"
        "while not (folder / 'end').exists(): time.sleep(0.02)\n"
        "(folder / 'ended').touch()\n"
    )
    monkeypatch.setattr(browser, "command_for", lambda url: [sys.executable, str(script), str(tmp_path)])
    monkeypatch.setattr(browser, "_START_TIME", 0.1)
    assert await browser.open_page("https://as.example/")
    with trio.fail_after(20):
        while not (tmp_path / "session").exists():
            await trio.sleep(0.02)
        assert int((tmp_path / "session").read_text()) != os.getsid(0)
        (tmp_path / "end").touch()
        while not (tmp_path / "ended").exists():
            await trio.sleep(0.02)


async def test_the_former_port_is_taken_again_where_it_is_free() -> None:
    first = await open_listener("http://127.0.0.1:0/callback", None)
    other = await open_listener("http://127.0.0.1:0/callback", first.redirect_uri)
    assert other.redirect_uri != first.redirect_uri
    first.close()
    again = await open_listener("http://127.0.0.1:0/callback", first.redirect_uri)
    assert again.redirect_uri == first.redirect_uri
    with pytest.raises(AuthorizationFailed, match="cannot listen"):
        await open_listener(again.redirect_uri, None)
    for uri in ("https://app.example/callback", "http://0.0.0.0:0/callback", "http://10.0.0.1/"):
        with pytest.raises(AuthorizationFailed):
            await open_listener(uri, None)
    other.close()
    again.close()


# -- connecting to what was checked


class Rebinding(trio.abc.HostnameResolver):
    """A name whose address changes with every question."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked = 0

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
        self.asked += 1
        return [(trio.socket.AF_INET, trio.socket.SOCK_STREAM, 6, "", (self.addresses.pop(0), port))]

    async def getnameinfo(self, *_: Any) -> Any:
        raise AssertionError


async def test_neg_dns_rebind_toctou() -> None:
    """The name is resolved once, and the connection goes to the address that was checked."""
    hosts: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        hosts.append(dict(scope["headers"])[b"host"].decode())
        await answer(send, 200, b"{}", (b"content-type", b"application/json"))

    async with serving(app) as served:
        port = served.address.port
        resolver = Rebinding("127.0.0.1", "127.0.0.2")
        trio.socket.set_custom_hostname_resolver(resolver)
        fetcher = Fetcher(timeout=10, policy=FetchPolicy(hosts=frozenset({"as.test"})))
        reply = await fetcher.fetch(Fetch(what="the metadata", url=f"http://as.test:{port}/x"))
        assert reply.document() == {}
        assert hosts == [f"as.test:{port}"]
        assert resolver.asked == 1
        trio.socket.set_custom_hostname_resolver(Rebinding("127.0.0.1"))
        with pytest.raises(FetchFailed, match="not public"):
            await Fetcher(timeout=10, policy=FetchPolicy()).fetch(
                Fetch(what="the metadata", url=f"https://as.test:{port}/x")
            )
        await fetcher.aclose()
    assert len(hosts) == 1


async def test_certificates_are_checked_for_the_name_though_the_address_is_connected_to(tmp_path: Path) -> None:
    import ssl

    import trustme

    authority = trustme.CA()
    good, wrong = authority.issue_cert("as.test"), authority.issue_cert("other.test")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, 200, b"{}", (b"content-type", b"application/json"))

    for number, (certificate, fits) in enumerate(((good, True), (wrong, False))):
        chain, key = tmp_path / f"chain{number}.pem", tmp_path / f"key{number}.pem"
        chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(str(key))
        async with serving(app, certfile=str(chain), keyfile=str(key)) as served:
            trio.socket.set_custom_hostname_resolver(Rebinding("127.0.0.1"))
            fetcher = Fetcher(timeout=10, policy=FetchPolicy(hosts=frozenset({"as.test"})), verify=trusting)
            step = Fetch(what="the metadata", url=f"https://as.test:{served.address.port}/x")
            if fits:
                assert (await fetcher.fetch(step)).status == 200
            else:
                with pytest.raises(FetchFailed, match="failed"):
                    await fetcher.fetch(step)
            await fetcher.aclose()
