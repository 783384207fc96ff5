"""Errors of credential checks. Their texts never contain a credential."""

from __future__ import annotations

from typing import Literal

from mcptrio.errors import MCPTrioError


class CredentialsRefused(MCPTrioError):
    """Missing or invalid credentials.

    `error` is the code of RFC 6750 section 3.1, or None if the request had no credentials. `description` is sent to the
    client, `detail` is for the log only.
    """

    def __init__(
        self,
        description: str,
        *,
        error: Literal["invalid_request", "invalid_token", "invalid_dpop_proof", "use_dpop_nonce"] | None = (
            "invalid_token"
        ),
        status: int = 401,
        detail: str = "",
    ) -> None:
        super().__init__(f"{description}: {detail}" if detail else description)
        self.description = description
        self.error = error
        self.status = status
        self.detail = detail


class Unavailable(MCPTrioError):
    """Credentials that cannot be checked now; the request is refused."""
