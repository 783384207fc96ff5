"""Proof of possession for tokens that are bound to a key (DPoP, RFC 9449) or a certificate (RFC 8705)."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final
from urllib.parse import urlsplit

from attrs import define, field

from mcptrio.auth.server.config import BearerAuth
from mcptrio.auth.server.credentials import Presented
from mcptrio.auth.server.errors import CredentialsRefused, Unavailable
from mcptrio.auth.server.keys import read_key
from mcptrio.auth.server.metadata import PROOF_ALGORITHMS
from mcptrio.auth.server.principal import Principal
from mcptrio.auth.server.tokens import WantFirstUse, read_jwt, verify

PROOF_AGE: Final = 60.0
"""Maximum age of a proof in seconds, in addition to the clock skew."""
_FORGOTTEN_AT_ONCE: Final = 8
_LONGEST: Final = 8192
_NONCE_TIME: Final = 120
_PORTS: Final = {"http": 80, "https": 443}


@define(eq=False, repr=False)
class Replays:
    """The proofs that were accepted, each until it expires. None is dropped earlier, which would allow its replay.

    An owner may hold as many proofs as there are free places. So the owner with most of them is refused first, one
    owner never takes more than half of the table, and there is always room for another one. The owner is the principal:
    a client makes as many keys as it likes.
    """

    # Not `_actors.shares`, whose policies do not fit: a proof can neither wait for a place nor make room for another.
    most: int = 200_000
    _owners: dict[bytes, str] = field(factory=dict)
    """The owner of each proof."""
    _held: dict[str, int] = field(factory=dict)
    """How many proofs each owner holds."""
    _ends: list[tuple[float, bytes]] = field(factory=list)
    """A heap of proofs by expiry."""

    def __len__(self) -> int:
        return len(self._owners)

    def use(self, owner: str, proof: bytes, until: float, now: float) -> bool:
        """Record a proof; return False if it was used before.

        Raises:
            Unavailable: the owner holds too many.
        """
        self._forget(now)
        if proof in self._owners:
            return False
        held = self._held.get(owner, 0)
        if held >= self.most - len(self._owners):
            raise Unavailable(f"too many proofs of possession of one caller within {PROOF_AGE:g} s")
        self._owners[proof] = owner
        self._held[owner] = held + 1
        heappush(self._ends, (until, proof))
        return True

    def _forget(self, now: float) -> None:
        """Remove expired proofs: a few at a time, but more than a request adds."""
        for _ in range(_FORGOTTEN_AT_ONCE):
            if not self._ends or self._ends[0][0] > now:
                return
            _, proof = heappop(self._ends)
            owner = self._owners.pop(proof)
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]


@define(eq=False, repr=False)
class NonceIssuer:
    """A source of nonces that needs no storage: each is a MAC of a time slot."""

    secret: bytes = field(repr=False)

    @classmethod
    def derived(cls, secret: bytes) -> NonceIssuer:
        """Derive the key from the secret of a store, for all processes that share the store."""
        return cls(hmac.digest(secret, b"mcptrio dpop nonces", "sha256"))

    def current(self, now: float) -> str:
        """Return the nonce of the current time slot."""
        return self._of(int(now // _NONCE_TIME))

    def accepts(self, nonce: object, now: float) -> bool:
        """Return whether a nonce is of the current or the previous time slot."""
        slot = int(now // _NONCE_TIME)
        return isinstance(nonce, str) and any(
            hmac.compare_digest(nonce.encode(), self._of(known).encode()) for known in (slot, slot - 1)
        )

    def _of(self, slot: int) -> str:
        return _b64(hmac.digest(self.secret, str(slot).encode(), "sha256")[:18])


def check_possession(
    auth: BearerAuth, shown: Presented, principal: Principal, *, now: float, replays: Replays, nonces: NonceIssuer
) -> WantFirstUse | None:
    """Check that the sender possesses the key or certificate that the token is bound to.

    Returns the proof that was used; other processes of the endpoint do not know it yet.

    Raises:
        CredentialsRefused: the proof is missing or wrong.
        Unavailable: the check is not possible now.
    """
    bound = principal.claims.get("cnf")
    bound = bound if isinstance(bound, Mapping) else {} if bound is None else {"?": bound}
    used: WantFirstUse | None = None
    if "jkt" in bound:
        # Never accept a bound token without its proof, whatever the setting: it would be worth stealing again.
        if not auth.dpop or shown.scheme != "dpop":
            detail = "" if auth.dpop else "BearerAuth.dpop is False"
            raise CredentialsRefused("the token is bound to a key: send it with DPoP and a proof", detail=detail)
        used = _check_proof(auth, shown, str(bound["jkt"]), principal.key, now, replays, nonces)
    elif shown.scheme == "dpop" or auth.dpop == "required":
        raise CredentialsRefused("a token that is bound to a key (DPoP) is needed")
    if "x5t#S256" in bound:
        certificate = shown.certificate
        if certificate is None or _b64(hashlib.sha256(certificate).digest()) != bound["x5t#S256"]:
            raise CredentialsRefused("the token is bound to another certificate")
    if bound and not {"jkt", "x5t#S256"} & set(bound):
        raise CredentialsRefused("the token is not valid", detail="it is bound to something unknown")
    return used


def _check_proof(
    auth: BearerAuth, shown: Presented, jkt: str, owner: str, now: float, replays: Replays, nonces: NonceIssuer
) -> WantFirstUse:
    """Check a DPoP proof, in the order of RFC 9449 section 4.3."""
    if len(shown.proofs) != 1 or len(shown.proofs[0]) > _LONGEST:
        raise _bad("one DPoP header is needed")
    proof = shown.proofs[0]
    try:
        header, claims, alg = read_jwt(proof, PROOF_ALGORITHMS)
    except CredentialsRefused as error:
        raise _bad("the proof is malformed", error.detail) from None
    if header.get("typ") != "dpop+jwt" or not isinstance(header.get("jwk"), dict):
        raise _bad("the proof is malformed", "no dpop+jwt with a jwk")
    key = read_key(header["jwk"])  # also None for a private key
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
    if auth.dpop_nonce and not nonces.accepts(claims.get("nonce"), now):
        raise CredentialsRefused("the proof needs this server's nonce", error="use_dpop_nonce")
    digest, until = hashlib.sha256(f"{jkt} {jti}".encode()).digest(), made + PROOF_AGE + auth.clock_skew
    if not replays.use(owner, digest, until, now):
        raise used_before()
    return WantFirstUse(proof=digest.hex(), until=until)


def used_before() -> CredentialsRefused:
    return _bad("the proof was used before")


def _same_place(htu: object, resource: str, path: str) -> bool:
    """Return whether a proof's URL is that of this request; scheme and host are those of `resource`, not of a proxy."""
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
    # The endpoint is also served with a slash at its end, and clients sign the URL that they use.
    places = {known.path.removesuffix("/"), path.removesuffix("/")}
    return same_host and said.scheme == known.scheme and said.path.removesuffix("/") in places and not said.fragment


def _bad(description: str, detail: str = "") -> CredentialsRefused:
    return CredentialsRefused(description, error="invalid_dpop_proof", detail=detail)


def _b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
