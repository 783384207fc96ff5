"""Who may come in: checks the credentials of a request, and tells a client that is refused what to do about it."""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from attrs import define, field

from mcptrio.auth.server import BearerAuth, ClientCertificates, Principal, StaticTokens
from mcptrio.auth.server.credentials import Presented, read_credentials
from mcptrio.auth.server.dpop import Nonces, Replays, check_possession
from mcptrio.auth.server.errors import CredentialsRefused, Unavailable
from mcptrio.auth.server.metadata import challenge, challenges, metadata, metadata_paths
from mcptrio.auth.server.small import read_certificate
from mcptrio.auth.server.tokens import WantKeys, check_token
from mcptrio.errors import INTERNAL_ERROR, INVALID_REQUEST

from .fetching import Fetcher
from .message import JSON, Head, Headers, Plain, refuse

logger = logging.getLogger("mcptrio.auth")

Auth = BearerAuth | StaticTokens | ClientCertificates

_MOST_REMEMBERED: Final = 4096
_NOTHING_KEPT: Final = (b"cache-control", b"no-store")


@define(eq=False, repr=False)
class Remembered:
    """What was found out about tokens, by their digest, for a short while. Bounded; the oldest go first."""

    most: int = _MOST_REMEMBERED
    _known: dict[bytes, tuple[float, Any]] = field(factory=dict)

    def get(self, digest: bytes, now: float) -> Any:
        found = self._known.get(digest)
        if found is None or found[0] <= now:
            return None
        return found[1]

    def put(self, digest: bytes, value: Any, until: float) -> None:
        self._known.pop(digest, None)
        if len(self._known) >= self.most:
            del self._known[next(iter(self._known))]
        self._known[digest] = (until, value)


