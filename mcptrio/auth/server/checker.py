"""The check of a request's credentials, from its head to a `Principal` or a refusal.

Pure: `CredentialChecker.check` is a generator that yields what has to be fetched. Its driver sends in the result, or
throws in the error.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, Protocol

from attrs import define, field

from mcptrio.auth.server.certificates import ClientCertificates, read_certificate
from mcptrio.auth.server.config import BearerAuth
from mcptrio.auth.server.credentials import Presented, read_credentials
from mcptrio.auth.server.dpop import NonceIssuer, Replays, check_possession, used_before
from mcptrio.auth.server.errors import CredentialsRefused, Unavailable
from mcptrio.auth.server.principal import EXPIRED, Principal, has_expired, require_principal
from mcptrio.auth.server.refusal import Auth, AuthRefusal, forbidden, unauthorized, unavailable
from mcptrio.auth.server.tokens import Check, Want, check_token

logger = logging.getLogger("mcptrio.auth")

_MAX_CACHED: Final = 4096
_MAX_TOKEN: Final = 8192
_INVALID_TTL: Final = 10.0


class CheckedRequest(Protocol):
    """The parts of an HTTP request that its credentials are read from."""

    @property
    def method(self) -> str: ...
    @property
    def root(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...
    @property
    def query(self) -> bytes: ...
    @property
    def certificate(self) -> bytes | None: ...


@define(eq=False, repr=False)
class TokenCache:
    """Results of token checks by digest of the token, each until its own time. Drops the oldest when full."""

    size: int = _MAX_CACHED
    _entries: dict[bytes, tuple[float, Any]] = field(factory=dict)

    def get(self, digest: bytes, now: float) -> Any:
        found = self._entries.get(digest)
        if found is None or found[0] <= now:
            return None
        return found[1]

    def put(self, digest: bytes, value: Any, until: float) -> None:
        self._entries.pop(digest, None)
        if len(self._entries) >= self.size:
            del self._entries[next(iter(self._entries))]
        self._entries[digest] = (until, value)


@define(eq=False, repr=False)
class CredentialChecker:
    """The credential checks of one server. Owns: the cached results, and the DPoP proofs that were used."""

    auth: Auth
    now: Callable[[], float] = time.time
    _valid: TokenCache = field(factory=TokenCache)
    _invalid: TokenCache = field(factory=TokenCache)
    """Tokens that the issuer did not know. Separate, so that random tokens cannot displace valid ones."""
    _replays: Replays = field(factory=Replays)
    _nonces: NonceIssuer = field(factory=lambda: NonceIssuer(secrets.token_bytes(32)))
    _shared: bool = False
    """Whether several processes serve the endpoint: each DPoP proof is used once in all of them."""

    def share(self, secret: bytes) -> None:
        """Serve an endpoint together with other processes, which have the same secret."""
        self._shared, self._nonces = True, NonceIssuer.derived(secret)

    def check(self, request: CheckedRequest) -> Generator[Want, Any, Principal | AuthRefusal]:
        """Find the principal of a request, or the response that refuses it."""
        auth = self.auth
        try:
            principal = yield from self._identify(request)
        except CredentialsRefused as error:
            nonce = self._nonces.current(self.now()) if error.error == "use_dpop_nonce" else None
            return unauthorized(auth, error, nonce=nonce)
        except Unavailable as error:
            logger.warning("%s %s cannot be authorized: %s", request.method, request.path, error)
            return unavailable()
        missing = auth.required_scopes - principal.scopes
        return forbidden(auth, auth.required_scopes) if missing else principal

    def _identify(self, request: CheckedRequest) -> Check:
        auth = self.auth
        if isinstance(auth, ClientCertificates):
            return self._unless_expired(_by_certificate(auth, request.certificate))
        shown = read_credentials(
            request.headers,
            request.query,
            method=request.method,
            path=request.root + request.path,
            max_token=auth.max_token if isinstance(auth, BearerAuth) else _MAX_TOKEN,
            certificate=request.certificate,
        )
        if isinstance(auth, BearerAuth):
            return (yield from self._by_token(auth, shown))
        principal = auth.find(shown.token)
        if principal is None or shown.scheme != "bearer":
            raise CredentialsRefused("the token is not valid", detail="it is not one of --token-file or StaticTokens")
        return self._unless_expired(principal)

    def _unless_expired(self, principal: Principal) -> Principal:
        if has_expired(principal, self.now()):
            raise CredentialsRefused(EXPIRED)
        return principal

    def _by_token(self, auth: BearerAuth, shown: Presented) -> Check:
        now = self.now()
        digest = hashlib.sha256(shown.token.encode()).digest()
        principal: Principal | None = self._valid.get(digest, now)
        if principal is None:
            if self._invalid.get(digest, now) is not None:
                raise CredentialsRefused("the token is not valid", detail="cached: the issuer did not know it")
            principal = yield from self._by_issuer(auth, shown, digest, now)
        # Never cached: a DPoP proof belongs to one request.
        used = check_possession(auth, shown, principal, now=now, replays=self._replays, nonces=self._nonces)
        if used is not None and self._shared and not (yield used):
            raise used_before()
        return principal

    def _by_issuer(self, auth: BearerAuth, shown: Presented, digest: bytes, now: float) -> Check:
        try:
            principal = yield from check_token(auth, shown, now)
        except CredentialsRefused:
            if auth.introspection is not None:  # also with cache=0: a token that was refused does not become valid
                self._invalid.put(digest, True, now + min(auth.cache or _INVALID_TTL, _INVALID_TTL))
            raise
        if auth.cache:
            end = float("inf") if principal.expires is None else principal.expires
            self._valid.put(digest, principal, min(end, now + auth.cache))
        return principal


def _by_certificate(auth: ClientCertificates, der: bytes | None) -> Principal:
    if der is None:
        raise CredentialsRefused("a client certificate is required", error=None)
    try:
        certificate = read_certificate(der)
    except ValueError:
        raise CredentialsRefused("the certificate cannot be read") from None
    principal = auth.find(certificate)
    if principal is None:
        raise CredentialsRefused(
            "the certificate is not known", detail=f"{certificate.subject!a:.80} is not in ClientCertificates"
        )
    return require_principal(principal)
