"""The hook for authorization: whoever signs in fills this role; the transport only asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attrs import frozen


@frozen(kw_only=True, eq=False)
class AuthRequest:
    """A request that is about to be sent: the same object for each attempt at it, and another for each request."""

    method: str
    url: str


@frozen(kw_only=True)
class AuthResponse:
    """The head of what it was answered with."""

    request: AuthRequest
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""


class HttpAuth(Protocol):
    """Authorizes every HTTP request of a client, in whatever way."""

    async def authorize(self, request: AuthRequest) -> Mapping[str, str]:
        """The headers to add, `Authorization` among them. Called once per attempt."""
        ...

    async def on_response(self, response: AuthResponse) -> bool:
        """Look at an answer, sign in if it asks for that, and say whether the request is worth repeating."""
        ...
