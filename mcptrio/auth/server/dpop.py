"""Tokens that are bound to a key: whoever shows one has to prove that the key is theirs (RFC 9449, RFC 8705)."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from attrs import define, field

from mcptrio.auth.server.config import BearerAuth
from mcptrio.auth.server.credentials import Presented
from mcptrio.auth.server.errors import CredentialsRefused, Unavailable
from mcptrio.auth.server.keys import read_key
from mcptrio.auth.server.metadata import PROOF_ALGORITHMS
from mcptrio.auth.server.principal import Principal
from mcptrio.auth.server.tokens import read_jwt, verify

PROOF_AGE: Final = 60.0
"""How old a proof may be, beside what clocks may differ."""
_LONGEST: Final = 8192
_NONCE_TIME: Final = 120
_PORTS: Final = {"http": 80, "https": 443}


@define(eq=False, repr=False)
class Replays:
    """The proofs that were accepted, until they would be too old anyway."""

    most: int = 100_000
    _seen: dict[bytes, float] = field(factory=dict)

    def __len__(self) -> int:
        return len(self._seen)

    def use(self, proof: bytes, until: float, now: float) -> bool:
        """Remember a proof; False if it was used before.

        Raises:
            Unavailable: there are too many to remember. Forgetting some would let them be used again.
        """
        for old, expires in list(self._seen.items())[:64]:  # in the order of their times, nearly
            if expires > now:
                break
            del self._seen[old]
        if proof in self._seen:
            return False
        if len(self._seen) >= self.most:
            raise Unavailable("too many proofs of possession within a minute")
        self._seen[proof] = until
        return True


@define(eq=False, repr=False)
class Nonces:
    """Nonces that can be recognised without being kept: a time slot and a MAC over it."""

    secret: bytes = field(repr=False)

    def now(self, now: float) -> str:
        return self._of(int(now // _NONCE_TIME))

    def good(self, nonce: object, now: float) -> bool:
        slot = int(now // _NONCE_TIME)
        return isinstance(nonce, str) and any(
            hmac.compare_digest(nonce.encode(), self._of(known).encode()) for known in (slot, slot - 1)
        )

    def _of(self, slot: int) -> str:
        return _b64(hmac.digest(self.secret, str(slot).encode(), "sha256")[:18])


def check_possession(
    auth: BearerAuth, shown: Presented, principal: Principal, *, now: float, replays: Replays, nonces: Nonces
) -> None:
    """Whether the token may be used the way it is.

    Raises:
        CredentialsRefused: it is bound to a key that the sender did not show to have.
        Unavailable: that cannot be decided now.
    """
    bound = principal.claims.get("cnf")
    bound = bound if isinstance(bound, Mapping) else {} if bound is None else {"?": bound}
    if "jkt" in bound:
        # A bound token that is accepted without its proof is worth stealing again: never, whatever the setting.
        if not auth.dpop or shown.scheme != "dpop":
            raise CredentialsRefused("the token is bound to a key: send it with DPoP and a proof")
        _check_proof(auth, shown, str(bound["jkt"]), now, replays, nonces)
    elif shown.scheme == "dpop" or auth.dpop == "required":
        raise CredentialsRefused("a token that is bound to a key (DPoP) is needed")
    if "x5t#S256" in bound:
        certificate = shown.certificate
        if certificate is None or _b64(hashlib.sha256(certificate).digest()) != bound["x5t#S256"]:
            raise CredentialsRefused("the token is bound to another certificate")
    if bound and not {"jkt", "x5t#S256"} & set(bound):
        raise CredentialsRefused("the token is not valid", detail="it is bound to something unknown")


def _check_proof(auth: BearerAuth, shown: Presented, jkt: str, now: float, replays: Replays, nonces: Nonces) -> None:
    """RFC 9449 section 4.3, in its order."""
    if len(shown.proofs) != 1 or len(shown.proofs[0]) > _LONGEST:
        raise _bad("one DPoP header is needed")
    proof = shown.proofs[0]
    try:
        header, claims, alg = read_jwt(proof, PROOF_ALGORITHMS)
    except CredentialsRefused as error:
        raise _bad("the proof is malformed", error.detail) from None
    if header.get("typ") != "dpop+jwt" or not isinstance(header.get("jwk"), dict):
        raise _bad("the proof is malformed", "no dpop+jwt with a jwk")
    key = read_key(header["jwk"])  # None for a private key too
    if key is None or not key.fits(alg):
        raise _bad("the proof's key cannot be used")
    try:
        verify(proof, [key], alg)
    except CredentialsRefused:
        raise _bad("the proof's signature is wrong") from None
    if claims.get("htm") != shown.method or not _same_place(claims.get("htu"), auth.resource, shown.path):
        raise _bad("the proof is for another request")
    made, jti = claims.get("iat"), claims.get("jti")
    if isinstance(made, bool) or not isinstance(made, int | float) or not isinstance(jti, str) or not jti:
        raise _bad("the proof is malformed", "iat or jti")
    if not now - PROOF_AGE - auth.clock_skew <= made <= now + auth.clock_skew:
        raise _bad("the proof is too old, or from the future")
    if claims.get("ath") != _b64(hashlib.sha256(shown.token.encode()).digest()):
        raise _bad("the proof is for another token")
    if key.key.thumbprint() != jkt:
        raise _bad("the proof is of another key than the token's")
    if auth.dpop_nonce and not nonces.good(claims.get("nonce"), now):
        raise CredentialsRefused("the proof needs this server's nonce", error="use_dpop_nonce")
    digest = hashlib.sha256(f"{jkt} {jti}".encode()).digest()
    if not replays.use(digest, made + PROOF_AGE + auth.clock_skew, now):
        raise _bad("the proof was used before")


def _same_place(htu: object, resource: str, path: str) -> bool:
    """Whether a proof's URL is that of this request: scheme and host as clients know us, not as the proxy does."""
    if not isinstance(htu, str):
        return False
    try:
        said, known = urlsplit(htu), urlsplit(resource)
        same_host = (said.hostname, said.port or _PORTS.get(said.scheme)) == (
            known.hostname,
            known.port or _PORTS[known.scheme],
        )
    except ValueError:
        return False
    return same_host and said.scheme == known.scheme and said.path in (known.path, path) and not said.fragment


def _bad(description: str, detail: str = "") -> CredentialsRefused:
    return CredentialsRefused(description, error="invalid_dpop_proof", detail=detail)


def _b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


__all__ = ["Nonces", "Replays", "check_possession"]
