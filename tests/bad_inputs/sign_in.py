"""Cases of a client that signs in: a protected server and its authorization server on a real socket, both hostile.

Everything is in order, save what a case changes:

    challenge     where the 401 says that the metadata is
    resource      members of the protected resource metadata       metadata   members of the authorization server's
    tokens        members of the token reply                       redirect   parameters of the redirect
    without       names to leave out of these four
    pages         whole replies by path, as bytes or parts (`{text, times}`, `{hex}`, `{drip}`: a byte now and then)
    names         what host names resolve to
    many          how many authorization servers are named, none of which there is
    stubborn      whether `tools/call` needs a scope that no token ever has

Texts know `$PORT` and `$BASE`. What the caller gets is compared (`value`, or `error` and a part of its `text`), and
what was asked of the servers: `never` paths, `most` requests for a path, `asked` metadata addresses; `lifetime` bounds
how long the tokens are believed to last. A request for `/trap`, or bytes that are no HTTP, fail every case.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import h11
import httpx2
import trio

from mcptrio import MCPTrioError
from mcptrio.auth import MemoryStorage, OAuth
from mcptrio.auth.client.metadata import canonical
from mcptrio.transports import fetch
from mcptrio.transports.oauth import token_source

from .catalogue import Case
from .hostile import HostileServer, call_echo, check_undisturbed, connect_to

RESOURCE = "/.well-known/oauth-protected-resource/mcp"
METADATA = "/.well-known/oauth-authorization-server/as"
KNOWN = {"error", "text", "value", "never", "most", "asked", "lifetime"}
TOKEN = "token-of-the-hostile-server"


class HostileAuthority(HostileServer):
    """The server at `/mcp`, its authorization server at `/as`, and everything else that is asked for."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.method = "none"  # any token is accepted
        self.port = 0
        self.paths: Counter[str] = Counter()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def filled(self, value: Any) -> Any:
        """Return the value with `$BASE` and `$PORT` replaced."""
        if isinstance(value, str):
            return value.replace("$BASE", self.base).replace("$PORT", str(self.port))
        if isinstance(value, dict):
            return {self.filled(name): self.filled(one) for name, one in value.items()}
        return [self.filled(one) for one in value] if isinstance(value, list) else value

    def document(self, name: str, usual: dict[str, Any]) -> dict[str, Any]:
        changed = {**usual, **self.filled(self.data.get(name, {}))}
        return {key: value for key, value in changed.items() if key not in self.data.get("without", ())}

    async def _answer(self, stream: trio.SocketStream, head: h11.Request, body: bytes) -> bool:
        target = urlsplit(head.target.decode())
        self.paths[target.path] += 1
        pages = self.filled(self.data.get("pages", {}))
        if target.path in pages:
            await self._send(stream, pages[target.path], {"id": 0, "method": ""})
            return False
        issuer = f"{self.base}/as"
        match target.path:
            case "/mcp":
                return await self._guarded(stream, head, body)
            case "/.well-known/oauth-protected-resource/mcp":
                named = [f"{issuer}{number}" for number in range(self.data.get("many", 0))] or [issuer]
                usual: dict[str, Any] = {"resource": f"{self.base}/mcp", "authorization_servers": named}
                return await _json(stream, 200, self.document("resource", usual))
            case "/.well-known/oauth-authorization-server/as":
                return await _json(stream, 200, self.document("metadata", self._metadata(issuer)))
            case "/as/register":
                return await _json(stream, 201, {"client_id": "registered"})
            case "/as/authorize":
                query = dict(parse_qsl(target.query))
                answer = self.document("redirect", {"code": "code", "state": query["state"], "iss": issuer})
                location = f"{query['redirect_uri']}?{urlencode(answer)}"
                return await _reply(stream, 302, b"", f"location: {location}\r\n")
            case "/as/token":
                return await _json(
                    stream, 200, self.document("tokens", {"access_token": TOKEN, "token_type": "Bearer"})
                )
        return await _reply(stream, 404, b"")

    def _metadata(self, issuer: str) -> dict[str, Any]:
        return {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
            "registration_endpoint": f"{issuer}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }

    async def _guarded(self, stream: trio.SocketStream, head: h11.Request, body: bytes) -> bool:
        if dict(head.headers).get(b"authorization") != f"Bearer {TOKEN}".encode():
            where = self.filled(self.data.get("challenge", f"$BASE{RESOURCE}"))
            return await _reply(stream, 401, b"", f'www-authenticate: Bearer resource_metadata="{where}"\r\n')
        if self.data.get("stubborn") and b'"tools/call"' in body:
            challenge = 'www-authenticate: Bearer error="insufficient_scope", scope="admin"\r\n'
            return await _reply(stream, 403, b"", challenge)
        return await super()._answer(stream, head, body)


async def _json(stream: trio.SocketStream, status: int, document: Any) -> bool:
    return await _reply(stream, status, json.dumps(document).encode(), "content-type: application/json\r\n")


async def _reply(stream: trio.SocketStream, status: int, body: bytes, lines: str = "") -> bool:
    await stream.send_all(f"HTTP/1.1 {status} X\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body)
    return True


async def run(case: Case) -> None:
    unknown = set(case.expect) - KNOWN
    assert not unknown, f"the catalogue expects {unknown}, which no check compares"
    authority = HostileAuthority(case)
    with trio.fail_after(30), _bounds(authority):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, authority.serve, 0, host="127.0.0.1"))
            authority.port = listeners[0].socket.getsockname()[1]
            storage = MemoryStorage()
            for got in await _sign_in_and_call(case, authority, storage, nursery):
                _judge(case, got)
            nursery.cancel_scope.cancel()
    assert authority.paths["/trap"] == 0
    assert authority.garbled == 0, "bytes that are no HTTP: an address was connected to with TLS"
    for path in case.expect.get("never", ()):
        assert authority.paths[path] == 0, authority.paths
    for path, most in case.expect.get("most", {}).items():
        assert 1 <= authority.paths[path] <= most, authority.paths
    if "asked" in case.expect:
        asked = {path for path in authority.paths if path.startswith("/.well-known/") and path != RESOURCE}
        assert asked == set(case.expect["asked"])
    if "lifetime" in case.expect:
        kept = storage.load(f"tokens at {canonical(f'{authority.base}/mcp')}")
        assert kept is not None
        least, most = case.expect["lifetime"]
        assert least - 30 <= kept["expires_at"] - time.time() <= most
    await check_undisturbed()


