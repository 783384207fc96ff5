"""The check of an access token, as a generator: yields what has to be fetched, and returns the principal.

Cheap checks come first, and nothing in a token decides how it is checked: the algorithm must be allowed by the
settings and fit the key, and keys come only from the issuers in the settings.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from attrs import field, frozen

from mcptrio.auth.server.config import BearerAuth
from mcptrio.auth.server.credentials import Presented
from mcptrio.auth.server.errors import CredentialsRefused
from mcptrio.auth.server.keys import Key
from mcptrio.auth.server.principal import Principal

_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_REFUSED_HEADERS: Final = ("crit", "jku", "x5u", "jwk", "x5c", "b64", "zip", "enc")
"""Each would let the token decide how or with which key it is checked."""
_MAX_TRIED: Final = 8
_END_OF_TIME: Final = 1e12


@frozen(kw_only=True)
class WantKeys:
    """Fetch the keys of an issuer; the result is a tuple of `Key`."""

    issuer: str
    kid: str | None


@frozen(kw_only=True)
class WantIntrospection:
    """Introspect a token at its issuer; the result is the JSON of the response."""

    token: str = field(repr=False)


@frozen(kw_only=True)
class WantFirstUse:
    """Record a DPoP proof for all processes of the endpoint; the result is False if it was used before."""

    proof: str
    until: float
    """When the proof expires, in seconds since 1970."""


Want: TypeAlias = WantKeys | WantIntrospection | WantFirstUse
Check: TypeAlias = Generator[Want, Any, Principal]


def check_token(auth: BearerAuth, shown: Presented, now: float) -> Check:
    """Check a token and return its principal.

    Raises:
        CredentialsRefused: the token is not valid.
    """
    if auth.introspection is not None:
        answer = yield WantIntrospection(token=shown.token)
        claims = _introspected(auth, answer)
    else:
        header, claims, alg = _peek(auth, shown.token)
        issuer, kid = claims["iss"], header.get("kid")
        keys: tuple[Key, ...] = yield WantKeys(issuer=issuer, kid=kid)
        verify(shown.token, _candidates(keys, kid, alg), alg)
    check_claims(auth, claims, now)
    return principal_of(auth, claims)


# -- a JWT


def _peek(auth: BearerAuth, token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Read header and claims before the signature is verified."""
    header, claims, alg = read_jwt(token, auth.algorithms)
    kind = header.get("typ")
    if kind is not None and (not isinstance(kind, str) or kind.lower() not in _TYPES):
        raise CredentialsRefused("the token is not valid", detail="it is no access token by its type")
    if header.get("kid") is not None and not isinstance(header["kid"], str):
        raise CredentialsRefused("the token is not valid", detail="its kid is no string")
    _check_issuer(auth, claims.get("iss"))
    return header, claims, alg


def _check_issuer(auth: BearerAuth, issuer: object) -> None:
    if issuer not in auth.issuers:
        detail = f"its issuer {issuer!a:.80} is not in BearerAuth.issuers: {', '.join(auth.issuers):.200}"
        raise CredentialsRefused("the token is not valid", detail=detail)


