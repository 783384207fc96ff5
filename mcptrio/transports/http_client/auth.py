"""The authorization hook of HTTP clients: the transport calls an `HttpAuth` for every request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attrs import frozen


@frozen(kw_only=True, eq=False)
class AuthRequest:
    """A request that is about to be sent: one object for all attempts at a request."""

    method: str
    url: str


@frozen(kw_only=True)
class AuthResponse:
    """The head of a response."""

    request: AuthRequest
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""


class HttpAuth(Protocol):
    """The authorization of a client's HTTP requests."""

    async def authorize(self, request: AuthRequest) -> Mapping[str, str]:
        """Return the headers to add, such as `Authorization`. Called once per attempt.

        Request timeouts run meanwhile, so it must not wait for the user.
        """
        ...

    async def on_response(self, response: AuthResponse) -> bool:
        """Sign in if a response asks for it; return whether to repeat the request.

        Request timeouts are paused while this runs for a 401 or 403.
        """
        ...
