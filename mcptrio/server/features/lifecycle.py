"""How a stateful session begins: `initialize`, `ping`, log levels, and the user's own session function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from attrs import define

from mcptrio._eras.shape import trim
from mcptrio._wire.converter import unstructure
from mcptrio.errors import INVALID_REQUEST, McpError, SessionRefused
from mcptrio.server.context import Context, SessionHandle
from mcptrio.server.features.hints import Hints
from mcptrio.types import Implementation, InitializeParams, Params, ServerCapabilities, SetLevelParams

SessionFunction = Callable[[SessionHandle], AbstractAsyncContextManager[Any]]


@define(eq=False)
class Lifecycle:
    """What the server says of itself, and to whom it says no."""

    info: Implementation
    instructions: str | None
    capabilities: Callable[[], ServerCapabilities]
    hints: Hints
    dates: Callable[[], tuple[str, ...]]
    session_function: SessionFunction | None = None

    async def initialize(self, ctx: Context, params: InitializeParams) -> Any:
        session = ctx._session
        session.data["client_info"] = params.client_info
        session.data["capabilities"] = self.capabilities()
        if self.session_function is not None:
            try:
                session.state = await session.hold(self.session_function(SessionHandle(session)))
            except SessionRefused as refused:
                raise McpError(INVALID_REQUEST, str(refused) or "the session was refused") from None
        era = ctx._call.start.era
        offered = trim(era, "capabilities", unstructure(session.data["capabilities"]))
        session.peer.offers = offered
        answer: dict[str, Any] = {
            "protocolVersion": era.date,
            "capabilities": offered,
            "serverInfo": trim(era, "implementation", unstructure(self.info)),
        }
        if self.instructions is not None:
            answer["instructions"] = self.instructions
        return answer

    def discover(self, ctx: Context, params: Params) -> dict[str, Any]:
        """2026-07-28 server/discover: which versions, what capabilities; it opens nothing."""
        era = ctx._call.start.era
        answer: dict[str, Any] = {
            "supportedVersions": list(reversed(self.dates())),
            "capabilities": trim(era, "capabilities", unstructure(self.capabilities())),
        }
        if self.instructions is not None:
            answer["instructions"] = self.instructions
        return self.hints.finish_list("discover", answer, era, varies=False)


def ping(ctx: Context, params: Params) -> dict[str, Any]:
    return {}


def set_level(ctx: Context, params: SetLevelParams) -> dict[str, Any]:
    ctx._session.log_level = params.level
    return {}
