"""Subscriptions: which session wants to hear about which resource, and who tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcptrio._actors.session import Session
from mcptrio._struct import Entity
from mcptrio.errors import INVALID_PARAMS, McpError
from mcptrio.server.context import Context
from mcptrio.server.features.resources import Resources
from mcptrio.server.features.scopes import require

if TYPE_CHECKING:
    from mcptrio.types import (
        SubscribeParams,
    )

MAX_PER_SESSION = 1000


def topic(uri: str) -> str:
    return f"resource {uri}"


class Subscriptions(Entity):
    """Serves `resources/subscribe` and `resources/unsubscribe`; the bus carries the changes."""

    resources: Resources

    def subscribe(self, ctx: Context, params: SubscribeParams) -> dict[str, Any]:
        found = self.resources.find(ctx, params.uri)
        if found is None:
            raise self.resources.not_found(ctx, params.uri)
        require(ctx, found[0])
        session = ctx._session
        mine = _subscriptions(session)
        if params.uri not in mine:
            if len(mine) >= MAX_PER_SESSION:
                raise McpError(INVALID_PARAMS, f"a session may have {MAX_PER_SESSION} subscriptions; unsubscribe first")

            def updated(_topic: str, uri: str) -> None:
                session.notify_nowait("notifications/resources/updated", {"uri": uri})

            mine[params.uri] = session.runtime.bus.subscribe([topic(params.uri)], updated)
        return {}

    def unsubscribe(self, ctx: Context, params: SubscribeParams) -> dict[str, Any]:
        handle = _subscriptions(ctx._session).pop(params.uri, None)
        if handle is not None:
            handle.close()
        return {}


def _subscriptions(session: Session) -> dict[str, Any]:
    mine: dict[str, Any] | None = session.data.get("subscriptions")
    if mine is None:
        mine = session.data["subscriptions"] = {}

        def end() -> None:
            for handle in mine.values():
                handle.close()

        session.on_end.append(end)
    return mine
