"""Errors of the authorization flows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from mcptrio.errors import MCPTrioError

_CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_REGISTERED: Final = frozenset(
    (
        *("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type"),
        *("invalid_scope", "invalid_target", "access_denied", "server_error", "temporarily_unavailable"),
        *("invalid_redirect_uri", "invalid_client_metadata", "invalid_dpop_proof", "use_dpop_nonce"),
    )
)
_LONGEST: Final = 200


class AuthorizationFailed(MCPTrioError):
    """No token could be obtained, or the server refused it. The text names the step and the reason.

    `error` is the error code of the authorization server, if it refused; `access_denied` means that the user declined.
    `sign_in_timeout` is set by this package for a sign-in that timed out, `no_authorization_server` for a server that
    requires a token and publishes no metadata.
    """

    def __init__(self, message: str, *, error: str | None = None) -> None:
        super().__init__(message)
        self.error = error


class FetchFailed(AuthorizationFailed):
    """A request of the flow failed, or its response could not be used; the same flow may succeed later."""


def refusal(what: str, document: object, secrets: Iterable[str] = ()) -> AuthorizationFailed:
    """Create the exception for an OAuth error response, without any of the secrets that were sent."""
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
