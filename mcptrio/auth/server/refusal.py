"""Responses to requests that are not authorized, as values: status, headers and JSON-RPC error of a 401, 403 or 503."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from attrs import frozen

from mcptrio.auth.server.certificates import ClientCertificates
from mcptrio.auth.server.config import BearerAuth
from mcptrio.auth.server.errors import CredentialsRefused
from mcptrio.auth.server.metadata import challenge, challenges
from mcptrio.auth.server.static_tokens import StaticTokens
from mcptrio.errors import INTERNAL_ERROR, INVALID_REQUEST

Auth: TypeAlias = BearerAuth | StaticTokens | ClientCertificates
Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

_NO_STORE: Final = (b"cache-control", b"no-store")


@frozen(kw_only=True)
class AuthRefusal:
    """The response to a request that is not authorized."""

    status: int
    message: str
    headers: Headers = ()
    code: int = INVALID_REQUEST
    data: Any = None
    reason: str = ""
    """Why the credentials were refused, for the log only: the client does not learn the details."""


def unauthorized(auth: Auth, error: CredentialsRefused, *, nonce: str | None = None) -> AuthRefusal:
    """Ask for credentials; with `nonce`, for a DPoP proof that contains it (RFC 9449 section 9)."""
    if isinstance(auth, BearerAuth):
        lines = challenges(auth, error=error.error, description=error.description, scopes=auth.required_scopes)
    elif isinstance(auth, ClientCertificates):
        lines = ()  # TLS has already asked for the certificate; HTTP has no scheme for it
    else:
        description = error.description if error.error else None
        lines = (challenge("Bearer", realm="mcp", error=error.error, error_description=description),)
    headers = (*_challenge_headers(lines), _NO_STORE)
    if nonce is not None:
        headers += ((b"dpop-nonce", nonce.encode()),)
    return AuthRefusal(
        status=error.status if lines else 403, message=error.description, headers=headers, reason=str(error)
    )


def forbidden(auth: Auth, scopes: Iterable[str]) -> AuthRefusal:
    """Name all scopes that the request needs (basic/authorization, step-up)."""
    needed = sorted(auth.required_scopes.union(scopes))
    return AuthRefusal(
        status=403,
        message=f"insufficient scope; required: {' '.join(needed)}",
        headers=forbidden_headers(auth, scopes),
        data={"error": "insufficient_scope", "scopes": needed},
    )


def forbidden_headers(auth: Auth, scopes: Iterable[str]) -> Headers:
    """Build the challenge that names all scopes that the request needs."""
    needed = auth.required_scopes.union(scopes)
    if isinstance(auth, BearerAuth):
        lines = challenges(
            auth, error="insufficient_scope", description="the token lacks a required scope", scopes=needed
        )
    else:
        lines = (challenge("Bearer", realm="mcp", error="insufficient_scope", scope=" ".join(sorted(needed))),)
    return _challenge_headers(lines)


def unavailable() -> AuthRefusal:
    """Ask the client to retry, because its credentials cannot be checked now."""
    return AuthRefusal(
        status=503,
        message="authorization is temporarily unavailable",
        headers=((b"retry-after", b"5"), _NO_STORE),
        code=INTERNAL_ERROR,
    )


def _challenge_headers(lines: Iterable[str]) -> Headers:
    return tuple((b"www-authenticate", line.encode("ascii")) for line in lines)
