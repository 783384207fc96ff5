"""Tokens: parsing of token responses, and their stored form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import field, frozen

from mcptrio.auth.client.challenge import read_scopes
from mcptrio.auth.client.credentials import Credentials, restore_credentials
from mcptrio.auth.client.errors import AuthorizationFailed

RENEW_BEFORE: Final = 30.0  # seconds before a token expires
_LONGEST_LIFE: Final = 366 * 86400.0
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/\-]+=*")  # RFC 6750 section 2.1: allowed in the header
_MOST: Final = 64 * 1024


@frozen(kw_only=True)
class Tokens:
    """An access token for one server, with its refresh token and key. Its repr shows no secret."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    dpop_key: Mapping[str, str] | None = field(default=None, repr=False)
    """The private key that the token is bound to; None for a bearer token."""
    issuer: str
    resource: str
    client_id: str
    requested: tuple[str, ...] = ()
    """The scopes that were requested."""
    granted: tuple[str, ...] | None = None
    """The scopes that were granted, if the response lists them."""
    obtained_at: float | None = None
    expires_at: float | None = None
    token_endpoint: str | None = None
    """Where they were issued, so that a renewal needs no discovery."""
    auth_methods: tuple[str, ...] = ()
    """The authentication methods of the token endpoint."""
    registration: Credentials | None = field(default=None, repr=False)
    """The registered credentials that they were issued to, which another registration at this issuer does not change;
    None if the credentials are configured."""

    def same_as(self, other: Tokens | None) -> bool:
        """Return whether the access token is the same."""
        return other is not None and self.access_token == other.access_token

    def is_due(self, now: float) -> bool:
        """Return whether to renew them: 30 s before they expire, or in their last quarter if that is less."""
        if self.expires_at is None:
            return False
        before = RENEW_BEFORE
        if self.obtained_at is not None:
            before = min(before, (self.expires_at - self.obtained_at) / 4)
        return now >= self.expires_at - before

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def record(self) -> dict[str, Any]:
        """Return the stored form."""
        names = ("access_token", "refresh_token", "issuer", "resource", "client_id", "token_endpoint")
        kept: dict[str, Any] = {name: getattr(self, name) for name in (*names, "obtained_at", "expires_at")}
        kept["auth_methods"] = list(self.auth_methods)
        kept["registration"] = None if self.registration is None else self.registration.record()
        kept["requested"] = list(self.requested)
        kept["granted"] = None if self.granted is None else list(self.granted)
        kept["dpop_key"] = None if self.dpop_key is None else dict(self.dpop_key)
        return kept


def restore(record: Mapping[str, Any] | None) -> Tokens | None:
    """Read the stored form; None if it is unreadable."""
    if record is None:
        return None
    texts = {name: record.get(name) for name in ("access_token", "issuer", "resource", "client_id")}
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    refresh, key, endpoint = record.get("refresh_token"), record.get("dpop_key"), record.get("token_endpoint")
    return Tokens(
        **{name: str(text) for name, text in texts.items()},
        refresh_token=refresh if isinstance(refresh, str) else None,
        dpop_key=key if isinstance(key, dict) else None,
        obtained_at=_time(record.get("obtained_at")),
        expires_at=_time(record.get("expires_at")),
        token_endpoint=endpoint if isinstance(endpoint, str) else None,
        auth_methods=_scopes(record.get("auth_methods")) or (),
        registration=restore_credentials(record.get("registration")),
        requested=_scopes(record.get("requested")) or (),
        granted=_scopes(record.get("granted")),
    )


def read_tokens(
    document: Mapping[str, Any],
    *,
    now: float,
    issuer: str,
    resource: str,
    client_id: str,
    requested: tuple[str, ...] = (),
    dpop_key: Mapping[str, str] | None = None,
    previous: Tokens | None = None,
    token_endpoint: str | None = None,
    auth_methods: tuple[str, ...] = (),
    registration: Credentials | None = None,
) -> Tokens:
    """Parse the response of a token endpoint.

    Raises:
        AuthorizationFailed: the token is missing, malformed, or of another type than requested.
    """
    access, kind = document.get("access_token"), document.get("token_type")
    if not isinstance(access, str) or len(access) > _MOST or not _TOKEN.fullmatch(access):
        raise AuthorizationFailed("the token reply has no access token")
    wanted = "bearer" if dpop_key is None else "dpop"
    if not isinstance(kind, str) or kind.lower() != wanted:
        raise AuthorizationFailed(f"the authorization server gave no {wanted} token but another type")
    refresh = document.get("refresh_token")
    if not isinstance(refresh, str) or not refresh:
        # RFC 6749 section 6: without a new one, keep the old
        refresh = previous.refresh_token if previous is not None else None
    lifetime = document.get("expires_in")
    if isinstance(lifetime, str) and lifetime.isdecimal():
        lifetime = int(lifetime[:12])
    expires = None
    if isinstance(lifetime, int | float) and not isinstance(lifetime, bool) and lifetime == lifetime:
        expires = now + min(max(float(lifetime), 0.0), _LONGEST_LIFE)
    return Tokens(
        access_token=access,
        refresh_token=refresh,
        dpop_key=dpop_key,
        issuer=issuer,
        resource=resource,
        client_id=client_id,
        requested=requested,
        granted=read_scopes(document.get("scope")),
        obtained_at=now,
        expires_at=expires,
        token_endpoint=token_endpoint,
        auth_methods=auth_methods,
        registration=registration,
    )


def _time(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _scopes(value: object) -> tuple[str, ...] | None:
    return tuple(str(one) for one in value) if isinstance(value, list) else None
