"""How the check of a request's credentials can end badly. No text here ever holds a credential."""

from __future__ import annotations

from typing import Literal

from mcptrio.errors import MCPTrioException


class CredentialsRefused(MCPTrioException):
    """The request does not prove who sent it.

    `error` is the code of RFC 6750 section 3.1, or None where the request tried nothing. `description` is sent to the
    client, `detail` only goes to the log.
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
        super().__init__(f"{description} ({detail})" if detail else description)
        self.description = description
        self.error = error
        self.status = status
        self.detail = detail


class Unavailable(MCPTrioException):
    """What is needed to check a token cannot be had now; nobody is let in meanwhile."""
