"""Proofs of possession (DPoP, RFC 9449): a key pair for each sign-in, and a signed proof for each request."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from attrs import define, field

from mcptrio.auth.ssrf import UrlRefused, origin_of

ALGORITHM: Final = "ES256"
_MOST_NONCES: Final = 16
_LONGEST_NONCE: Final = 1024


def new_key() -> dict[str, str]:
    """Generate a private key as a JWK."""
    from joserfc.jwk import ECKey

    return {name: str(value) for name, value in ECKey.generate_key("P-256", private=True).as_dict(private=True).items()}


def proof(
    key: Mapping[str, str], *, method: str, url: str, now: float, jti: str, token: str | None = None, nonce: str | None
) -> str:
    """Create the proof for one request. `jti` must be unique."""
    from joserfc import jwt
    from joserfc.jwk import ECKey

    signer = ECKey.import_key(dict(key))
    parts = urlsplit(url)
    claims: dict[str, Any] = {
        "jti": jti,
        "htm": method,
        "htu": urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")),  # section 4.2: no query, no fragment
        "iat": int(now),
    }
    if token is not None:
        digest = hashlib.sha256(token.encode()).digest()
        claims["ath"] = urlsafe_b64encode(digest).rstrip(b"=").decode()
    if nonce is not None:
        claims["nonce"] = nonce
    public = {name: value for name, value in key.items() if name in ("kty", "crv", "x", "y")}
    header = {"typ": "dpop+jwt", "alg": ALGORITHM, "jwk": public}
    return jwt.encode(header, claims, signer, algorithms=[ALGORITHM], default_type=None)


@define(eq=False, repr=False)
class NonceCache:
    """The most recent nonce of each server, by origin, because servers do not share them (RFC 9449 section 8.2)."""

    _known: dict[str, str] = field(factory=dict)

    def of(self, url: str) -> str | None:
        """Return the nonce to use for a URL, None if there is none or the URL must not be requested anyway."""
        try:
            return self._known.get(origin_of(url))
        except UrlRefused:
            return None

    def learn(self, url: str, headers: Mapping[str, str]) -> None:
        """Store the nonce of a response."""
        nonce = headers.get("dpop-nonce")
        if not nonce or len(nonce) > _LONGEST_NONCE:
            return
        origin = origin_of(url)
        if origin not in self._known and len(self._known) >= _MOST_NONCES:
            del self._known[next(iter(self._known))]
        self._known[origin] = nonce
