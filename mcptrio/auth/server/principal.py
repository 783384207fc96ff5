"""Who sent a request, once that is proven."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from attrs import field, frozen

from mcptrio.errors import DeclarationError


def scope_set(scopes: str | Iterable[str]) -> frozenset[str]:
    """Scopes as a set; one text is a list with spaces, as in a token."""
    return frozenset(scopes.split() if isinstance(scopes, str) else scopes)


@frozen(kw_only=True)
class Principal:
    """Somebody who may call this server. It holds what a token says, never the token."""

    subject: str | None = None
    """The person or account that the request is made for."""
    client_id: str | None = None
    """The program that makes it."""
    issuer: str = ""
    """Who vouches for both; "" where this server does."""
    scopes: frozenset[str] = field(default=frozenset(), converter=scope_set)
    """What it may do, with everything that those scopes imply."""
    claims: Mapping[str, Any] = field(factory=dict, repr=False, eq=False)
    """All that was said of it."""
    expires: float | None = field(default=None, eq=False)
    """When it has to be proven anew, in seconds since 1970."""
    key: str = field(init=False, repr=False, eq=False)
    """What tells principals apart; what belongs to one of them is bound to this."""

    def __attrs_post_init__(self) -> None:
        if not self.subject and not self.client_id:
            raise DeclarationError("a Principal needs a subject or a client_id, or everybody would be the same one")
        # As JSON, so that no part can be made to look like the border between two.
        key = msgspec.json.encode([self.issuer, self.client_id or "", self.subject or ""]).decode()
        object.__setattr__(self, "key", key)
