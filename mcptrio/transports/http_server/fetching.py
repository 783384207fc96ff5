"""Fetching what a token is checked with: the issuer's keys, and its word on a token. One fetch at a time for each.

Nobody is let in because an issuer is down or slow: whoever asks gets `Unavailable` soon.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field

from mcptrio.auth.server.config import BearerAuth, Introspection
from mcptrio.auth.server.errors import CredentialsRefused, Unavailable
from mcptrio.auth.server.keys import (
    MAX_DOCUMENT,
    Decision,
    IssuerKeys,
    Key,
    metadata_urls,
    read_json,
    read_jwks_uri,
    read_keys,
)
from mcptrio.errors import DeclarationError
from mcptrio.transports.bounded import read_bounded

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger("mcptrio.auth")


@define(eq=False, repr=False)
class _Issuer:
    keys: IssuerKeys
    lock: trio.Lock = field(factory=trio.Lock)
    """Held by whoever fetches; the others wait for what it finds."""


@define(eq=False, repr=False)
class Fetcher:
    """Keys and introspections of one `BearerAuth`. Owns: the HTTP client, once something was fetched."""

    auth: BearerAuth
    fetches: int = 0
    """How many requests were made."""
    _given: tuple[Key, ...] | None = field(init=False, default=None)
    _issuers: dict[str, _Issuer] = field(factory=dict)
    _client: httpx2.AsyncClient | None = None
    _opening: trio.Lock = field(factory=trio.Lock)

    def __attrs_post_init__(self) -> None:
        import httpx2  # noqa: F401  now, and not while the first caller waits
        from joserfc import jwk, jws  # noqa: F401

        auth = self.auth
        if auth.jwks is not None:
            try:
                self._given = read_keys(auth.jwks)
            except Unavailable as error:
                raise DeclarationError(f"BearerAuth.jwks: {error}") from None
        for issuer in auth.issuers:
            keys = IssuerKeys(ttl=auth.keys_ttl, max_age=auth.keys_max_age, pause=auth.keys_pause)
            self._issuers[issuer] = _Issuer(keys)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with trio.move_on_after(1, shield=True):
                await client.aclose()

    # -- keys

    async def keys(self, issuer: str, kid: str | None) -> tuple[Key, ...]:
        """The keys of an issuer, with the named one among them.

        Raises:
            CredentialsRefused: the issuer has no such key.
            Unavailable: the issuer cannot be asked.
        """
        if self._given is not None:
            return self._given
        known = self._issuers[issuer]
        with trio.move_on_after(self.auth.fetch_timeout):
            while True:
                decision = known.keys.decide(kid, trio.current_time())
                if decision is Decision.USE or (decision is Decision.REFRESH and known.lock.locked()):
                    return known.keys.keys
                if decision is Decision.UNKNOWN:
                    raise CredentialsRefused("the token is not valid", detail="the issuer has no such key")
                if decision is Decision.UNAVAILABLE:
                    break
                async with known.lock:
                    # Somebody may have fetched them while this one waited.
                    if known.keys.decide(kid, trio.current_time()) in (Decision.FETCH, Decision.REFRESH):
                        await self._fetch_keys(issuer, known.keys)
        raise Unavailable(f"the keys of {issuer} cannot be had now")

    async def _fetch_keys(self, issuer: str, books: IssuerKeys) -> None:
        problem = "it took too long"
        try:
            with trio.move_on_after(self.auth.fetch_timeout * 0.9):
                books.took(read_keys(await self._published(issuer)), trio.current_time())
                return
        except Unavailable as error:
            problem = str(error)
        books.missed(trio.current_time())
        logger.error("the keys of %s cannot be fetched: %s", issuer, problem)

    async def _published(self, issuer: str) -> Any:
        uri = self.auth.key_urls.get(issuer)
        problem = Unavailable("it publishes no metadata")
        for url in () if uri is not None else metadata_urls(issuer):
            try:
                uri = read_jwks_uri(read_json(await self._request("GET", url)), issuer)
                break
            except Unavailable as error:
                problem = error
        if uri is None:
            raise problem
        return read_json(await self._request("GET", uri))

    # -- introspection

    async def introspect(self, token: str) -> Any:
        """What the issuer says of a token (RFC 7662).

        Raises:
            Unavailable: it says nothing, or nothing that could be read.
        """
        about = self.auth.introspection
        assert about is not None
        with trio.move_on_after(self.auth.fetch_timeout):
            try:
                return read_json(await self._request("POST", about.url, about, token))
            except Unavailable as error:
                logger.error("a token cannot be introspected at %s: %s", about.url, error)
                raise
        logger.error("a token cannot be introspected at %s: it took too long", about.url)
        raise Unavailable("the issuer does not answer in time")

    # -- HTTP

    async def _open(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._client is None:
                # Reading the system's certificates takes long enough to keep everybody else waiting.
                self._client = await trio.to_thread.run_sync(self._new_client)
            return self._client

    def _new_client(self) -> httpx2.AsyncClient:
        import httpx2

        return httpx2.AsyncClient(follow_redirects=False, timeout=self.auth.fetch_timeout)

    async def _request(self, method: str, url: str, about: Introspection | None = None, token: str = "") -> bytes:
        import httpx2

        client = self._client or await self._open()
        self.fetches += 1
        options: dict[str, Any] = {"headers": {"accept": "application/json"}}
        if about is not None:
            options["auth"] = (about.client_id, about.client_secret)
            options["data"] = {"token": token, "token_type_hint": "access_token"}
        try:
            async with client.stream(method, url, **options) as answer:
                if answer.status_code != 200:
                    raise Unavailable(f"{url} answers {answer.status_code}")
                body = await read_bounded(answer, MAX_DOCUMENT)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise Unavailable(f"{url}: {type(error).__name__}") from None  # its text may quote what was sent
        if body is None:
            raise Unavailable(f"{url} answers with more than {MAX_DOCUMENT} bytes")
        return body
