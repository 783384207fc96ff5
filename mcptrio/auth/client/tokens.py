"""Tokens: what they are, how they are read from a reply, how they are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import field, frozen

from mcptrio.auth.client.challenge import read_scopes
from mcptrio.auth.client.errors import AuthorizationFailed

_LONGEST_LIFE: Final = 366 * 86400.0
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/\-]+=*")  # RFC 6750 section 2.1: what fits into the header
_MOST: Final = 64 * 1024


@frozen(kw_only=True)
class Tokens:
    """An access token for one server, and what belongs to it. Printing it shows no secret."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    dpop_key: Mapping[str, str] | None = field(default=None, repr=False)
    """The private key that the token is bound to; None for a bearer token."""
    issuer: str
    resource: str
    client_id: str
    requested: tuple[str, ...] = ()
    """The scopes that were asked for."""
    granted: tuple[str, ...] | None = None
    """The scopes that were given, where the reply says so."""
    expires_at: float | None = None

    def record(self) -> dict[str, Any]:
        """As it is stored."""
        names = ("access_token", "refresh_token", "issuer", "resource", "client_id", "expires_at")
        kept: dict[str, Any] = {name: getattr(self, name) for name in names}
        kept["requested"] = list(self.requested)
        kept["granted"] = None if self.granted is None else list(self.granted)
        kept["dpop_key"] = None if self.dpop_key is None else dict(self.dpop_key)
        return kept


def restore(record: Mapping[str, Any] | None) -> Tokens | None:
    """What was stored, if it can be read."""
    if record is None:
        return None
    texts = {name: record.get(name) for name in ("access_token", "issuer", "resource", "client_id")}
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    refresh, key, expires = record.get("refresh_token"), record.get("dpop_key"), record.get("expires_at")
    return Tokens(
        **{name: str(text) for name, text in texts.items()},
        refresh_token=refresh if isinstance(refresh, str) else None,
        dpop_key=key if isinstance(key, dict) else None,
        expires_at=float(expires) if isinstance(expires, int | float) else None,
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
) -> Tokens:
    """The tokens in a reply of a token endpoint.

    Raises:
        AuthorizationFailed: they are of a kind that we do not use, or cannot be used at all.
    """
    access, kind = document.get("access_token"), document.get("token_type")
    if not isinstance(access, str) or len(access) > _MOST or not _TOKEN.fullmatch(access):
        raise AuthorizationFailed("the token reply has no access token")
    wanted = "bearer" if dpop_key is None else "dpop"
    if not isinstance(kind, str) or kind.lower() != wanted:
        raise AuthorizationFailed(f"the authorization server gave no {wanted} token but another type")
    refresh = document.get("refresh_token")
    if not isinstance(refresh, str) or not refresh:
        refresh = previous.refresh_token if previous is not None else None  # RFC 6749 section 6: none new, keep the old
    life = document.get("expires_in")
    if isinstance(life, str) and life.isdecimal():
        life = int(life[:12])
    expires = None
    if isinstance(life, int | float) and not isinstance(life, bool) and life == life:
        expires = now + min(max(float(life), 0.0), _LONGEST_LIFE)
    return Tokens(
        access_token=access,
        refresh_token=refresh,
        dpop_key=dpop_key,
        issuer=issuer,
        resource=resource,
        client_id=client_id,
        requested=requested,
        granted=read_scopes(document.get("scope")),
        expires_at=expires,
    )


def _scopes(value: object) -> tuple[str, ...] | None:
    return tuple(str(one) for one in value) if isinstance(value, list) else None
