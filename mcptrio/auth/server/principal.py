"""Principals: authenticated callers, and the check of what an `auth=` function returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from attrs import field, frozen

from mcptrio._settings import check_value
from mcptrio.auth.server.errors import CredentialsRefused
from mcptrio.errors import DeclarationError

_FIELDS: Final[Sequence[tuple[str, Any, str]]] = (
    ("subject", str | None, "write subject=str(...)"),
    ("client_id", str | None, "write client_id=str(...)"),
    ("issuer", str, ""),
    ("scopes", frozenset[str], ""),
    ("expires", float | None, ""),
)
EXPIRED: Final = "the credentials have expired"
UNIDENTIFIED: Final = "the caller could not be identified"


def scope_set(scopes: str | Iterable[str]) -> frozenset[str]:
    """Convert scopes to a set; a string is split at spaces, as in a token."""
    given: Any = scopes.split() if isinstance(scopes, str) else scopes
    # The check of the caller refuses another value: it knows the name of the setting.
    found: frozenset[str] = frozenset(given) if isinstance(given, Iterable) else given
    return found


@frozen(kw_only=True)
class Principal:
    """An authenticated caller. Holds the claims of a token, never the token itself."""

    subject: str | None = None
    """The user or account that the request is made for."""
    client_id: str | None = None
    """The client application that makes the request."""
    issuer: str = ""
    """The authorization server that issued the token; "" if this server authenticated the caller itself."""
    scopes: frozenset[str] = field(default=frozenset(), converter=scope_set)
    """The scopes it holds, including implied ones."""
    claims: Mapping[str, Any] = field(factory=dict, repr=False, eq=False)
    """All claims of the token."""
    expires: float | None = field(default=None, eq=False)
    """When the credentials expire, in seconds since 1970. Later requests are refused, and streams end then. For a token
    of an issuer it is `exp` plus `BearerAuth.clock_skew`."""
    key: str = field(init=False, repr=False, eq=False)
    """Unique key of the principal; sessions, tasks and request states are bound to it."""

    def __attrs_post_init__(self) -> None:
        if not self.subject and not self.client_id:
            raise DeclarationError(
                "a Principal needs a subject or a client_id, otherwise all callers would be the same"
            )
        for name, kind, hint in _FIELDS:
            object.__setattr__(self, name, check_value(f"Principal.{name}", getattr(self, name), kind, hint=hint))
        # As JSON, so that no value can contain the separator.
        key = msgspec.json.encode([self.issuer, self.client_id or "", self.subject or ""]).decode()
        object.__setattr__(self, "key", key)


class PrincipalRecord(msgspec.Struct, frozen=True, array_like=True):
    """A principal as plain data, for another process."""

    subject: str | None
    client_id: str | None
    issuer: str
    scopes: Sequence[str]
    claims: Mapping[str, Any]
    expires: float | None

    @classmethod
    def of(cls, one: Principal) -> PrincipalRecord:
        return cls(one.subject, one.client_id, one.issuer, sorted(one.scopes), one.claims, one.expires)

    @property
    def principal(self) -> Principal:
        return Principal(**msgspec.structs.asdict(self))


def require_principal(value: object) -> Principal:
    """Check the result of an `auth=` function. Only a `Principal` identifies a caller: None or False never does.

    Raises:
        CredentialsRefused: it is something else. `detail` says what, for the log.
    """
    if not isinstance(value, Principal) or not value.key:
        raise CredentialsRefused(
            UNIDENTIFIED,
            detail=f"the auth function returned {type(value).__name__}: return a Principal, or a response that refuses",
        )
    return value


def has_expired(principal: Principal, now: float) -> bool:
    """Return whether the credentials of a principal have expired."""
    return principal.expires is not None and principal.expires <= now
