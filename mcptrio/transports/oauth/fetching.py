"""Fetches what a flow asks for: only from places that the guard lets through, in bounded time and size."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit, urlunsplit

import trio
from attrs import define, field

from mcptrio.auth.client.errors import FetchFailed
from mcptrio.auth.client.steps import Fetch, Fetched
from mcptrio.auth.ssrf import FetchPolicy, Target, UrlRefused, check_addresses, check_url, origin_of
from mcptrio.transports.bounded import read_bounded

if TYPE_CHECKING:
    import ssl

    import httpx2

MAX_BODY: Final = 256 * 1024
MAX_TIME: Final = 10.0
_MAX_HOPS: Final = 5
_REDIRECTS: Final = (301, 302, 303, 307, 308)


@define(eq=False, repr=False)
class Fetcher:
    """Makes the requests of one flow. Owns: its HTTP clients, unless one was lent."""

    policy: FetchPolicy
    verify: ssl.SSLContext | bool = True
    lent: httpx2.AsyncClient | None = None
    """The user's own client, for instance with a proxy: it resolves names itself, so only URLs are checked then."""
    _clients: dict[bool, httpx2.AsyncClient] = field(factory=dict, init=False)

    async def fetch(self, step: Fetch) -> Fetched:
        """Make a request.

        Raises:
            FetchFailed: it may not or could not be made, or the answer is too large or too slow.
        """
        url = step.url
        try:
            with trio.fail_after(MAX_TIME):
                for _ in range(_MAX_HOPS):
                    reply = await self._once(step, url)
                    onward = reply.headers.get("location")
                    if step.method != "GET" or reply.status not in _REDIRECTS or not onward:
                        return reply
                    before, url = url, urljoin(url, onward)
                    if origin_of(url) != origin_of(before):
                        raise FetchFailed(f"{step.what} redirects to another origin")
                raise FetchFailed(f"{step.what} redirects too often")
        except trio.TooSlowError:
            raise FetchFailed(f"{step.what} took longer than {MAX_TIME:g} s") from None
        except UrlRefused as error:
            raise FetchFailed(f"{step.what} is not fetched: {error}") from error

    async def _once(self, step: Fetch, url: str) -> Fetched:
        import httpx2

        target = check_url(url, self.policy)
        if self.lent is not None:
            places: tuple[str, ...] = (url,)
        else:
            places = tuple(_at(url, address, target) for address in await _resolve(target))
        failure: Exception | None = None
        for place in places:
            try:
                return await self._send(step, url, place, target)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error  # the next address, then
            except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
                failure = error
                break
        raise FetchFailed(f"{step.what} could not be made: {type(failure).__name__} at {target.host}") from failure

    async def _send(self, step: Fetch, url: str, place: str, target: Target) -> Fetched:
        client = self.lent or self._own(target.https)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **step.headers}
        extensions: dict[str, Any] = {}
        if place != url:
            # connected to by address, but named in TLS and in the request as it was: certificates are for names
            headers["Host"] = urlsplit(url).netloc
            extensions["sni_hostname"] = target.host
        request = client.build_request(
            step.method, place, headers=headers, data=_plain(step.form), json=step.json, extensions=extensions
        )
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise FetchFailed(f"{step.what} was answered compressed, which was not asked for")
            body = await read_bounded(response, MAX_BODY)
            if body is None:
                raise FetchFailed(f"{step.what} was answered with more than {MAX_BODY} bytes")
        finally:
            await response.aclose()
        named = {name.lower(): value for name, value in response.headers.items()}
        return Fetched(status=response.status_code, headers=named, body=body)

    def _own(self, https: bool) -> httpx2.AsyncClient:
        import httpx2

        if https not in self._clients:
            # No connection is kept: the pool would take two names at one address for the same server. Without TLS
            # there is nothing to verify, and reading the system's certificates takes longer than a whole exchange.
            self._clients[https] = httpx2.AsyncClient(
                verify=self.verify if https else False,
                limits=httpx2.Limits(max_connections=10, max_keepalive_connections=0),
                timeout=httpx2.Timeout(MAX_TIME),
                trust_env=False,
            )
        return self._clients[https]

    async def aclose(self) -> None:
        with trio.CancelScope(shield=True):
            for client in self._clients.values():
                await client.aclose()


async def _resolve(target: Target) -> tuple[str, ...]:
    try:
        found = await trio.socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise FetchFailed(f"{target.host} cannot be resolved") from error
    return check_addresses((str(entry[4][0]) for entry in found), target)


def _at(url: str, address: str, target: Target) -> str:
    """The same URL, with an address in place of the name."""
    parts = urlsplit(url)
    place = f"[{address}]" if ":" in address else address
    return urlunsplit((parts.scheme, f"{place}:{target.port}", parts.path, parts.query, ""))


def _plain(form: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if form is None else dict(form)
