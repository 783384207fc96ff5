"""What can go wrong between asking for a token and having it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from mcptrio.errors import MCPTrioException

_CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_REGISTERED: Final = frozenset(
    (
        *("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type"),
        *("invalid_scope", "invalid_target", "access_denied", "server_error", "temporarily_unavailable"),
        *("invalid_redirect_uri", "invalid_client_metadata", "invalid_dpop_proof", "use_dpop_nonce"),
    )
)
_LONGEST: Final = 200


class AuthorizationFailed(MCPTrioException):
    """No token could be had, or the server would not take it. The text says at which step and why.

    `error` is the error code that the authorization server gave, if it was the one that refused; `access_denied` is the
    person's own no. `nobody_came` is ours, for a sign-in that was waited for in vain.
    """

    def __init__(self, message: str, *, error: str | None = None) -> None:
        super().__init__(message)
        self.error = error


class FetchFailed(AuthorizationFailed):
    """A request of the flow could not be made, or its answer could not be used."""


def refusal(what: str, document: object, secrets: Iterable[str] = ()) -> AuthorizationFailed:
    """The exception for an OAuth error reply, with nothing in it that we sent in confidence."""
    error = description = ""
    if isinstance(document, dict):
        error, description = str(document.get("error") or ""), str(document.get("error_description") or "")
    for secret in filter(None, secrets):
        description = description.replace(secret, "…")
        if error not in _REGISTERED:
            error = error.replace(secret, "…")
    code = error if _CODE.fullmatch(error) else None
    text = "".join(character if character.isprintable() else " " for character in description)[:_LONGEST].strip()
    return AuthorizationFailed(
        f"{what} was refused: {code or 'no reason given'}{f' ({text})' if text else ''}", error=code
    )
