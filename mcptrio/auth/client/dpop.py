"""Proofs of possession (DPoP, RFC 9449): a key pair per sign-in, and a fresh signed statement with every request."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from attrs import define, field

from mcptrio.auth.ssrf import origin_of

ALGORITHM: Final = "ES256"
_MOST_NONCES: Final = 16
_LONGEST_NONCE: Final = 1024


def new_key() -> dict[str, str]:
    """A private key, as a JWK."""
    from joserfc.jwk import ECKey

    return {name: str(value) for name, value in ECKey.generate_key("P-256", private=True).as_dict(private=True).items()}


def proof(
    key: Mapping[str, str], *, method: str, url: str, now: float, jti: str, token: str | None = None, nonce: str | None
) -> str:
    """A proof for one request. `jti` has to be new each time."""
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
class Nonces:
    """The nonce that each server last gave: one per origin, since servers do not share them (section 8.2)."""

    _known: dict[str, str] = field(factory=dict)

    def of(self, url: str) -> str | None:
        return self._known.get(origin_of(url))

    def learn(self, url: str, headers: Mapping[str, str]) -> bool:
        """Take the nonce from a response; says whether it is a new one."""
        nonce = headers.get("dpop-nonce")
        if not nonce or len(nonce) > _LONGEST_NONCE or self.of(url) == nonce:
            return False
        origin = origin_of(url)
        if origin not in self._known and len(self._known) >= _MOST_NONCES:
            del self._known[next(iter(self._known))]
        self._known[origin] = nonce
        return True