async def _sign_in_and_call(
    case: Case, authority: HostileAuthority, storage: MemoryStorage, nursery: trio.Nursery
) -> list[str]:
    """Return the result of each of the case's calls; a call that has failed for good fails again."""

    async def look(url: str) -> str:
        """A person's browser up to the redirect, which it leaves to the program."""
        async with httpx2.AsyncClient(trust_env=False) as browser:
            reply = await browser.get(url)
        return str(reply.headers["location"])

    async def follow(url: str) -> None:
        async with httpx2.AsyncClient(trust_env=False, follow_redirects=True) as browser:
            await browser.get(url)

    async def open_browser(url: str) -> bool:
        nursery.start_soon(follow, url)
        return True

    person: dict[str, Any] = {"open_browser": open_browser} if case.data.get("browser") else {"visit": look}
    got: list[str] = []
    try:
        auth = OAuth(storage=storage, **person, **authority.filled(case.data.get("oauth", {})))
        async with connect_to(case, f"{authority.base}/mcp", auth=auth) as client:
            for _ in range(case.data.get("calls", 1)):
                try:
                    got.append(await call_echo(client))
                except MCPTrioError as error:
                    got.append(_named(error))
    except (MCPTrioError, TimeoutError) as error:
        got.append(_named(error))
    return got


def _named(error: Exception) -> str:
    return f"! {' '.join(cls.__name__ for cls in type(error).__mro__)} ! {error}"


def _judge(case: Case, got: str) -> None:
    if "value" in case.expect:
        assert got == case.expect["value"]
        return
    _, names, text = got.split("! ", 2)
    assert case.expect["error"] in names.split(), got
    assert case.expect["text"] in text, got
    assert TOKEN not in text


@contextmanager
def _bounds(authority: HostileAuthority) -> Iterator[None]:
    """Resolve the host names of the case, and shorten the timeouts where the case is about them."""
    names = authority.data.get("names")
    before = token_source.FETCH_TIMEOUT
    assert (before, fetch.MAX_BODY) == (10.0, 256 * 1024)
    if names:
        trio.socket.set_custom_hostname_resolver(_Names(names))
    try:
        token_source.FETCH_TIMEOUT = authority.case.data.get("fetch_timeout", before)  # type: ignore[misc]
        yield
    finally:
        token_source.FETCH_TIMEOUT = before  # type: ignore[misc]
        if names:
            trio.socket.set_custom_hostname_resolver(None)


class _Names(trio.abc.HostnameResolver):
    """Resolve the names that the case lists; the others are addresses."""

    def __init__(self, names: dict[str, list[str]]) -> None:
        self.names = names

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
        text = host.decode() if isinstance(host, bytes) else host
        found = self.names.get(text, [text])
        return [(trio.socket.AF_INET, trio.socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    async def getnameinfo(self, *_: Any) -> Any:
        raise AssertionError
