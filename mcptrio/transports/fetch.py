"""HTTP requests to authorization servers, for both roles: bounded in time and size, guarded against SSRF."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit, urlunsplit

import trio
from attrs import define, field

from mcptrio.auth.client.errors import FetchFailed
from mcptrio.auth.client.steps import Fetch, Fetched
from mcptrio.auth.ssrf import FetchPolicy, FetchTarget, UrlRefused, check_addresses, check_url, origin_of

if TYPE_CHECKING:
    import ssl

    import httpx2

MAX_BODY: Final = 256 * 1024
_REDIRECTS: Final = (301, 302, 303, 307, 308)


@define(eq=False, repr=False, kw_only=True)
class Fetcher:
    """An HTTP client for OAuth requests. Owns: the httpx2 clients that it opened, until `aclose`."""

    timeout: float
    """Timeout of one `fetch` in seconds, redirects included."""
    policy: FetchPolicy | None = None
    """Restricts URLs and addresses. None allows all, for URLs from the operator's own settings."""
    max_redirects: int = 0
    """Redirects to follow: only for GET, and only within the origin."""
    verify: ssl.SSLContext | bool = True
    proxy: str | None = None
    """The URL of a proxy, for a fetcher without a policy."""
    lent: httpx2.AsyncClient | None = None
    """An HTTP client of the user, for example with a proxy. It resolves names itself, so only URLs are checked then."""
    _clients: dict[bool, httpx2.AsyncClient] = field(factory=dict, init=False)
    """With TLS, without TLS."""
    _opening: trio.Lock = field(factory=trio.Lock, init=False)

    async def fetch(self, step: Fetch) -> Fetched:
        """Make a request.

        Raises:
            FetchFailed: the policy refuses the URL, the request failed, or the response is too large or too slow.
        """
        try:
            with trio.fail_after(self.timeout):
                return await self._follow(step)
        except trio.TooSlowError:
            raise FetchFailed(f"{step.what} took longer than {self.timeout:g} s") from None
        except UrlRefused as error:
            raise FetchFailed(f"{step.what} is not fetched: {error}") from error

    async def aclose(self) -> None:
        """Close the clients that were opened."""
        with trio.move_on_after(1, shield=True):
            for client in self._clients.values():
                await client.aclose()

    async def _follow(self, step: Fetch) -> Fetched:
        url = step.url
        for _ in range(self.max_redirects + 1):
            reply = await self._request(step, url)
            location = reply.headers.get("location")
            if not self.max_redirects or step.method != "GET" or reply.status not in _REDIRECTS or not location:
                return reply
            previous, url = url, urljoin(url, location)
            if origin_of(url) != origin_of(previous):
                raise FetchFailed(f"{step.what} redirects to another origin")
        raise FetchFailed(f"{step.what} redirects too often")

    async def _request(self, step: Fetch, url: str) -> Fetched:
        import httpx2

        target = None if self.policy is None else check_url(url, self.policy)
        places: tuple[str, ...] = (url,)
        if target is not None and self.lent is None:
            places = tuple(_at(url, address, target) for address in await _resolve(target))
        client = self.lent or await self._client(secure=target is None or target.https)
        failure: Exception | None = None
        for place in places:
            try:
                return await _send(client, step, url, place)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error  # try the next address
            except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError) as error:
                failure = error
                break
        # Only the type of the error: its text may quote what was sent.
        where = "" if target is None else f" at {target.host}"
        raise FetchFailed(f"{step.what} failed: {type(failure).__name__}{where}") from failure

    async def _client(self, *, secure: bool) -> httpx2.AsyncClient:
        async with self._opening:
            if secure not in self._clients:
                # In a thread: loading the system's certificates would block the event loop.
                self._clients[secure] = await trio.to_thread.run_sync(self._new_client, secure)
            return self._clients[secure]

    def _new_client(self, secure: bool) -> httpx2.AsyncClient:
        import httpx2

        if self.policy is None:
            # Proxies of the environment are not used: they would see the credentials of the server.
            return httpx2.AsyncClient(verify=self.verify, proxy=self.proxy, timeout=None, trust_env=False)
        # No keep-alive: the pool would treat two names at one address as the same server. Without TLS there is nothing
        # to verify, and loading the system's certificates takes longer than the request.
        return httpx2.AsyncClient(
            verify=self.verify if secure else False,
            limits=httpx2.Limits(max_connections=10, max_keepalive_connections=0),
            timeout=None,
            trust_env=False,
        )


async def _send(client: httpx2.AsyncClient, step: Fetch, url: str, place: str) -> Fetched:
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", **step.headers}
    extensions: dict[str, Any] = {}
    if place != url:
        # Connect to the checked address, but keep the name for TLS and Host: certificates are issued for names.
        headers["Host"] = urlsplit(url).netloc
        extensions["sni_hostname"] = urlsplit(url).hostname
    form = None if step.form is None else dict(step.form)
    request = client.build_request(
        step.method, place, headers=headers, data=form, json=step.json, extensions=extensions
    )
    response = await client.send(request, stream=True, follow_redirects=False)
    try:
        # A compressed body could expand far beyond the limit before it is counted.
        if response.headers.get("content-encoding", "identity") != "identity":
            raise FetchFailed(f"{step.what} returned a compressed body, which was not requested")
        body = await _read_bounded(response)
        if body is None:
            raise FetchFailed(f"{step.what} returned more than {MAX_BODY} bytes")
    finally:
        await response.aclose()
    named = {name.lower(): value for name, value in response.headers.items()}
    return Fetched(status=response.status_code, headers=named, body=body)


async def _read_bounded(response: httpx2.Response) -> bytes | None:
    """Read the whole body; None if it is larger than `MAX_BODY`.

    The body is a chain of async generators that stay open if the loop is left early. Cancelling the read instead
    unwinds all of them.
    """
    body = bytearray()
    with trio.CancelScope() as scope:
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > MAX_BODY:
                scope.cancel()
    return bytes(body) if len(body) <= MAX_BODY else None


async def _resolve(target: FetchTarget) -> tuple[str, ...]:
    try:
        found = await trio.socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise FetchFailed(f"{target.host} cannot be resolved") from error
    return check_addresses((str(entry[4][0]) for entry in found), target)


def _at(url: str, address: str, target: FetchTarget) -> str:
    """Replace the host name in a URL by an address."""
    parts = urlsplit(url)
    place = f"[{address}]" if ":" in address else address
    return urlunsplit((parts.scheme, f"{place}:{target.port}", parts.path, parts.query, ""))