@define(eq=False, repr=False)
class Authorizer:
    """An `Authenticator` for the ways of this package. Owns: what it fetched, and what it remembers for a while."""

    auth: Auth
    now: Callable[[], float] = time.time
    fetcher: Fetcher | None = field(init=False, default=None)
    _good: Remembered = field(factory=Remembered)
    _bad: Remembered = field(factory=Remembered)
    """What the issuer did not know; apart, so that nonsense does not push out what is good."""
    _replays: Replays = field(factory=Replays)
    _nonces: Nonces = field(factory=lambda: Nonces(secrets.token_bytes(32)))

    def __attrs_post_init__(self) -> None:
        if isinstance(self.auth, BearerAuth):
            self.fetcher = Fetcher(self.auth)

    async def close(self) -> None:
        if self.fetcher is not None:
            await self.fetcher.close()

    # -- who it is

    async def __call__(self, head: Head) -> Principal | Plain:
        """The principal of a request, or why there is none."""
        try:
            principal = await self._find(head)
        except CredentialsRefused as error:
            if error.error is not None:
                logger.info("%s %s refused: %s", head.method, head.path, error)
            return self._unauthorized(error)
        except Unavailable as error:
            logger.warning("%s %s cannot be authorized: %s", head.method, head.path, error)
            headers: Headers = ((b"retry-after", b"5"), _NOTHING_KEPT)
            return refuse(503, "authorization is not available now", code=INTERNAL_ERROR, headers=headers)
        missing = self.auth.required_scopes - principal.scopes
        return self.forbidden(self.auth.required_scopes) if missing else principal

    async def _find(self, head: Head) -> Principal:
        auth = self.auth
        if isinstance(auth, ClientCertificates):
            return self._by_certificate(auth, head)
        shown = read_credentials(
            head.headers,
            head.query,
            method=head.method,
            path=head.root + head.path,
            max_token=auth.max_token if isinstance(auth, BearerAuth) else 8192,
            certificate=head.certificate,
        )
        if isinstance(auth, BearerAuth):
            return await self._by_token(auth, shown)
        principal = auth.find(shown.token)
        if principal is None or shown.scheme != "bearer":
            raise CredentialsRefused("the token is not valid")
        return principal

    def _by_certificate(self, auth: ClientCertificates, head: Head) -> Principal:
        if head.certificate is None:
            raise CredentialsRefused("a client certificate is needed", error=None)
        try:
            certificate = read_certificate(head.certificate)
        except ValueError:
            raise CredentialsRefused("the certificate cannot be read") from None
        principal = auth.find(certificate)
        if principal is None:
            raise CredentialsRefused("the certificate is not known here", detail=certificate.subject)
        return principal

    async def _by_token(self, auth: BearerAuth, shown: Presented) -> Principal:
        now = self.now()
        digest = hashlib.sha256(shown.token.encode()).digest()
        principal: Principal | None = self._good.get(digest, now)
        if principal is None:
            if self._bad.get(digest, now) is not None:
                raise CredentialsRefused("the token is not valid", detail="the issuer did not know it a moment ago")
            principal = await self._check(auth, shown, digest, now)
        check_possession(auth, shown, principal, now=now, replays=self._replays, nonces=self._nonces)
        return principal

    async def _check(self, auth: BearerAuth, shown: Presented, digest: bytes, now: float) -> Principal:
        """Drive the check: fetch what it asks for."""
        fetcher = self.fetcher
        assert fetcher is not None
        check = check_token(auth, shown, now)
        answer: Any = None
        try:
            while True:
                want = check.send(answer)
                if isinstance(want, WantKeys):
                    answer = await fetcher.keys(want.issuer, want.kid)
                else:
                    answer = await fetcher.introspect(want.token)
        except StopIteration as done:
            principal: Principal = done.value
        except CredentialsRefused:
            if auth.introspection is not None and auth.cache:
                self._bad.put(digest, True, now + min(auth.cache, 10))
            raise
        ends = float("inf") if principal.expires is None else principal.expires + auth.clock_skew
        if auth.cache:
            self._good.put(digest, principal, min(ends, now + auth.cache))
        return principal

    # -- what a client is told

    def _unauthorized(self, error: CredentialsRefused) -> Plain:
        auth = self.auth
        description = error.description if error.error else None
        lines: Iterable[str] = (challenge("Bearer", realm="mcp", error=error.error, error_description=description),)
        if isinstance(auth, BearerAuth):
            lines = challenges(auth, error=error.error, description=error.description, scopes=auth.required_scopes)
        elif isinstance(auth, ClientCertificates):
            lines = ()  # TLS has asked already; HTTP has no scheme for it
        headers: Headers = (*_challenge_headers(lines), _NOTHING_KEPT)
        if error.error == "use_dpop_nonce":
            headers += ((b"dpop-nonce", self._nonces.now(self.now()).encode()),)
        status = error.status if lines else 403
        return refuse(status, error.description, code=INVALID_REQUEST, headers=headers)

    def forbidden(self, scopes: Iterable[str], request_id: int | str | None = None) -> Plain:
        """The token is good but not enough: all the scopes that would be (basic/authorization, step-up)."""
        needed = sorted(self.auth.required_scopes.union(scopes))
        data = {"error": "insufficient_scope", "scopes": needed}
        return refuse(
            403,
            f"more is needed to do this: {' '.join(needed)}",
            headers=self.forbidden_headers(scopes),
            request_id=request_id,
            data=data,
        )

    def forbidden_headers(self, scopes: Iterable[str]) -> Headers:
        needed = self.auth.required_scopes.union(scopes)
        description = "the token does not reach so far"
        if isinstance(self.auth, BearerAuth):
            lines: Iterable[str] = challenges(
                self.auth, error="insufficient_scope", description=description, scopes=needed
            )
        else:
            text = " ".join(sorted(needed))
            lines = (challenge("Bearer", realm="mcp", error="insufficient_scope", scope=text),)
        return _challenge_headers(lines)

    # -- what is said to everybody

    @property
    def metadata_paths(self) -> frozenset[str]:
        return metadata_paths(self.auth) if isinstance(self.auth, BearerAuth) else frozenset()

    def metadata(self, scopes: Iterable[str], name: str | None) -> Plain:
        """RFC 9728: where clients get tokens for this server."""
        assert isinstance(self.auth, BearerAuth)
        body = msgspec.json.encode(metadata(self.auth, scopes, name=name))
        return Plain(200, (*JSON, (b"cache-control", b"max-age=300")), body)


def _challenge_headers(lines: Iterable[str]) -> Headers:
    return tuple((b"www-authenticate", line.encode("ascii")) for line in lines)