def read_jwt(token: str, algorithms: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Read header, payload and algorithm of a signed JWT, without verifying it.

    Raises:
        CredentialsRefused: it is not a signed JWT, or its header is not allowed.
    """
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise CredentialsRefused("the token is not valid", detail="it is no signed JWT")
    header, payload = _json(parts[0]), _json(parts[1])
    alg = header.get("alg")
    if not isinstance(alg, str) or alg not in algorithms:
        detail = f"its algorithm {alg!a:.20} is not one of {', '.join(algorithms)}"
        raise CredentialsRefused("the token is not valid", detail=detail)
    for name in _REFUSED_HEADERS:
        if name in header and not (name == "jwk" and header.get("typ") == "dpop+jwt"):
            raise CredentialsRefused("the token is not valid", detail=f"its header has {name}")
    return header, payload, alg


def _json(part: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise CredentialsRefused("the token is not valid", detail="a part of it is no JSON object")
    return value


def _candidates(keys: tuple[Key, ...], kid: str | None, alg: str) -> list[Key]:
    fitting = [key for key in keys if key.fits(alg) and (kid is None or key.kid == kid)]
    if not fitting:
        raise CredentialsRefused("the token is not valid", detail="the issuer has no such key")
    return fitting[:_MAX_TRIED]


def verify(token: str, keys: Iterable[Key], alg: str) -> None:
    """Verify a signature.

    Raises:
        CredentialsRefused: none of the keys made it.
    """
    from joserfc import jws
    from joserfc.errors import JoseError

    for key in keys:
        try:
            jws.deserialize_compact(token, key.key, algorithms=[alg])
        except (JoseError, ValueError, TypeError):
            continue
        return
    raise CredentialsRefused("the token is not valid", detail="its signature is wrong")


# -- introspection


def _introspected(auth: BearerAuth, answer: object) -> dict[str, Any]:
    if not isinstance(answer, dict) or answer.get("active") is not True:
        raise CredentialsRefused("the token is not valid", detail="the issuer says that it is not active")
    kind = answer.get("token_type")
    if isinstance(kind, str) and kind.lower() not in ("bearer", "dpop", "access_token"):
        raise CredentialsRefused("the token is not valid", detail="it is no access token")
    claims = dict(answer)
    # RFC 7662 section 2.2: iss is optional. Then it is the issuer that was asked.
    _check_issuer(auth, claims.setdefault("iss", auth.issuers[0]))
    return claims


# -- claims


def check_claims(auth: BearerAuth, claims: Mapping[str, Any], now: float) -> None:
    """Check audience and times of a token.

    Raises:
        CredentialsRefused: the token is for another server, expired, or not valid yet.
    """
    made_for = claims.get("aud")
    names = [made_for] if isinstance(made_for, str) else made_for if isinstance(made_for, list) else []
    if not any(isinstance(name, str) and name in auth.audience for name in names):
        # basic/authorization: servers MUST validate that tokens were issued specifically for them
        detail = f"its audience {made_for!a:.80} is not in BearerAuth.audience: {', '.join(auth.audience):.200}"
        raise CredentialsRefused("the token was not issued for this server", detail=detail)
    end = _end(auth, claims)
    if end is None and auth.introspection is None:
        raise CredentialsRefused("the token is not valid", detail="it never expires")
    if end is not None and now >= end:
        raise CredentialsRefused("the token has expired", detail=f"also with BearerAuth.clock_skew={auth.clock_skew:g}")
    begins, made = _time(claims, "nbf"), _time(claims, "iat")
    if begins is not None and now < begins - auth.clock_skew:
        raise CredentialsRefused("the token is not valid yet", detail=f"BearerAuth.clock_skew={auth.clock_skew:g}")
    if made is not None and now < made - auth.clock_skew:
        detail = f"it was made in the future, BearerAuth.clock_skew={auth.clock_skew:g}"
        raise CredentialsRefused("the token is not valid yet", detail=detail)


def _end(auth: BearerAuth, claims: Mapping[str, Any]) -> float | None:
    """Return when this server stops to accept a token: for its requests and its streams alike."""
    expires = _time(claims, "exp")
    return None if expires is None else expires + auth.clock_skew


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _END_OF_TIME:
        raise CredentialsRefused("the token is not valid", detail=f"its {name} is no time")
    return float(value)


def principal_of(auth: BearerAuth, claims: Mapping[str, Any]) -> Principal:
    """Build the principal from the claims of a valid token."""
    subject = claims.get("sub")
    client = claims.get("client_id") or claims.get("azp") or claims.get("cid")
    subject = subject if isinstance(subject, str) and subject else None
    client = client if isinstance(client, str) and client else None
    if subject is None and client is None:
        raise CredentialsRefused("the token is not valid", detail="it says neither for whom nor for which client it is")
    return Principal(
        issuer=claims["iss"],
        subject=subject,
        client_id=client,
        scopes=auth.widen(granted(claims)),
        claims=claims,
        expires=_end(auth, claims),
    )


def granted(claims: Mapping[str, Any]) -> list[str]:
    """Read the scopes of a token: `scope` (RFC 9068) or `scp`, as a string or a list."""
    value = claims.get("scope", claims.get("scp"))
    if isinstance(value, str):
        return value.split()
    return [scope for scope in value if isinstance(scope, str)] if isinstance(value, list) else []
