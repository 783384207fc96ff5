"""Keys and introspection responses of token issuers. At most one fetch of keys at a time for each issuer.

While an issuer is down or slow, callers get `Unavailable` within `fetch_timeout`; no token is accepted unchecked.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from typing import Any

import trio
from attrs import define, field

from mcptrio.auth.client.errors import FetchFailed
from mcptrio.auth.client.steps import Fetch
from mcptrio.auth.server.config import BearerAuth
from mcptrio.auth.server.errors import CredentialsRefused, Unavailable
from mcptrio.auth.server.keys import Decision, IssuerKeys, Key, metadata_urls, read_json, read_jwks_uri, read_keys
from mcptrio.auth.server.tokens import WantIntrospection, WantKeys
from mcptrio.errors import DeclarationError
from mcptrio.telemetry.log import escape
from mcptrio.transports.fetch import Fetcher

logger = logging.getLogger("mcptrio.auth")


@define(eq=False, repr=False)
class _Issuer:
    keys: IssuerKeys
    lock: trio.Lock = field(factory=trio.Lock)
    """Held during a fetch; other callers wait for its result."""


@define(eq=False, repr=False)
class IssuerClient:
    """Keys and introspection responses for one `BearerAuth`. Owns: the fetcher and the cached keys."""

    auth: BearerAuth
    fetcher: Fetcher = field(init=False)
    _given: tuple[Key, ...] | None = field(init=False, default=None)
    """The keys from the settings; then none are fetched."""
    _issuers: dict[str, _Issuer] = field(factory=dict, init=False)
    _introspecting: trio.CapacityLimiter = field(init=False)
    """Bounds the requests to the introspection endpoint: each unknown token causes one."""

    def __attrs_post_init__(self) -> None:
        # Import at start, not while the first caller waits.
        import httpx2  # noqa: F401
        from joserfc import jwk, jws  # noqa: F401

        auth = self.auth
        self.fetcher = Fetcher(timeout=auth.fetch_timeout, proxy=auth.proxy)
        self._introspecting = trio.CapacityLimiter(auth.introspection.max_concurrent if auth.introspection else 1)
        if auth.jwks is not None:
            try:
                self._given = read_keys(auth.jwks)
            except Unavailable as error:
                raise DeclarationError(f"BearerAuth.jwks: {error}") from None
        for issuer in auth.issuers:
            keys = IssuerKeys(ttl=auth.keys_ttl, max_age=auth.keys_max_age, pause=auth.keys_pause)
            self._issuers[issuer] = _Issuer(keys)

    async def close(self) -> None:
        """Close the connections to the issuers."""
        await self.fetcher.aclose()

    async def get(self, want: WantKeys | WantIntrospection) -> Any:
        """Fetch what a check asked for.

        Raises:
            CredentialsRefused: the issuer has no such key.
            Unavailable: the issuer cannot be reached, or its response cannot be used.
        """
        if isinstance(want, WantKeys):
            return await self.keys(want.issuer, want.kid)
        return await self.introspect(want.token)

    # -- keys

    async def keys(self, issuer: str, kid: str | None) -> tuple[Key, ...]:
        """Return the keys of an issuer, including the key `kid`.

        Raises:
            CredentialsRefused: the issuer has no such key.
            Unavailable: the issuer cannot be reached, or its response cannot be used.
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
                    # Another task may have fetched them while this one waited for the lock.
                    if known.keys.decide(kid, trio.current_time()) in (Decision.FETCH, Decision.REFRESH):
                        await self._fetch_keys(issuer, known.keys, kid)
        raise Unavailable(f"the keys of {issuer} cannot be fetched now")

    async def _fetch_keys(self, issuer: str, books: IssuerKeys, kid: str | None) -> None:
        problem = "timeout"
        try:
            # Shorter than the timeout of the caller, so that a timeout is recorded before the caller gives up.
            with trio.move_on_after(self.auth.fetch_timeout * 0.9):
                books.took(read_keys(await self._published(issuer)), trio.current_time(), looked_for=kid)
                return
        except Unavailable as error:
            problem = str(error)
        books.missed(trio.current_time())
        logger.error("cannot fetch the keys of %s: %s", issuer, escape(problem, 1000))

    async def _published(self, issuer: str) -> Any:
        uri = self.auth.key_urls.get(issuer)
        problem = Unavailable("it publishes no metadata")
        for url in () if uri is not None else metadata_urls(issuer):
            try:
                uri = read_jwks_uri(await self._document(Fetch(what=url, url=url)), issuer)
                break
            except Unavailable as error:
                problem = error
        if uri is None:
            raise problem
        return await self._document(Fetch(what=uri, url=uri))

    # -- introspection

    async def introspect(self, token: str) -> Any:
        """Ask the issuer about a token (RFC 7662).

        Raises:
            Unavailable: the issuer cannot be reached, its response cannot be used, or too many requests wait for it.
        """
        about = self.auth.introspection
        assert about is not None
        basic = b64encode(f"{about.client_id}:{about.client_secret}".encode()).decode()
        step = Fetch(
            what=about.url,
            method="POST",
            url=about.url,
            headers={"Authorization": f"Basic {basic}"},
            form={"token": token, "token_type_hint": "access_token"},
        )
        problem = "too many requests wait for it"
        try:
            with trio.move_on_after(self.auth.fetch_timeout):
                async with self._introspecting:
                    problem = "timeout"
                    return await self._document(step)
        except Unavailable as error:
            problem = str(error)
        logger.error("token introspection failed: %s", escape(problem, 1000))
        raise Unavailable(f"the token cannot be introspected: {problem}")

    async def _document(self, step: Fetch) -> Any:
        try:
            reply = await self.fetcher.fetch(step)
        except FetchFailed as error:
            raise Unavailable(str(error)) from None
        if reply.status != 200:
            raise Unavailable(f"{step.what} returned status {reply.status}")
        return read_json(reply.body)
