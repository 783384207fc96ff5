"""The public keys of an issuer: how they are parsed, and when they are fetched again.

Nothing here fetches. `IssuerKeys.decide` returns what to do; its caller fetches, and reports the outcome with `took`
or `missed`.
"""

from __future__ import annotations

import enum
import math
import warnings
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from attrs import define, field, frozen

from mcptrio.auth.server.errors import Unavailable

_MAX_KEYS: Final = 100
_MAX_ABSENT: Final = 256
_KEY_TYPES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


@frozen(kw_only=True)
class Key:
    """A public key for verifying signatures."""

    kid: str | None
    kty: str
    crv: str | None
    alg: str | None
    key: Any
    """The key object of joserfc."""

    def fits(self, alg: str) -> bool:
        """Return whether the key can be used with an algorithm. The token alone never selects the algorithm."""
        if self.kty != _KEY_TYPES.get(alg[:2]) or self.alg not in (None, alg):
            return False
        return alg not in _CURVES or self.crv == _CURVES[alg]


def read_key(jwk: Mapping[str, Any]) -> Key | None:
    """Parse a JWK; None unless it is a public signature key."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    kty, use, ops = str(jwk.get("kty")), jwk.get("use"), jwk.get("key_ops")
    if kty not in _KEY_TYPES.values() or use not in (None, "sig") or _PRIVATE & set(jwk):
        return None
    if ops is not None and not (isinstance(ops, list) and "verify" in ops):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # joserfc only warns about keys that are too short
            key = import_key({name: value for name, value in jwk.items() if name in _PUBLIC})
            _ = key.raw_value  # raises for an invalid key
    except (JoseError, ValueError, TypeError, KeyError, Warning):
        return None
    kid, alg, crv = jwk.get("kid"), jwk.get("alg"), jwk.get("crv")
    return Key(kid=_text(kid), kty=kty, crv=_text(crv), alg=_text(alg), key=key)


_PUBLIC: Final = frozenset({"kty", "n", "e", "crv", "x", "y"})


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def read_keys(document: object) -> tuple[Key, ...]:
    """Parse the usable keys of a JWK Set.

    Raises:
        Unavailable: it is not a JWK Set, or has no usable key.
    """
    listed = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(listed, list):
        raise Unavailable("the issuer's keys are not a JWK Set")
    found = [read_key(jwk) for jwk in listed[:_MAX_KEYS] if isinstance(jwk, dict)]
    keys = tuple(key for key in found if key is not None)
    if not keys:
        raise Unavailable("the issuer publishes no public signature key")
    return keys


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Return the URLs to try for an issuer's metadata (RFC 8414 section 3.1, OpenID Connect Discovery section 4)."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    known = ("oauth-authorization-server", "openid-configuration")
    urls = [f"{origin}/.well-known/{name}{path}" for name in known]
    return (*urls, f"{origin}{path}/.well-known/openid-configuration") if path else tuple(urls)


def read_jwks_uri(document: object, issuer: str) -> str:
    """Read the URL of the keys from the issuer's metadata.

    Raises:
        Unavailable: it has no such URL, or belongs to another issuer.
    """
    named = document.get("issuer") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or named != issuer:  # RFC 8414 section 3.3: it MUST be identical
        raise Unavailable(f"the metadata names the issuer {named!r:.200}, and BearerAuth.issuers has {issuer!r}")
    uri = document.get("jwks_uri")
    wanted, given = urlsplit(issuer), urlsplit(uri) if isinstance(uri, str) else None
    if given is None or given.hostname is None:
        raise Unavailable("the issuer's metadata names no keys")
    if given.scheme != "https" and (given.scheme, given.hostname) != (wanted.scheme, wanted.hostname):
        raise Unavailable("the issuer's keys are not at an https address")
    return str(uri)


def read_json(body: bytes) -> Any:
    """Parse a JSON response.

    Raises:
        Unavailable: it is not JSON.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Unavailable("the issuer's response is not JSON") from None


class Decision(enum.Enum):
    """The action for a key that a token names."""

    USE = enum.auto()
    REFRESH = enum.auto()
    """Usable, but due to be fetched again."""
    FETCH = enum.auto()
    """The key is missing or too old: fetch first."""
    UNKNOWN = enum.auto()
    """The issuer has no such key: a fetch has looked for it."""
    UNAVAILABLE = enum.auto()
    """It cannot be known now: the issuer is down, or the key may have been published since the last fetch."""


@define(eq=False, repr=False, kw_only=True)
class IssuerKeys:
    """The keys of one issuer, and when they were fetched. Times are of a monotonic clock."""

    ttl: float
    max_age: float
    pause: float
    keys: tuple[Key, ...] = ()
    fetched: float = -math.inf
    tried: float = -math.inf
    failed: bool = False
    early: float = -math.inf
    """When keys were last fetched within `pause` of another fetch, for a key ID that was new."""
    absent: dict[str, None] = field(factory=dict)
    """Key IDs that were looked for and not found by the last fetch; the oldest are dropped."""

    def decide(self, kid: str | None, now: float) -> Decision:
        """Decide what to do about the key `kid`; None stands for any key."""
        age = now - self.fetched
        known = bool(self.keys) if kid is None else any(key.kid == kid for key in self.keys)
        usable = known and age < self.max_age
        if usable and age < self.ttl:
            return Decision.USE
        if now - self.tried >= self.pause:
            return Decision.REFRESH if usable else Decision.FETCH
        if usable:
            return Decision.USE
        if self.failed or age >= self.max_age:
            return Decision.UNAVAILABLE
        if kid in self.absent:
            return Decision.UNKNOWN
        # The issuer may have published the key a moment ago. Tokens with invented key IDs must not cause a request
        # each, so only one early fetch is made per pause.
        return Decision.FETCH if now - self.early >= self.pause else Decision.UNAVAILABLE

    def took(self, keys: tuple[Key, ...], now: float, *, looked_for: str | None = None) -> None:
        """Record a successful fetch, which was made for the key `looked_for`."""
        self._note_early(now)
        self.keys, self.fetched, self.tried, self.failed = keys, now, now, False
        if looked_for is not None:
            self.absent[looked_for] = None
        for key in keys:
            self.absent.pop(key.kid or "", None)
        while len(self.absent) > _MAX_ABSENT:
            del self.absent[next(iter(self.absent))]

    def missed(self, now: float) -> None:
        """Record a failed fetch."""
        self._note_early(now)
        self.tried, self.failed = now, True

    def _note_early(self, now: float) -> None:
        if now - self.tried < self.pause:
            self.early = now
