"""The keys of an issuer: what may check a signature, and when to fetch them again.

Nothing here fetches. `IssuerKeys.decide` says what to do; whoever drives it fetches, and tells how that went.
"""

from __future__ import annotations

import enum
import math
import warnings
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from attrs import define, frozen

from mcptrio.auth.server.errors import Unavailable

MAX_DOCUMENT: Final = 256 * 1024
_MAX_KEYS: Final = 100
_KEY_TYPES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


@frozen(kw_only=True)
class Key:
    """A public key that signatures may be checked with."""

    kid: str | None
    kty: str
    crv: str | None
    alg: str | None
    key: Any
    """joserfc's."""

    def fits(self, alg: str) -> bool:
        """Whether a signature of this kind can be of this key: the kind never follows from the token alone."""
        if self.kty != _KEY_TYPES.get(alg[:2]) or self.alg not in (None, alg):
            return False
        return alg not in _CURVES or self.crv == _CURVES[alg]


def read_key(jwk: Mapping[str, Any]) -> Key | None:
    """A public signature key, or None if it is anything else."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    kty, use, ops = str(jwk.get("kty")), jwk.get("use"), jwk.get("key_ops")
    if kty not in _KEY_TYPES.values() or use not in (None, "sig") or _PRIVATE & set(jwk):
        return None
    if ops is not None and not (isinstance(ops, list) and "verify" in ops):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # joserfc only warns of keys that are too short
            key = import_key({name: value for name, value in jwk.items() if name in _PUBLIC})
            _ = key.raw_value  # a key that cannot be one shows here
    except (JoseError, ValueError, TypeError, KeyError, Warning):
        return None
    kid, alg, crv = jwk.get("kid"), jwk.get("alg"), jwk.get("crv")
    return Key(kid=_text(kid), kty=kty, crv=_text(crv), alg=_text(alg), key=key)


_PUBLIC: Final = frozenset({"kty", "n", "e", "crv", "x", "y"})


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def read_keys(document: object) -> tuple[Key, ...]:
    """The usable keys of a JWK Set.

    Raises:
        Unavailable: it is none, or has no usable key.
    """
    listed = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(listed, list):
        raise Unavailable("the issuer's keys are no JWK Set")
    found = [read_key(jwk) for jwk in listed[:_MAX_KEYS] if isinstance(jwk, dict)]
    keys = tuple(key for key in found if key is not None)
    if not keys:
        raise Unavailable("the issuer publishes no public signature key")
    return keys


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Where an issuer's metadata may be (RFC 8414 section 3.1, OpenID Connect Discovery section 4)."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    known = ("oauth-authorization-server", "openid-configuration")
    urls = [f"{origin}/.well-known/{name}{path}" for name in known]
    return (*urls, f"{origin}{path}/.well-known/openid-configuration") if path else tuple(urls)


def read_jwks_uri(document: object, issuer: str) -> str:
    """Where the issuer's metadata says that its keys are.

    Raises:
        Unavailable: it does not, or the metadata is of another issuer.
    """
    if not isinstance(document, Mapping) or document.get("issuer") != issuer:
        # RFC 8414 section 3.3: it MUST be the very same, or the metadata is of somebody else
        raise Unavailable("the metadata is not that of the issuer")
    uri = document.get("jwks_uri")
    wanted, given = urlsplit(issuer), urlsplit(uri) if isinstance(uri, str) else None
    if given is None or given.hostname is None:
        raise Unavailable("the issuer's metadata names no keys")
    if given.scheme != "https" and (given.scheme, given.hostname) != (wanted.scheme, wanted.hostname):
        raise Unavailable("the issuer's keys are not at an https address")
    return str(uri)


def read_json(body: bytes) -> Any:
    """Raises `Unavailable` if it is no JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Unavailable("the issuer's answer is no JSON") from None


class Decision(enum.Enum):
    USE = enum.auto()
    REFRESH = enum.auto()
    """Usable, but somebody should fetch them again."""
    FETCH = enum.auto()
    """A key is needed that is not here."""
    UNKNOWN = enum.auto()
    """There is no such key, as far as one can know now."""
    UNAVAILABLE = enum.auto()


@define(eq=False, repr=False, kw_only=True)
class IssuerKeys:
    """The keys of one issuer, and the books about fetching them. Times are any steady clock's."""

    ttl: float
    max_age: float
    pause: float
    keys: tuple[Key, ...] = ()
    fetched: float = -math.inf
    tried: float = -math.inf
    failed: bool = False

    def decide(self, kid: str | None, now: float) -> Decision:
        age = now - self.fetched
        known = bool(self.keys) if kid is None else any(key.kid == kid for key in self.keys)
        usable = known and age < self.max_age
        if usable and age < self.ttl:
            return Decision.USE
        if now - self.tried < self.pause:
            # Tokens with invented key ids must not make this server knock at the issuer's door for each of them.
            if usable:
                return Decision.USE
            return Decision.UNAVAILABLE if self.failed or age >= self.max_age else Decision.UNKNOWN
        return Decision.REFRESH if usable else Decision.FETCH

    def took(self, keys: tuple[Key, ...], now: float) -> None:
        self.keys, self.fetched, self.tried, self.failed = keys, now, now, False

    def missed(self, now: float) -> None:
        self.tried, self.failed = now, True
