"""Signing in takes a person's time, which is not the server's: no request is given up meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import trio
from attrs import frozen

from mcptrio.client.patience import Patience
from mcptrio.errors import RequestTimeout

if TYPE_CHECKING:
    from mcptrio.transports.http_client.auth import AuthRequest, AuthResponse, HttpAuth

_ASKS_FOR_IT: Final = (401, 403)


@frozen
class Unhurried:
    """An `HttpAuth` whose sign-ins make the clocks of a client stand still."""

    auth: HttpAuth
    patience: Patience
    timeout: float

    async def authorize(self, request: AuthRequest) -> Mapping[str, str]:
        return await self.auth.authorize(request)

    async def on_response(self, response: AuthResponse) -> bool:
        if response.status not in _ASKS_FOR_IT:
            return await self.auth.on_response(response)
        with self.patience.answering(), trio.move_on_after(self.timeout):
            return await self.auth.on_response(response)
        raise RequestTimeout(f"nobody signed in within {self.timeout:g} s")
